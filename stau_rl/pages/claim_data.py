"""The committed rows behind docs/claim.md: where they lie, how they are picked out, and what counts once."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stau_rl.agents.bandit import parse_policy
from stau_rl.files.finished import read_table
from stau_rl.pages.claim_settings import ARMS, BONUSES
from stau_rl.pages.paths import RESULTS
from stau_rl.statistics.means import holm
from stau_rl.study.folder import read_rows

COMPARISONS, CURVES, TIMING = "claim_comparisons.csv", "claim_curves.csv", "claim_timing.csv"
PAIRED = ("c", "k", "horizon", "empirical", "offset", "centring", "scale", "annealed", "positive")
"""The sweeps in which s^tau meets softmax."""
SAME = ["comparison", "arms", "horizon", "instances", "seed", "policy", "baseline"]
"""Two rows that agree in these measure one thing."""


@dataclass(frozen=True)
class ClaimData:
    """The rows of the page.

    Attributes:
        comparisons: every row but those of curves, with `p_holm`; a pair of policies has one number wherever it stands.
        curves: regret of every tuning point.
        timing: a row per run: its sweeps, seconds, device, threads.
    """

    comparisons: pd.DataFrame
    curves: pd.DataFrame
    timing: pd.DataFrame

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "ClaimData":
        """Read the committed CSV files."""
        comparisons, curves = (read_rows(folder / name) for name in (COMPARISONS, CURVES))
        return cls(adjusted(one_number(comparisons)), curves, read_timings(folder / TIMING))

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

    def main(self, comparison: str) -> list[dict[Any, Any]]:
        """s^tau's rows of one comparison in the eight main settings: two kinds of arms, four widths of the bonus."""
        values = [f"{arms} c {c:g}" for arms in ARMS.values() for c in BONUSES]
        return [self.row("c", value, comparison) for value in values if self.has("c", value, comparison)]

    def pairs(self, *sweeps: str, kind: str = "tuned") -> list[dict[Any, Any]]:
        """s^tau against softmax in one kind of comparison, in these sweeps or in all; each pair once."""
        table = self.comparisons
        mine = (table["comparison"] == kind) & table["sweep"].isin(sweeps or PAIRED) & table["percent"].notna()
        found = table[mine & table["policy"].str.contains("s_tau", regex=False)].drop_duplicates(SAME)
        return [dict(row) for row in found.to_dict("records")]

    def others(self, sweep: str) -> list[dict[Any, Any]]:
        """What is no s^tau at its best, against softmax at its best, in the settings of a sweep."""
        table = self.comparisons
        mine = (table["comparison"] == "tuned") & (table["sweep"] == sweep) & table["percent"].notna()
        return [
            dict(row) for row in table[mine & ~table["policy"].str.contains("s_tau", regex=False)].to_dict("records")
        ]

    @cached_property
    def _tuned(self) -> dict[tuple[str, str], dict[Any, Any]]:
        """The first row of each tuned policy of a setting, by setting and policy."""
        rows = self.comparisons[self.comparisons["comparison"] == "tuned"].to_dict("records")
        return {(row["setting"], row["policy"]): dict(row) for row in reversed(rows)}

    @cached_property
    def _limits(self) -> dict[tuple[str, int, float], dict[Any, Any]]:
        """argmax's own rows, by arms, horizon and bonus."""
        table = self.comparisons
        mine = table["sweep"].isin(("limit", "argmax")) & (table["comparison"] == "raw")
        rows = table[mine & table["policy"].str.endswith("| argmax")].to_dict("records")
        return {(row["arms"], row["horizon"], bonus(row["policy"])): dict(row) for row in rows}

    def softmax(self, pair: dict[Any, Any]) -> dict[Any, Any]:
        """The row of the softmax that a pair of tuned heads is measured against."""
        return self._tuned[pair["setting"], pair["baseline"]]

    def limit(self, pair: dict[Any, Any]) -> dict[Any, Any] | None:
        """argmax's row on the arms and scores of a pair; an offset and the centre do not move it."""
        return self._limits.get((pair["arms"], pair["horizon"], bonus(pair["policy"])))

    def silent(self, pair: dict[Any, Any]) -> bool:
        """argmax's interval lies below those of both heads at their best.

        Both heads tend to argmax as they get steeper, so a grid without an end would find at least as much: the end of
        the grid sets the best, and the pair says nothing about the shape of a head.
        """
        limit = self.limit(pair)
        return limit is not None and limit["regret_high"] < min(pair["regret_low"], self.softmax(pair)["regret_low"])

    def at_end(self, pair: dict[Any, Any]) -> bool:
        """The best of either head lies at the steep end of the grid."""
        return "high" in (pair["edge"], self.softmax(pair)["edge"])


@lru_cache(maxsize=4096)
def bonus(policy: str) -> float:
    """The width c of the bonus of a policy's score; nan without one."""
    return float(getattr(parse_policy(policy).score, "c", np.nan))


def one_number(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with one number for each pair of policies, that of the setting played first.

    A pair stands in several sweeps where these meet, as at bonus 0.25, offset 0 and scale 1; machines differ by a few
    roundings.
    """
    place = rows.groupby(SAME, dropna=False, sort=False).ngroup().to_numpy()
    _, first = np.unique(place, return_index=True)
    kept = ["sweep", "value", "family", "setting", "engine", "commit", "versions"]
    measured = rows.iloc[first[place]].reset_index(drop=True)
    return measured.assign(**{name: rows[name].to_numpy() for name in kept})[list(rows.columns)]


def adjusted(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with `p_holm`.

    s^tau against softmax is adjusted over all settings of a kind of comparison, each pair once; whatever else is
    compared, over its sweep.
    """
    heads = rows["policy"].str.contains("s_tau", regex=False) & rows["sweep"].isin(PAIRED)
    group = rows["comparison"] + np.where(heads, "", " " + rows["sweep"])
    p_holm = pd.Series(np.nan, rows.index)
    for name in group.unique():
        mine = rows[group == name]
        once = mine.drop_duplicates(SAME)
        found = pd.Series(holm(once["p_value"].to_numpy(dtype=np.float64)), pd.MultiIndex.from_frame(once[SAME]))
        p_holm[mine.index] = found.loc[list(mine[SAME].itertuples(index=False, name=None))].to_numpy()
    return rows.assign(p_holm=p_holm)


def read_timings(path: Path) -> pd.DataFrame:
    """How long each run took; the first one's row names no sweeps."""
    table = read_table(path, ("sweeps", "device"))
    return (table if "sweeps" in table else table.assign(sweeps=""))[["sweeps", "seconds", "threads", "device"]]
