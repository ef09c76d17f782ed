"""One process at a time in a directory."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

LOCK = ".lock"


class DirectoryLock:
    """An exclusive lock on a directory, kept by the kernel on an empty file in it.

    The kernel lets go when the process ends, however it ends, so no lock is ever stale. A file is locked
    rather than the directory itself, which network file systems do not lock.

    Attributes:
        held: this object holds the lock.
    """

    def __init__(self, directory: Path) -> None:
        """Name the directory; nothing is touched."""
        self._directory = directory
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def held_elsewhere(self) -> bool:
        """Whether another process, or another object in this one, holds the lock; nothing is created or taken.

        Raises:
            OSError: the file is there and cannot be opened.
        """
        try:
            descriptor = os.open(self._directory / LOCK, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def take(self) -> None:
        """Take the lock, or raise at once.

        Raises:
            ValueError: another process (or another object in this one) holds it.
            OSError: the directory is not there or not writable.
        """
        path = self._directory / LOCK
        while self._descriptor is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Its last holder may have removed the file between our open and our lock; then try again.
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), path.stat()):
                        self._descriptor = descriptor
            except BlockingIOError:
                raise ValueError(f"run directory {self._directory} is in use by another process") from None
            finally:
                if self._descriptor is None:
                    os.close(descriptor)

    def __enter__(self) -> "DirectoryLock":
        """Take the lock."""
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.release()

    def release(self) -> None:
        """Give the lock back and remove its file; safe to call twice."""
        if self._descriptor is None:
            return
        # Removed while held: whoever opens the path afterwards makes a new file.
        with suppress(OSError):
            (self._directory / LOCK).unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None
