"""The committed rows behind docs/claim.md: where they lie and how they are picked out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.pages.claim_settings import ARMS, BONUSES
from stau_rl.pages.paths import RESULTS
from stau_rl.study.folder import read_rows
from stau_rl.study.play import with_holm

COMPARISONS, CURVES, TIMING = "claim_comparisons.csv", "claim_curves.csv", "claim_timing.csv"
FAIR = ("slope", "entropy", "tuned")
"""Kinds of comparison in which neither head is sharper by choice of its parameter."""


@dataclass(frozen=True, slots=True)
class ClaimData:
    """The rows of the page.

    Attributes:
        comparisons: every row but those of curves, with `p_holm` over all settings of a kind of comparison.
        curves: regret of every tuning point.
        timing: one row: seconds, device, threads.
    """

    comparisons: pd.DataFrame
    curves: pd.DataFrame
    timing: pd.DataFrame

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "ClaimData":
        """Read the committed CSV files."""
        comparisons, curves = (read_rows(folder / name) for name in (COMPARISONS, CURVES))
        return cls(with_holm(comparisons), curves, pd.read_csv(folder / TIMING))

    def sweep(self, name: str, arms: str | None = None) -> list[str]:
        """The settings of a sweep, in the order played, by their `value`; those around some arms alone if given."""
        values = self.comparisons.loc[self.comparisons["sweep"] == name, "value"].unique()
        return [value for value in values if arms is None or value.startswith(f"{arms} ")]

    def row(self, sweep: str, value: str, comparison: str, head: str = "s_tau") -> dict[Any, Any]:
        """The row of one head in one setting and comparison.

        Raises:
            KeyError: there is none.
        """
        table = self.comparisons
        found = table[(table["sweep"] == sweep) & (table["value"] == value) & (table["comparison"] == comparison)]
        found = found[found["policy"].str.contains(head, regex=False)]
        if len(found) == 0:
            raise KeyError(f"no row of {head} for {comparison} at {sweep} {value}")
        return dict(found.iloc[0])

    def has(self, sweep: str, value: str, comparison: str) -> bool:
        """Whether `row` finds one for s^tau."""
        try:
            self.row(sweep, value, comparison)
        except KeyError:
            return False
        return True

    def edges(self) -> list[set[str]]:
        """In each main setting, at which ends of the grid (`low`, `high`) the best of either head lies."""
        found = []
        for row in self.main("tuned"):
            heads = [self.row("c", row["value"], "tuned", head)["edge"] for head in ("softmax", "s_tau")]
            found.append({edge for edge in heads if edge})
        return found

    def limit_wins(self) -> list[dict[Any, Any]]:
        """argmax's rows in the main settings where its interval lies below those of both heads at their best.

        Both heads tend to argmax as they get steeper, so a grid without an end would find at least as much.
        """
        found = []
        for row in self.main("tuned"):
            limit = self.row("limit", row["value"], "raw", "argmax")
            heads = [self.row("c", row["value"], "tuned", head) for head in ("softmax", "s_tau")]
            if all(limit["regret_high"] < head["regret_low"] for head in heads):
                found.append(limit)
        return found

    def main(self, comparison: str) -> list[dict[Any, Any]]:
        """s^tau's rows of one comparison in the eight main settings: two kinds of arms, four widths of the bonus."""
        values = [f"{arms} c {c:g}" for arms in ARMS.values() for c in BONUSES]
        return [self.row("c", value, comparison) for value in values if self.has("c", value, comparison)]
