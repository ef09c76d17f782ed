"""The committed rows behind docs/attention.md: where they lie, how a run becomes them, how they are picked out."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stau_rl.files.finished import TIMING, write_table
from stau_rl.pages.attention_asked import ROWS as CLAIMS
from stau_rl.pages.attention_asked import WHY, Asked
from stau_rl.pages.paths import RESULTS
from stau_rl.pages.trained_claims import TrainedScores
from stau_rl.pages.trained_scores import HEADS
from stau_rl.probe.folder import GROUPS, TABLE, read_probe
from stau_rl.probe.metrics import METRICS
from stau_rl.probe.summary import GOOD_HIGH

ROWS, MAPS, MASSES, SECONDS = (f"attention_{name}.csv" for name in ("rows", "maps", "masses", "timing"))
TAUS = "tau_star.csv"
MAPPED = ("sm_fir", "softmax_off_by_one_fir", "pn_fir_c", "pn_fir_tau_calibrated", "pn_fir_tau_hill_calibrated")
"""Normalisers whose weights and masses are shown, in the silence task."""


def publish(folder: Path, results: Path = RESULTS, commit: str = "") -> None:
    """Write the rows, examples, masses and times of a finished probe where the page reads them.

    Args:
        folder: of the probe.
        results: where the page reads.
        commit: what made the rows, for those made where no checkout could tell.

    Raises:
        OSError: the folder holds no finished probe.
        ValueError: it holds nothing of what the page shows.
    """
    rows = read_probe(folder / TABLE)
    # Ten digits are more than five seeds can settle; five keep the file small.
    rows = rows.drop(columns=["group"]).round(dict.fromkeys(METRICS, 5))
    if commit:
        rows["commit"] = rows["commit"].where(rows["commit"] != "unknown", commit)
    maps = list(_maps(folder, "weights", ("normaliser", "query", "place", "weight")))
    if not maps:
        raise ValueError(f"{folder} holds none of {', '.join(MAPPED)} in the silence task, which the page shows")
    masses = pd.concat(_maps(folder, "masses", ("normaliser", "absent", "bin", "count")))
    seconds = sum(json.loads((folder / TIMING).read_text(encoding="utf-8")).values())
    timing = pd.DataFrame([{"seconds": round(seconds), "device": rows["device"].iloc[0]}])
    # All is read before anything is written.
    for name, table in ((ROWS, rows), (MAPS, pd.concat(maps)), (MASSES, masses), (SECONDS, timing)):
        write_table(results / name, table)


def _maps(folder: Path, kind: str, columns: tuple[str, ...]) -> Iterator[pd.DataFrame]:
    """One array of a probe's silence task as long rows, for the normalisers that are shown."""
    found: dict[str, Any] = {}
    for path in sorted((folder / GROUPS).glob("silence-*.npz")):
        with np.load(path) as stored:
            found |= dict(zip(stored["normalisers"].tolist(), stored[kind], strict=True))
    for name in MAPPED:
        if name in found:
            places = np.indices(found[name].shape).reshape(2, -1)
            values = (name, *places, found[name].ravel())
            yield pd.DataFrame(dict(zip(columns, values, strict=True)))


@dataclass(frozen=True, slots=True)
class AttentionData:
    """The rows of the page.

    Attributes:
        rows: a row per setting, normaliser, seed and length.
        maps: weights of example queries in the silence task.
        masses: how row masses are spread in the silence task.
        timing: one row: seconds, device.
        taus: a row per head of `stau_rl.pages.tau_star`; None where there are none.
        trained: the rows of `stau_rl.pages.trained_scores`; None where there are none.
        asked: the rows of what authors claim; None where there are none.
    """

    rows: pd.DataFrame
    maps: pd.DataFrame
    masses: pd.DataFrame
    timing: pd.DataFrame
    taus: pd.DataFrame | None = None
    trained: TrainedScores | None = None
    asked: Asked | None = None
    _places: dict[Any, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Where the rows of each setting, normaliser and length lie: a page asks for them a thousand times."""
        keys = ["part", "task", "normaliser", "factor"]
        object.__setattr__(self, "_places", self.rows.groupby(keys, sort=False).indices)

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "AttentionData":
        """Read the committed CSV files."""
        maps, masses, timing = (pd.read_csv(folder / name) for name in (MAPS, MASSES, SECONDS))
        taus = pd.read_csv(folder / TAUS) if (folder / TAUS).is_file() else None
        trained = TrainedScores.load(folder) if (folder / HEADS).is_file() else None
        there = all((folder / name).is_file() for name in (CLAIMS, WHY))
        asked = Asked.load(folder) if there else None
        return cls(read_probe(folder / ROWS), maps, masses, timing, taus, trained, asked)

    def tasks(self, part: str) -> list[str]:
        """The tasks of a part of the plan, in its order."""
        return list(self.rows.loc[self.rows["part"] == part, "task"].unique())

    def normalisers(self, part: str, task: str) -> list[str]:
        """The normalisers of a setting, in its order."""
        mine = (self.rows["part"] == part) & (self.rows["task"] == task)
        return list(self.rows.loc[mine, "normaliser"].unique())

    def seeds(self, part: str, task: str, normaliser: str, factor: int = 1) -> pd.DataFrame:
        """The rows of one normaliser in one setting, a row per seed; empty if it is not there."""
        return self.rows.iloc[self._places.get((part, task, normaliser, factor), [])]

    def median(self, metric: str, part: str, task: str, normaliser: str, factor: int = 1) -> float:
        """Median over seeds; nan if there are none."""
        values = self._known(metric, part, task, normaliser, factor)
        return float(np.median(values)) if len(values) else np.nan

    def worst(self, metric: str, part: str, task: str, normaliser: str, factor: int = 1) -> float:
        """The worst seed; nan if there are none."""
        values = self._known(metric, part, task, normaliser, factor)
        if not len(values):
            return np.nan
        return float(values.min() if metric in GOOD_HIGH else values.max())

    def _known(self, metric: str, part: str, task: str, normaliser: str, factor: int) -> NDArray[np.float64]:
        places = self._places.get((part, task, normaliser, factor), np.zeros(0, dtype=np.intp))
        values = self.rows[metric].to_numpy(dtype=np.float64)[places]
        return values[~np.isnan(values)]
