"""A folder of finished pieces of work, a file each: locked while in use, and gone on with after an interruption.

The plateau benchmark, the probe, the studies and a training keep their cells, groups, settings, runs and seeds in one
of their own kind.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd

from stau_rl.files.lock import DirectoryLock
from stau_rl.files.whole import refuse_link, refuse_undecodable, whole_file, write_json

TIMING = "timing.json"


class FinishedFolder:
    """The folder; use it in a `with` block, which locks it against other processes.

    Attributes:
        made_for: what such a folder is for, in a message.
        holds: what one with finished pieces holds, in a message.
        pieces: the folder in it that has their files.
        ending: how the names of their files end.
        tables: patterns of the names of what is made of the pieces, and is then replaced.

    Args:
        path: the folder; created if it is not there.
        resume: it may hold finished pieces, which are then not done again.
        replace: tables in it go where it holds no pieces, too.

    Raises:
        ValueError: the folder holds pieces and `resume` is not set, or files that would be lost, is a file, is in use,
            or cannot be written.
    """

    made_for: ClassVar[str]
    holds: ClassVar[str]
    pieces: ClassVar[str]
    ending: ClassVar[str] = "csv"
    tables: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: str | Path, resume: bool = False, replace: bool = False) -> None:
        self.path = Path(path)
        refuse_undecodable(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file, not a folder for {self.made_for}")
        refuse_link(self.path / self.pieces)
        if not resume and self.has_pieces:
            raise ValueError(f"{self.path} holds {self.holds}; pass --resume to go on with it, or name another folder")
        if not replace:
            self._refuse_loss()
        self._lock = DirectoryLock(self.path)

    def __enter__(self) -> Self:
        """Create and lock the folder."""
        try:
            (self.path / self.pieces).mkdir(parents=True, exist_ok=True)
            self._lock.take()
            self._begin()
        except OSError as error:
            raise ValueError(f"{self.path} cannot be used: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Let other processes have the folder."""
        self._lock.release()

    @property
    def has_pieces(self) -> bool:
        """Whether a piece is finished."""
        return any(self.path.glob(f"{self.pieces}/*.{self.ending}"))

    def _refuse_loss(self) -> None:
        """Refuse a folder whose tables come from elsewhere: without a piece, they were not made of pieces in it."""
        if self.has_pieces:
            return
        lost = sorted(file.name for pattern in self.tables for file in self.path.glob(pattern))
        # A process that was killed before its first piece may leave times, and these are added to.
        timing = self.path / TIMING
        if timing.exists() and not (timing.is_file() and read_timing(self.path)):
            lost.append(TIMING)
        if lost:
            raise ValueError(
                f"{self.path} holds {lost[0]}, which would be lost, and no finished piece of {self.made_for} to go on "
                "with; name another folder"
            )

    def _begin(self) -> None:
        """Write what is to be there before the first piece; the folder is locked."""


def read_timing(folder: Path) -> dict[str, float]:
    """Seconds of every piece that was done in a folder, by name; none where the file is missing or damaged."""
    try:
        found: Any = json.loads((folder / TIMING).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep_seconds(folder: Path, name: str, seconds: float) -> None:
    """Add the seconds of a piece to those of the folder."""
    write_json(folder / TIMING, {**read_timing(folder), name: round(seconds, 2)})


def write_table(path: Path, rows: pd.DataFrame, digits: int = 10) -> None:
    """Write rows as CSV, whole or not at all; numbers keep so many digits."""
    with whole_file(path) as temporary:
        temporary.write_text(_csv(rows, digits), encoding="utf-8", newline="")


def check_table(path: Path, rows: pd.DataFrame, digits: int = 10) -> None:
    """Make the folder of a table that is to be written; refuse to write over other rows than these.

    Raises:
        ValueError: the folder is a file or cannot be made, or the table is there and differs.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.read_bytes() if path.exists() else None
    except OSError as error:
        raise ValueError(f"{path.parent} cannot be used: {error.strerror or error}") from error
    if there is not None and there != _csv(rows, digits).encode():
        raise ValueError(f"{path.parent} holds another {path.name}; name another folder")


def _csv(rows: pd.DataFrame, digits: int) -> str:
    return rows.to_csv(index=False, float_format=f"%.{digits}g", lineterminator="\n")


def read_table(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """Read what `write_table` wrote; the columns `texts` stay texts where they look like numbers or are empty.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no table.
    """
    table = pd.read_csv(path, dtype=dict.fromkeys(texts, str))
    for name in texts:
        if name in table:
            table[name] = table[name].fillna("")
    return table
