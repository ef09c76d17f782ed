"""Which head wins a comparison, by at least one percent, and where mean and typical run disagree."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

MINIMUM = 1.0
"""Percent of regret below which a difference does not matter."""
ALPHA = 0.05
"""A family-wise error rate."""
WORDS = {
    "s_tau": "s^tau wins",
    "softmax": "softmax wins",
    "equal": f"equal within {MINIMUM:g} %",
    "open": "open",
}
"""What `effect` finds, in the words of a table."""


def effect(row: dict[Any, Any]) -> str:
    """`s_tau` or `softmax`, whichever wins; `equal`; or `open`.

    A win is an interval that lies beyond the minimum effect, and a Holm-adjusted p-value of at most 5 %. Equal is an
    interval within the minimum effect. All else is open.
    """
    low, high = row["percent_low"], row["percent_high"]
    if low >= -MINIMUM and high <= MINIMUM:
        return "equal"
    if row["p_holm"] <= ALPHA and high < -MINIMUM:
        return "s_tau"
    if row["p_holm"] <= ALPHA and low > MINIMUM:
        return "softmax"
    return "open"


def counts(rows: Iterable[dict[Any, Any]]) -> Counter[str]:
    """How often `effect` finds each."""
    return Counter(effect(row) for row in rows)


def counts_text(rows: Iterable[dict[Any, Any]]) -> str:
    """The counts in words."""
    found = counts(rows)
    return (
        f"s^tau wins {found['s_tau']}, softmax {found['softmax']}, {found['equal']} are equal within {MINIMUM:g} %, "
        f"{found['open']} open"
    )


def views(pair: dict[Any, Any], softmax: dict[Any, Any]) -> dict[str, int]:
    """Which head has less regret by mean, by interquartile mean and on more instances.

    Args:
        pair: s^tau's row, against softmax.
        softmax: softmax's own row.

    Returns:
        -1 where s^tau has measurably less, 1 where softmax has, 0 where neither.
    """
    mean = 0 if pair["p_holm"] > ALPHA else -1 if pair["percent"] < 0 else 1
    middle = -1 if pair["iqm_high"] < softmax["iqm_low"] else 1 if pair["iqm_low"] > softmax["iqm_high"] else 0
    often = -1 if pair["improvement_low"] > 0.5 else 1 if pair["improvement_high"] < 0.5 else 0
    return {"mean": mean, "interquartile mean": middle, "P(better)": often}


def disagree(pair: dict[Any, Any], softmax: dict[Any, Any]) -> bool:
    """One of the three favours s^tau and another softmax."""
    found = views(pair, softmax).values()
    return -1 in found and 1 in found


def views_text(pair: dict[Any, Any], softmax: dict[Any, Any]) -> str:
    """Who is ahead by what, as in: softmax by mean, s^tau by interquartile mean and P(better)."""
    found = views(pair, softmax)
    sides = (("softmax", 1), ("s^tau", -1))
    parts = [(head, [name for name, sign in found.items() if sign == side]) for head, side in sides]
    return ", ".join(f"{head} by {' and '.join(names)}" for head, names in parts if names)
