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
SHARED = ("updates", "within", "seed", "setting", "commit", "versions", "device")
TEXTS = ("kind", "start", "gradient", "method", "edge", "setting", "commit", "versions", "device")
DIGITS = 8


class PlateauFolder(FinishedFolder):
    """The folder of one plateau benchmark; its pieces are cells, by `Cell.file_name`."""

    made_for, holds, pieces = "a plateau benchmark", "a benchmark", CELLS
    tables = (TABLE, CURVES, FIGURE)

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
    for name, part in zip((TABLE, CURVES), split_rows(rows), strict=True):
        write_table(folder / name, part, DIGITS)


def split_rows(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of `plateau.csv` and of `plateau_curves.csv`, with their columns."""
    curve = rows["kind"] == "curve"
    return rows[~curve].drop(columns=["step", "gap_q10", "gap_q50", "gap_q90"]), rows.loc[curve, list(CURVE_COLUMNS)]


def read_tables(folder: Path) -> pd.DataFrame:
    """All rows of a finished benchmark, in the order in which its cells were played.

    Raises:
        OSError: a table is not there.
        ValueError: a table is damaged.
    """
    rows, curves = read_rows(folder / TABLE), read_rows(folder / CURVES)
    keys = ["arms", "start", "gradient", "method"]
    # What curves share with the rest of their cell is written once.
    shared = rows.loc[rows["kind"] == "best", [name for name in COLUMNS if name in keys or name in SHARED]]
    curves = curves.assign(kind="curve").merge(shared, on=keys, validate="many_to_one")
    tables = [table.dropna(axis=1, how="all") for table in (rows, curves)]
    places = {setting: place for place, setting in enumerate(dict.fromkeys(rows["setting"]))}
    found = pd.concat(tables, ignore_index=True).reindex(columns=list(COLUMNS))
    order = found["setting"].map(places).argsort(kind="stable")
    return found.iloc[order].assign(edge=found["edge"].fillna("")).reset_index(drop=True)


def read_rows(path: Path) -> pd.DataFrame:
    """Read the tables of a plateau's folder; texts stay texts where they look like numbers or are empty.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it is no such table.
    """
    return read_table(path, TEXTS)
