"""Files that are written whole or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SUFFIX = ".tmp"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on leaving, what was written there becomes `path` at once.

    The temporary file is flushed to the disk before it takes the name, so that a crash leaves the old file
    or the new one. If the body or the flush fails, it is removed and the old file stays.

    Args:
        path: the file to write.

    Yields:
        The temporary path, in the same folder (a rename does not cross file systems).

    Raises:
        OSError: the folder is not writable, or the disk is full; it names a file.
    """
    temporary = temporary_of(path)
    try:
        yield temporary
        put_in_place(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # A full disk is met while writing, where the system names no file.
            error.filename = str(path)
        raise


def refuse_link(folder: Path) -> None:
    """Raise a ValueError where a folder that is to hold our files is a symbolic link.

    What lies behind it may be anyone's, and files there would be written and removed.
    """
    if folder.is_symlink():
        raise ValueError(
            f"{folder} is a symbolic link to {os.readlink(folder)}, and files behind it are not touched; "
            "remove the link, or name another folder"
        )


def refuse_undecodable(path: Path) -> None:
    """Raise a ValueError where a path has bytes that are not UTF-8: some files of ours could not be written there."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"the path {str(path)!a} has bytes that are not UTF-8; name another") from None


def temporary_of(path: Path) -> Path:
    """Where a file is written before it takes its name; in the same folder, as a rename does not cross file systems.

    A link that stands there goes: written through it, a file elsewhere would be lost.
    """
    temporary = path.with_name(f".{path.name}{SUFFIX}")
    if temporary.is_symlink():
        temporary.unlink()
    return temporary


def put_in_place(temporary: Path, path: Path) -> None:
    """Flush a finished file to the disk, then give it its name at once.

    Raises:
        OSError: the folder is not writable, or the disk is full.
    """
    _flush(temporary)
    os.replace(temporary, path)
    _flush(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all.

    Raises:
        ValueError: the value holds nan or an infinity.
        TypeError: the value is not JSON-able.
        OSError: as `whole_file`.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _flush(path: Path) -> None:
    """Have the kernel put a file's content, or a folder's names, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
