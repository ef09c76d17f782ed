"""The committed rows of the parts of `stau_rl.probe.claims_plan`: how runs become them, how they are picked out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stau_rl.files.finished import read_timing, write_table
from stau_rl.pages.paths import RESULTS
from stau_rl.probe.folder import GROUPS, TABLE, read_probe
from stau_rl.probe.metrics import METRICS

ROWS, SECONDS, WHY = "attention_claims.csv", "attention_claims_timing.csv", "lssar_training.csv"
KEYS = ["part", "task", "normaliser", "seed", "factor"]


def publish_claims(folders: Sequence[Path], results: Path = RESULTS) -> None:
    """Add the finished groups of probes to the committed rows; rows of the same model are replaced, all others stay.

    Args:
        folders: of probes of parts of `claims_plan`, finished or stopped.
        results: where the page reads.

    Raises:
        OSError: a folder cannot be read.
        ValueError: a folder has no finished group.
    """
    tables = [read_probe(results / ROWS)] if (results / ROWS).is_file() else []
    seconds = dict(pd.read_csv(results / SECONDS)[["part", "seconds"]].to_numpy()) if tables else {}
    for folder in folders:
        whole = folder / TABLE
        paths = [whole] if whole.is_file() else sorted((folder / GROUPS).glob("*.csv"))
        if not paths:
            raise ValueError(f"{folder} has no finished group; name a folder that `stau-rl probe --out` has filled")
        fresh = pd.concat([read_probe(path) for path in paths])
        tables.append(fresh.drop(columns=["group"]).round(dict.fromkeys(METRICS, 5)))
        took = read_timing(folder)
        for part, groups in fresh.groupby("part", sort=False)["group"]:
            seconds[part] = round(sum(took.get(str(group), 0.0) for group in groups.unique()))
    rows = pd.concat(tables, ignore_index=True).drop_duplicates(KEYS, keep="last")
    timing = pd.DataFrame({"part": list(seconds), "seconds": list(seconds.values())})
    timing["device"] = [rows.loc[rows["part"] == part, "device"].iloc[0] for part in seconds]
    for name, table in ((ROWS, rows), (SECONDS, timing)):
        write_table(results / name, table)


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows.

    Attributes:
        rows: a row per part, normaliser, seed and length.
        timing: a row per part: seconds of its groups, some of which shared a device, and the device.
        why: the rows of `stau_rl.pages.lssar_training`.
    """

    rows: pd.DataFrame
    timing: pd.DataFrame
    why: pd.DataFrame
    _places: dict[Any, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Where the rows of each part, normaliser and length lie."""
        object.__setattr__(self, "_places", self.rows.groupby(["part", "normaliser", "factor"], sort=False).indices)

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "Asked":
        """Read the committed CSV files."""
        return cls(read_probe(folder / ROWS), pd.read_csv(folder / SECONDS), pd.read_csv(folder / WHY))

    def of(self, part: str, normaliser: str | None = None, factor: int = 1, task: str | None = None) -> pd.DataFrame:
        """Rows of a part, or of every part that goes on after a comma, at one length, a row per model."""
        places = [
            found
            for (of, name, length), found in self._places.items()
            if f"{of},".startswith(f"{part},") and length == factor and normaliser in (None, name)
        ]
        rows = self.rows.iloc[np.sort(np.concatenate(places))] if places else self.rows.iloc[:0]
        return rows if task is None else rows[rows["task"] == task]

    def values(
        self, metric: str, part: str, normaliser: str, factor: int = 1, task: str | None = None
    ) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """One metric of each model, in the order of seeds.

        Raises:
            ValueError: there are no such rows.
        """
        found = self.of(part, normaliser, factor, task).sort_values("seed")[metric].to_numpy(dtype=np.float64)
        if not len(found):
            raise ValueError(f"attention_claims.csv has no rows of {normaliser} in {part!r} at {factor}x; publish them")
        return found

    def names(self, part: str) -> list[str]:
        """The normalisers of a part, in its order."""
        return list(self.of(part)["normaliser"].unique())

    def trained(self, head: str, asked: str = "", steps: int = 1000) -> pd.DataFrame:
        """Rows of the small study: models trained with one head, asked with the same or another."""
        why = self.why
        return why[(why["trained"] == head) & (why["asked"] == (asked or head)) & (why["steps"] == steps)]
