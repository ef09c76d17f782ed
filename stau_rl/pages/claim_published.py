"""What docs/claim.md says of the published experiment, from its own committed rows.

`published_curve.csv` has a row per head and sharpness: `head`, `sharpness`, `published` (whether the published grid has
it), `policy`, `regret`, `regret_se`, `regret_low`, `regret_high`. `published_best.csv` has best against best by rule,
engine and number of runs, as `regret.rivals` gives it. `python -m stau_rl.pages.published` makes both.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.pages.claim_lines import Line
from stau_rl.pages.claim_names import number
from stau_rl.pages.claim_verdict import CLAIMED
from stau_rl.pages.markdown import table
from stau_rl.pages.paths import DOCS, RESULTS
from stau_rl.regret.problems import problem
from stau_rl.regret.report import interval

CURVE, BEST, FIGURE = "published_curve.csv", "published_best.csv", "published_curve.png"
HEADING = "The published experiment"
PUBLISHED = -35.2
# Percent within which a number is the published one.
NEAR = 1.0
CHOSEN = {"same": "on these runs", "split": "on as many others"}


@dataclass(frozen=True, slots=True)
class Published:
    """The rows of the experiment.

    Attributes:
        curve: the ladder of sharpness.
        best: best against best.
    """

    curve: pd.DataFrame
    best: pd.DataFrame

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "Published | None":
        """The committed rows; None where they are not there."""
        if not (folder / CURVE).exists() or not (folder / BEST).exists():
            return None
        return cls(pd.read_csv(folder / CURVE), pd.read_csv(folder / BEST))

    def at(self, head: str, sharpness: float | None = None) -> dict[Any, Any]:
        """The row of a head at a sharpness, or at its steepest."""
        mine = self.curve[self.curve["head"] == head].sort_values("sharpness")
        rows = mine if sharpness is None else mine[mine["sharpness"].sub(sharpness).abs() < 1e-9]
        return dict(rows.iloc[-1])

    def steep_end(self, head: str) -> dict[Any, Any]:
        """The row at the steep end of a head's published grid."""
        mine = self.curve[(self.curve["head"] == head) & self.curve["published"].astype(bool)]
        return dict(mine.sort_values("sharpness").iloc[-1])

    def most(self, rule: str = "same") -> dict[Any, Any]:
        """Best against best on the most runs."""
        return dict(self.best[self.best["rule"] == rule].sort_values("instances").iloc[-1])

    def line(self) -> Line:
        """The claim as it was published, beside ours."""
        row = self.most()
        near = row["percent_low"] - NEAR <= PUBLISHED <= row["percent_high"] + NEAR
        beyond = self.at("clamp_power")["regret"] / self.at("softmax")["regret"] - 1
        cause = "unequal grids" if near and abs(beyond) < NEAR / 100 else "not at their ends alone"
        return Line(
            f"{CLAIMED:g} % less, as published",
            f"{PUBLISHED:g} %",
            f"{_percent(row)} %",
            f"reproduced; {cause}" if near else "not reproduced",
            HEADING,
        )

    def sentences(self) -> list[str]:
        """Three sentences: the number is real, where it comes from, and what it does not speak of."""
        few = dict(self.best[self.best["rule"] == "same"].sort_values("instances").iloc[0])
        many = self.most()
        power, softmax, limit = self.at("clamp_power"), self.at("softmax"), self.at("argmax")
        ends = self.steep_end("clamp_power"), self.steep_end("softmax")
        formula = self.at("s_tau", ends[0]["sharpness"])
        real = abs(many["percent"] - PUBLISHED) <= NEAR + (many["percent_high"] - many["percent_low"]) / 2
        opening = "The number is real" if real else "The number does not come again"
        reach = (ends[0]["sharpness"], ends[1]["sharpness"])
        best_at_ends = many["policy"] == ends[0]["policy"] and many["baseline"] == ends[1]["policy"]
        worse = 100 * (formula["regret"] / ends[1]["regret"] - 1)
        winners = "both winners stand at the steep end" if best_at_ends else "the grids end"
        compared = f"{abs(worse):.0f} % {'more' if worse > 0 else 'less'}"
        return [
            f"{opening}: played as published, max(s, eps)^tau at the best of its grid differs from softmax at the best "
            f"of its own by {_percent(few)} % on {number(few['instances'])} runs, and by {_percent(many)} % on "
            f"{number(many['instances'])}.",
            f"It comes from grids of unequal reach: {winners} (tau = {reach[0]:g}, beta = {reach[1]:g}), and "
            f"further on the gap closes, to {power['regret']:.1f} at tau = {power['sharpness']:g} and "
            f"{softmax['regret']:.1f} at beta = {softmax['sharpness']:g}, with {limit['regret']:.1f} for argmax, the "
            "limit of both.",
            f"It is of another map than the formula of s^tau: with softplus in the clamp's place the same tau has "
            f"{formula['regret']:.1f}, {compared} than softmax's best.",
        ]

    def section(self) -> list[str]:
        """The section of the page."""
        one = problem("power_35")
        rows = [
            (
                row["engine"],
                number(row["instances"]),
                CHOSEN[row["rule"]],
                f"{row['regret']:.1f}",
                f"{row['baseline_regret']:.1f}",
                _percent(row),
            )
            for row in self.best.to_dict("records")
        ]
        return [
            f"## {HEADING}",
            f"{one.source[0].upper()}{one.source[1:]}. Ten Bernoulli arms with means .10 to .85, {number(one.horizon)} "
            "steps. `stau-rl regret --problem power_35` plays it with the published rule; `--instances 1000000` on as "
            "many runs, `--engine` on each engine.",
            table(("engine", "runs", "best chosen", "power", "softmax", "difference, %"), rows, keys=3),
            f"{number(self.curve['instances'].iloc[0])} runs carry both grids on to argmax. The figure has tau of the "
            "powers and beta of softmax on one axis: the two grids end where neither head is at its best.",
        ]


def _percent(row: dict[Any, Any]) -> str:
    return interval(row["percent"], row["percent_low"], row["percent_high"])


def top_figure(folder: Path = DOCS) -> str | None:
    """The figure of the published experiment, if it has been drawn."""
    return FIGURE if (folder / FIGURE).exists() else None
