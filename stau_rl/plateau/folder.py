"""The folder of a plateau benchmark: a CSV per finished cell, so that an interrupted one goes on where it stopped.

| file | what it holds |
| --- | --- |
| `cells/*.csv` | the rows of one cell each; the name carries a digest of everything that decides them |
| `plateau.csv` | rows of kind `grid` and `best` of all cells that were asked for |
| `plateau_curves.csv` | their rows of kind `curve` |
| `plateau.png` | the curves |
| `timing.json` | seconds of each cell: the only file that differs between two runs on one machine |
"""

from pathlib import Path

import pandas as pd

from stau_rl.files.finished import FinishedFolder, keep_seconds, read_table, write_table
from stau_rl.plateau.cell import COLUMNS, Cell

CELLS, TABLE, CURVES, FIGURE = "cells", "plateau.csv", "plateau_curves.csv", "plateau.png"
CURVE_COLUMNS = ("arms", "start", "gradient", "method", "step_size", "draws", "step", "gap_q10", "gap_q50", "gap_q90")
TEXTS = ("kind", "start", "gradient", "method", "edge", "setting", "commit", "versions", "device")
DIGITS = 8


class PlateauFolder(FinishedFolder):
    """The folder of one plateau benchmark; its pieces are cells, by `Cell.file_name`."""

    made_for, holds, pieces = "a plateau benchmark", "a benchmark", CELLS

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
        keep_seconds(self.path, cell.file_name, seconds)
        write_table(self.path / CELLS / cell.file_name, rows, DIGITS)
        return read_rows(self.path / CELLS / cell.file_name)

    def finish(self, rows: pd.DataFrame) -> None:
        """Write the tables of all cells."""
        write_tables(rows, self.path)


def write_tables(rows: pd.DataFrame, folder: Path) -> None:
    """Write `plateau.csv` and `plateau_curves.csv` into a folder."""
    curve = rows["kind"] == "curve"
    write_table(folder / TABLE, rows[~curve].drop(columns=["step", "gap_q10", "gap_q50", "gap_q90"]), DIGITS)
    write_table(folder / CURVES, rows.loc[curve, list(CURVE_COLUMNS)], DIGITS)


def read_rows(path: Path) -> pd.DataFrame:
    """Read the tables of a plateau's folder; texts stay texts where they look like numbers or are empty.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it is no such table.
    """
    return read_table(path, TEXTS)
