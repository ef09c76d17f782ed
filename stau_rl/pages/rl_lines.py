"""The table of claims that docs/rl.md opens with, its verdicts from the rows."""

from typing import Any

import pandas as pd

from stau_rl.pages.claim_effect import ALPHA
from stau_rl.pages.claim_lines import Line
from stau_rl.plateau.report import share_text
from stau_rl.rl_study.results import RLResults

SCORES = "Scores"
STUCK, FREE = 0.25, 0.05
"""Shares of draws that are still at the suboptimal arm: at least the first is stuck, at most the second is not."""


def lines(results: RLResults, plateau_heading: str) -> list[Line]:
    """The claims on policy heads that small agents and bandits can test."""
    found = [_learns(results, control=False), _learns(results, control=True)]
    if results.plateau is not None:
        found += _plateau(results.plateau, plateau_heading)
    return found


def _learns(results: RLResults, *, control: bool) -> Line:
    p_values = results.p_values(control=control)
    mine = {place: p for place, p in p_values.items() if "s_tau" in place[1]}
    better = [
        place for place, p in mine.items() if p <= ALPHA and results.improvement(*place, control=control).value > 0.5
    ]
    return Line(
        "s^tau learns better, equally sharp" if control else "s^tau learns better than softmax",
        "-",
        f"higher in {len(better)} of {len(mine)} comparisons",
        "reproduced" if len(better) == len(mine) else "not reproduced",
        SCORES,
    )


def hardest(rows: pd.DataFrame) -> dict[str, dict[Any, Any]]:
    """By method, the row of the start with fewest arms and least probability of each other arm, exact gradients."""
    best = rows[(rows["kind"] == "best") & (rows["gradient"] == "exact") & rows["start"].str.startswith("each")]
    best = best[best["arms"] == best["arms"].min()]
    best = best[best["start"] == best["start"].iloc[-1]]
    return {str(row["method"]): row for row in best.to_dict("records")}


def _plateau(rows: pd.DataFrame, heading: str) -> list[Line]:
    known = hardest(rows)
    asked = (
        ("softmax stays at a bad arm", "softmax(beta=1)", True),
        ("escort leaves it", "escort(p=2)", False),
        ("s^tau of fixed tau leaves it", "s_tau(tau=2)", False),
        ("s^tau of learned tau leaves it", "learned(s_tau(tau=2))", False),
    )
    found = []
    for claim, method, stays in asked:
        if method not in known:
            continue
        failed = float(known[method]["failed"])
        holds = failed >= STUCK if stays else failed <= FREE
        told = f"{share_text(known[method])} % still there"
        found.append(Line(claim, "-", told, "reproduced" if holds else "not reproduced", heading))
    return found
