"""Standard streams that never end a run: what they cannot encode is replaced, and what nobody reads is let go."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EPIPE
from io import TextIOBase
from typing import Any


class PatientStream(TextIOBase):
    """A text stream whose writes do not fail.

    After a write that failed, of a reader that has gone or a disk that is full, what comes next is let go as well, so
    that the interpreter's last flush has nothing to complain of.

    Attributes:
        failure: the first error of a write that was not a reader's going, else None.

    Args:
        stream: where the text goes.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.failure: OSError | None = None
        if getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")

    def write(self, text: str) -> int:
        """Write as far as that goes."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._let_go(error)
        return len(text)

    def flush(self) -> None:
        """Flush as far as that goes."""
        try:
            self._stream.flush()
        except OSError as error:
            self._let_go(error)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the stream has."""
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's encoding."""
        return str(self._stream.encoding)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return bool(self._stream.isatty())

    def fileno(self) -> int:
        """The stream's descriptor."""
        return int(self._stream.fileno())

    def _let_go(self, error: OSError) -> None:
        if error.errno != EPIPE and self.failure is None:
            self.failure = error
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextmanager
def patient_streams() -> Iterator[None]:
    """Make standard output and error patient while the block runs; at its end say once if a text was lost."""
    kept = sys.stdout, sys.stderr
    # A stream that was closed before the start is None, and nothing is printed there.
    out, err = (None if stream is None else PatientStream(stream) for stream in kept)
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        for stream in (out, err):
            if stream is not None:
                stream.flush()
        if out is not None and out.failure is not None and err is not None:
            err.write(f"stau-rl: standard output cannot be written: {out.failure.strerror}\n")
            err.flush()
        sys.stdout, sys.stderr = kept
