"""The folder of a probe: two files for each group of models that were trained together, so that nothing is done twice.

| file | what it holds |
| --- | --- |
| `groups/*.csv` | a row per normaliser, seed and length of one group; written last, so a group that has it is whole |
| `groups/*.npz` | example rows of attention weights, how the row masses are spread, learning curves |
| `probe.csv` | all rows, in the order of the plan |
| `summary.csv` | median, worst seed and interval of every metric |
| `curves.csv` | loss and share of right answers of every model, at a hundred steps of its training |
| `*.png` | attention maps, histograms of row mass, learning curves |
| `timing.json` | seconds of each group: the only file that differs between two runs |

Every file is written whole or not at all.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stau_rl.files.archives import DAMAGED
from stau_rl.files.finished import FinishedFolder, keep_seconds, read_table, write_table
from stau_rl.files.whole import whole_file
from stau_rl.probe.metrics import METRICS

GROUPS, TABLE, SUMMARY, CURVES = "groups", "probe.csv", "summary.csv", "curves.csv"
TEXTS = (
    "part",
    "task",
    "normaliser",
    "spec",
    "learned",
    "positions",
    "device",
    "versions",
    "commit",
    "group",
    "tested",
)
NUMBERS = ("seed", "factor", "length", "steps", "batch", "rate", "width", "layers", "heads", "items", "first_dead")
COLUMNS = (*TEXTS, *NUMBERS, *METRICS)
Maps = dict[str, NDArray[Any]]


class ProbeFolder(FinishedFolder):
    """The folder of one probe; its pieces are groups of models that were trained together, by name."""

    made_for, holds, pieces = "a probe", "a probe", GROUPS
    tables = (TABLE, SUMMARY, CURVES, "maps-*.png", "masses-*.png", "curves-*.png")

    def groups(self) -> set[str]:
        """Names of the groups that are there, whole or not."""
        return {path.stem for path in (self.path / GROUPS).glob("*.csv")}

    def read(self, group: str) -> tuple[pd.DataFrame, Maps] | None:
        """Rows and maps of a finished group; None where it is not there, or not whole."""
        return read_group(self.path, group)

    def write(self, group: str, rows: pd.DataFrame, maps: Maps, seconds: float | None = None) -> None:
        """Keep a finished group, and the seconds it took where they are known."""
        if seconds is not None:
            keep_seconds(self.path, group, seconds)
        # Written through a file object: numpy would add an ending to the temporary name.
        with whole_file(self.path / GROUPS / f"{group}.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **maps)
        write_table(self.path / GROUPS / f"{group}.csv", rows)


def read_group(folder: Path, group: str) -> tuple[pd.DataFrame, Maps] | None:
    """Rows and maps of a finished group in a folder; None where it is not there, or not whole."""
    try:
        rows = read_probe(folder / GROUPS / f"{group}.csv")
        # A file of our own, as numpy leaves its one open where it cannot read it.
        with (folder / GROUPS / f"{group}.npz").open("rb") as file, np.load(file) as stored:
            maps = {name: stored[name] for name in stored.files}
    except (OSError, *DAMAGED):
        return None
    whole = list(rows.columns) == list(COLUMNS) and len(rows) and bool((rows["group"] == group).all())
    return (rows, maps) if whole else None


def read_probe(path: Path) -> pd.DataFrame:
    """Read rows that were written as CSV; texts stay texts where they are empty.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no table.
    """
    return read_table(path, TEXTS)
