"""The committed rows of what authors claim of attention heads: the parts of `stau_rl.probe.claims_plan`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from stau_rl.files.finished import TIMING, write_table
from stau_rl.pages.attention_claims import SILENCE_BOUNDS
from stau_rl.pages.paths import RESULTS
from stau_rl.probe.folder import GROUPS, read_probe
from stau_rl.probe.metrics import METRICS
from stau_rl.statistics.means import mean_interval, wilson_interval

ROWS, SECONDS = "attention_claims.csv", "attention_claims_timing.csv"


def publish(folders: Sequence[Path], results: Path = RESULTS) -> None:
    """Write the finished groups of some probes where the page reads them.

    Args:
        folders: of probes of `claims_plan`, finished or not.
        results: where the page reads.

    Raises:
        OSError: a folder cannot be read.
        ValueError: there is no finished group.
    """
    tables = [read_probe(path) for folder in folders for path in sorted((folder / GROUPS).glob("*.csv"))]
    if not tables:
        raise ValueError(f"no finished groups in {', '.join(map(str, folders))}")
    rows = pd.concat(tables, ignore_index=True).drop(columns=["group"]).round(dict.fromkeys(METRICS, 5))
    rows = rows.drop_duplicates(["part", "task", "normaliser", "seed", "factor"], keep="last")
    took = [sum(json.loads((folder / TIMING).read_text(encoding="utf-8")).values()) for folder in folders]
    timing = pd.DataFrame({"seconds": [round(sum(took))], "device": [rows["device"].iloc[0]]})
    for name, table in ((ROWS, rows), (SECONDS, timing)):
        write_table(results / name, table)


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows.

    Attributes:
        rows: a row per part, normaliser, seed and length.
        timing: one row: seconds summed over groups, some of which ran side by side, and the device.
    """

    rows: pd.DataFrame
    timing: pd.DataFrame

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "Asked":
        """Read the committed CSV files."""
        return cls(read_probe(folder / ROWS), pd.read_csv(folder / SECONDS))

    def of(self, part: str, normaliser: str | None = None, factor: int = 1, **equal: object) -> pd.DataFrame:
        """The rows of a part, or of all parts that begin so, perhaps of one normaliser, at one length."""
        rows = self.rows[self.rows["part"].str.startswith(part) & (self.rows["factor"] == factor)]
        if normaliser is not None:
            rows = rows[rows["normaliser"] == normaliser]
        for column, value in equal.items():
            rows = rows[rows[column] == value]
        return rows

    def names(self, part: str) -> list[str]:
        """The normalisers of a part, in its order."""
        return list(self.of(part)["normaliser"].unique())


def passes(rows: pd.DataFrame) -> tuple[int, int]:
    """How many seeds meet all that is expected of silence, of how many."""
    good = pd.Series(True, index=rows.index)
    for metric, (low, high) in SILENCE_BOUNDS.items():
        good &= (rows[metric] >= low) & (rows[metric] <= high)
    return int(good.sum()), len(rows)


def share_text(held: int, of: int) -> str:
    """`35 of 40 [.74, .95]`: a number of seeds and the interval of its share (Wilson)."""
    low, high = wilson_interval(held, of)
    return f"{held} of {of} [{low:.2f}, {high:.2f}]"


def mean_text(values: "pd.Series[float]", digits: int = 3) -> str:
    """Mean over seeds with its 95 % interval."""
    found = mean_interval(values.to_numpy())
    if found.low == found.high:
        return f"{found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f} [{max(0.0, found.low):.{digits}f}, {min(1.0, found.high):.{digits}f}]"


def gate(name: str, start: float | None, norm: str = "l1") -> str:
    """Text of a head of the part `gates`: a gate, the start of the learned threshold or None for one fixed at 0."""
    if start is None:
        return f"pn_fir(gate={name}, fir_norm={norm})"
    return f"pn_fir_tau(gate={name}, threshold={start:g}, fir_norm={norm})"
