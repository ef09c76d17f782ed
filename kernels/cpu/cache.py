"""Compiled code on the disk: used only as it was left, built anew where it is damaged or someone else's.

Numba keeps an index and machine code of each loop and believes whatever it finds there. Beside the loop's text lies a
seal, the digests of those files; what the seal does not know is removed before Numba looks.
"""

import hashlib
import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

_SEEN: dict[str, list[tuple[str, int, int]]] = {}


def put_text(path: Path, text: str) -> None:
    """Have the file hold exactly this text; written whole, and left alone where it does.

    Raises:
        OSError: it cannot be written.
    """
    with suppress(OSError):
        if not path.is_symlink() and path.read_bytes() == text.encode():
            return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    try:
        os.replace(file.name, path)
    except OSError:
        os.unlink(file.name)
        raise


def import_text(name: str, path: Path, text: str) -> ModuleType:
    """A module made of the text, which the file holds too; what is run is never read from the disk."""
    module = ModuleType(name)
    module.__file__ = str(path)
    # Numba unpickles cached code by module name.
    sys.modules[name] = module
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def remove_unsealed(play: Any) -> None:
    """Remove a loop's compiled code unless all of it is as its seal says."""
    files, seal = _files(play), _seal(play)
    if not files or seal is None:
        return
    with suppress(OSError, ValueError):
        if json.loads(seal.read_text(encoding="utf-8")) == _digests(files):
            return
    for file in files:
        with suppress(OSError):
            file.unlink()


def seal(play: Any) -> None:
    """Write the seal of a loop that has been compiled or loaded, unless nothing has changed since the last time."""
    files, path = _files(play), _seal(play)
    if not files or path is None:
        return
    with suppress(OSError):
        found = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        if _SEEN.get(path.name) != found:
            put_text(path, json.dumps(_digests(files)))
            _SEEN[path.name] = found


def _files(play: Any) -> list[Path]:
    """Index and machine code of a loop."""
    folder = getattr(getattr(play, "stats", None), "cache_path", None)
    return sorted(Path(folder).glob(f"{play.__module__}.*.nb[ic]")) if folder else []


def _seal(play: Any) -> Path | None:
    file = getattr(sys.modules.get(play.__module__), "__file__", None)
    return Path(file).with_suffix(".seal") if file else None


def _digests(files: list[Path]) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
