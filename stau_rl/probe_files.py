"""The folder of a probe: two files for each group of models that were trained together, so that nothing is done twice.

| file | what it holds |
| --- | --- |
| `groups/*.csv` | a row per normaliser, seed and length of one group; written last, so a group that has it is whole |
| `groups/*.npz` | example rows of attention weights, and how the row masses are spread |
| `probe.csv` | all rows, in the order of the plan |
| `summary.csv` | median, worst seed and interval of every metric |
| `*.png` | attention maps and histograms of row mass |
| `timing.json` | seconds of each group: the only file that differs between two runs |

Every file is written whole or not at all.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stau_rl.atomic import whole_file, write_json
from stau_rl.damaged import DAMAGED
from stau_rl.lock import DirectoryLock
from stau_rl.probe_metrics import METRICS
from stau_rl.study_files import write_rows

GROUPS, TABLE, SUMMARY, TIMING = "groups", "probe.csv", "summary.csv", "timing.json"
TEXTS = ("part", "task", "normaliser", "spec", "learned", "positions", "device", "versions", "commit", "group")
NUMBERS = ("seed", "factor", "length", "steps", "batch", "rate", "width", "layers", "items", "first_dead")
COLUMNS = (*TEXTS, *NUMBERS, *METRICS)
Maps = dict[str, NDArray[Any]]


class ProbeFolder:
    """The folder of one probe; use it in a `with` block, which locks it against other processes.

    Args:
        path: the folder; created if it is not there.
        resume: it may hold finished groups, which are then not trained again.

    Raises:
        ValueError: the folder holds groups and `resume` is not set, is a file, is in use, or cannot be written.
    """

    def __init__(self, path: str | Path, resume: bool = False) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file, not a folder for a probe")
        if not resume and any(self.path.glob(f"{GROUPS}/*.csv")):
            raise ValueError(f"{self.path} holds a probe; pass --resume to go on with it, or name another folder")
        self._lock = DirectoryLock(self.path)

    def __enter__(self) -> "ProbeFolder":
        """Create and lock the folder."""
        try:
            (self.path / GROUPS).mkdir(parents=True, exist_ok=True)
            self._lock.take()
        except OSError as error:
            raise ValueError(f"{self.path} cannot be used: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Let other processes have the folder."""
        self._lock.release()

    def read(self, group: str) -> tuple[pd.DataFrame, Maps] | None:
        """Rows and maps of a finished group; None where it is not there, or not whole."""
        try:
            rows = read_probe(self.path / GROUPS / f"{group}.csv")
            # A file of our own, as numpy leaves its one open where it cannot read it.
            with (self.path / GROUPS / f"{group}.npz").open("rb") as file, np.load(file) as stored:
                maps = {name: stored[name] for name in stored.files}
        except (OSError, *DAMAGED):
            return None
        whole = list(rows.columns) == list(COLUMNS) and len(rows) and bool((rows["group"] == group).all())
        return (rows, maps) if whole else None

    def write(self, group: str, rows: pd.DataFrame, maps: Maps, seconds: float) -> None:
        """Keep a finished group."""
        write_json(self.path / TIMING, {**self.timing(), group: round(seconds, 2)})
        # Written through a file object: numpy would add an ending to the temporary name.
        with whole_file(self.path / GROUPS / f"{group}.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **maps)
        write_rows(self.path / GROUPS / f"{group}.csv", rows)

    def timing(self) -> dict[str, float]:
        """Seconds of every group trained in this folder."""
        try:
            found = json.loads((self.path / TIMING).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def read_probe(path: Path) -> pd.DataFrame:
    """Read rows that were written as CSV; texts stay texts where they are empty.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no table.
    """
    table = pd.read_csv(path, dtype=dict.fromkeys(TEXTS, str))
    for name in TEXTS:
        if name in table:
            table[name] = table[name].fillna("")
    return table
