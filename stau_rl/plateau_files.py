"""The folder of a plateau benchmark: a CSV per finished cell, so that an interrupted one goes on where it stopped.

| file | what it holds |
| --- | --- |
| `cells/*.csv` | the rows of one cell each; the name carries a digest of everything that decides them |
| `plateau.csv` | rows of kind `grid` and `best` of all cells that were asked for |
| `plateau_curves.csv` | their rows of kind `curve` |
| `plateau.png` | the curves |
| `timing.json` | seconds of each cell: the only file that differs between two runs on one machine |
"""

import json
from pathlib import Path

import pandas as pd

from stau_rl.atomic import whole_file, write_json
from stau_rl.lock import DirectoryLock
from stau_rl.plateau_cell import COLUMNS, Cell

CELLS, TABLE, CURVES, FIGURE, TIMING = "cells", "plateau.csv", "plateau_curves.csv", "plateau.png", "timing.json"
CURVE_COLUMNS = ("arms", "start", "gradient", "method", "step_size", "draws", "step", "gap_q10", "gap_q50", "gap_q90")
TEXTS = ("kind", "start", "gradient", "method", "edge", "setting", "commit", "versions", "device")
DIGITS = 8


class PlateauFolder:
    """The folder; use it in a `with` block, which locks it against other processes.

    Args:
        path: the folder; created if it is not there.
        resume: it may hold finished cells, which are then not played again.

    Raises:
        ValueError: the folder holds cells and `resume` is not set, is a file, is in use, or cannot be written.
    """

    def __init__(self, path: str | Path, resume: bool = False) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file, not a folder for a plateau benchmark")
        if not resume and any(self.path.glob(f"{CELLS}/*.csv")):
            raise ValueError(f"{self.path} holds a benchmark; pass --resume to go on with it, or name another folder")
        self._lock = DirectoryLock(self.path)

    def __enter__(self) -> "PlateauFolder":
        """Create and lock the folder."""
        try:
            (self.path / CELLS).mkdir(parents=True, exist_ok=True)
            self._lock.take()
        except OSError as error:
            raise ValueError(f"{self.path} cannot be used: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Let other processes have the folder."""
        self._lock.release()

    def read(self, cell: Cell) -> pd.DataFrame | None:
        """The rows of a finished cell; None where it is not there, or not whole."""
        try:
            table = read_rows(self.path / CELLS / cell.file_name)
        except (FileNotFoundError, ValueError):
            return None
        whole = list(table.columns) == list(COLUMNS) and len(table) and bool((table["setting"] == cell.identity).all())
        return table if whole else None

    def write(self, cell: Cell, rows: pd.DataFrame, seconds: float) -> pd.DataFrame:
        """Keep a cell's rows and how long they took; what is returned is what `read` will give."""
        write_json(self.path / TIMING, {**self.timing(), cell.file_name: round(seconds, 2)})
        write_rows(self.path / CELLS / cell.file_name, rows)
        return read_rows(self.path / CELLS / cell.file_name)

    def timing(self) -> dict[str, float]:
        """Seconds of every cell played in this folder, by the name of its file."""
        try:
            return dict(json.loads((self.path / TIMING).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return {}

    def finish(self, rows: pd.DataFrame) -> None:
        """Write the tables of all cells."""
        write_tables(rows, self.path)


def write_tables(rows: pd.DataFrame, folder: Path) -> None:
    """Write `plateau.csv` and `plateau_curves.csv` into a folder."""
    curve = rows["kind"] == "curve"
    write_rows(folder / TABLE, rows[~curve].drop(columns=["step", "gap_q10", "gap_q50", "gap_q90"]))
    write_rows(folder / CURVES, rows.loc[curve, list(CURVE_COLUMNS)])


def write_rows(path: Path, rows: pd.DataFrame) -> None:
    """Write a table as CSV, whole or not at all."""
    with whole_file(path) as temporary:
        rows.to_csv(temporary, index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")


def read_rows(path: Path) -> pd.DataFrame:
    """Read what `write_rows` wrote; texts stay texts where they look like numbers or are empty.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it is no such table.
    """
    table = pd.read_csv(path, dtype=dict.fromkeys(TEXTS, str))
    for name in TEXTS:
        if name in table:
            table[name] = table[name].fillna("")
    return table
