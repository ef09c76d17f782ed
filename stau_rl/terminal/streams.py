"""Standard streams that never end a run: what they cannot encode is replaced, and what nobody reads is let go."""

import codecs
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EPIPE
from io import TextIOBase
from typing import Any, TextIO


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
        if _refuses(stream) and hasattr(stream, "reconfigure"):
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


def _refuses(stream: Any) -> bool:
    """Whether there are characters that a stream fails on."""
    errors, encoding = getattr(stream, "errors", None), getattr(stream, "encoding", None) or "ascii"
    # What Python gives a stream in the locale C; in UTF-8 it loses nothing, in ASCII it fails on all other letters.
    return errors == "strict" or (errors == "surrogateescape" and codecs.lookup(encoding).name != "utf-8")


def _nowhere() -> TextIO:
    """A stream for one that was closed before the start, of which Python has None.

    Parsers ask any stream whether it is a terminal. And it takes the place of the descriptor that was closed: a file of
    ours that had it would get whatever a library writes there.
    """
    descriptor = os.open(os.devnull, os.O_WRONLY)
    # Workers get it as they would get the closed one.
    os.set_inheritable(descriptor, descriptor <= 2)
    return open(descriptor, "w", encoding="utf-8", errors="replace")


@contextmanager
def patient_streams() -> Iterator[None]:
    """Make standard output and error patient while the block runs; at its end say once if a text was lost."""
    kept = sys.stdout, sys.stderr
    opened = [_nowhere() if stream is None else None for stream in kept]
    out, err = (PatientStream(stream or other) for stream, other in zip(kept, opened, strict=True))
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        for stream in (out, err):
            stream.flush()
        if out.failure is not None:
            err.write(f"stau-rl: standard output cannot be written: {out.failure.strerror}\n")
            err.flush()
        sys.stdout, sys.stderr = kept
        for other in opened:
            if other is not None:
                other.close()
