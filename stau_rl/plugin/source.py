"""Where the code of a plug-in comes from, so that one's code can be told from another's."""

import hashlib
import inspect
import marshal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

# In a module loaded from a file: the hash of the very bytes that were run.
FILE_HASH = "__plugin_sha256__"
# Packages whose classes are nobody's own.
OURS = ("stau_rl", "builtins", "typing", "abc")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the code of a plug-in comes from; equal for equal code at the same place.

    Attributes:
        file: the file, or what Python calls the place if there is none.
        line: the first line of the function in the file; 0 if there is no file.
        sha256: hash of the whole file, or of the function where there is none.
        module: name of the module that the file became, which may differ from import to import.
    """

    file: str
    line: int
    sha256: str
    module: str = field(compare=False)

    @property
    def cache_key(self) -> str | None:
        """What compiled code may be kept under; None where other code that it uses might change unseen.

        Kept machine code looks its functions up by module, so the same text under another name is other code.
        """
        return f"{self.sha256} {self.file} {self.module}" if self.line else None


def source_of(function: Callable[..., Any]) -> Source:
    """Where a function comes from."""
    code = function.__code__
    path = Path(code.co_filename)
    known = function.__globals__.get(FILE_HASH)
    if known is not None or path.is_file():
        digest = known or hashlib.sha256(path.read_bytes()).hexdigest()
        return Source(str(path.resolve()), code.co_firstlineno, digest, function.__module__)
    try:
        text = inspect.getsource(function).encode()
    except OSError:
        text = marshal.dumps(code)
    return Source(f"<{function.__module__}>", 0, hashlib.sha256(text).hexdigest(), function.__module__)


def own_code(*objects: object) -> dict[str, str]:
    """SHA-256 of the code of every class of a user's own among some objects and their bases, by its name.

    A class that stands in a file counts with the whole file, as the functions of a plug-in do; one typed at a prompt or
    in a notebook counts with its own text. Heads of plug-ins are left out, as `plugin_hashes` has them.
    """
    kinds = dict.fromkeys(base for one in objects for base in type(one).__mro__)
    foreign = [kind for kind in kinds if kind.__module__.partition(".")[0] not in OURS]
    return {kind.__qualname__: _class_digest(kind) for kind in foreign if not hasattr(kind, "plugin")}


def _class_digest(kind: type) -> str:
    try:
        file = Path(inspect.getfile(kind))
    except (OSError, TypeError):
        file = Path()
    if file.is_file():
        return hashlib.sha256(file.read_bytes()).hexdigest()
    try:
        text = inspect.getsource(kind).encode()
    except (OSError, TypeError):
        text = b"".join(marshal.dumps(code) for value in vars(kind).values() if (code := _code_of(value)) is not None)
    return hashlib.sha256(text).hexdigest()


def _code_of(value: object) -> CodeType | None:
    """Code of a method or a property; None for what is neither."""
    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
