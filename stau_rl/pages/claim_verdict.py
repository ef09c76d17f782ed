"""The three sentences at the top of docs/claim.md, written from the rows: other numbers, other sentences."""

from typing import Any

import numpy as np

from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_effect import counts, counts_text, views
from stau_rl.pages.claim_settings import ARMS

CLAIMED = 35.0


def verdict(data: ClaimData) -> list[str]:
    """Three sentences: at parameters of unequal sharpness, at equal sharpness, and with each head at its own best."""
    return [unequal(data.main("raw")), matched(data), tuned(data)]


def unequal(raw: list[dict[Any, Any]]) -> str:
    """Two parameters that look alike and are not equally sharp."""
    claimed = sum(row["percent"] <= -CLAIMED for row in raw)
    opening = (
        "Unequal sharpness makes such a gap" if claimed else f"Unequal sharpness makes no gap of {CLAIMED:g} % here"
    )
    return (
        f"{opening}: s_tau(tau=5) differs from softmax(beta=1), which is softer, {span(raw)}, and has {CLAIMED:g} % "
        f"less regret or better in {claimed} of {len(raw)} settings."
    )


def sharpness_explains(data: ClaimData) -> bool | None:
    """Whether most of the raw gap is gone at equal entropy, by medians of the main settings; None without a gap."""
    raw, entropy = (float(np.median([row["percent"] for row in data.main(kind)])) for kind in ("raw", "entropy"))
    return entropy > 0.5 * raw if raw < 0 else None


def matched(data: ClaimData) -> str:
    """At equal entropy on the scores seen, Gaussian arms first."""
    openings = {
        True: "At equal sharpness most of it is gone",
        False: "At equal sharpness most of it remains",
        None: "There is no gap that sharpness could explain",
    }
    rows, every = data.main("entropy"), data.pairs(kind="entropy")
    by_arms = {name: [row for row in rows if row["arms"] == arms] for name, arms in ARMS.items()}
    # Gaussian scores lie far from 0, where equal slopes mean little; there entropy is the match that counts.
    parts = " and ".join(f"{span(by_arms[name])} on {name} arms" for name in reversed(ARMS) if by_arms[name])
    return (
        f"{openings[sharpness_explains(data)]}: against a softmax of equal entropy on the scores seen s^tau differs "
        f"{parts}; of {len(every)} pairs in all {counts_text(every)}."
    )


def tuned(data: ClaimData) -> str:
    """Each head at its own best parameter, over all tuned pairs."""
    pairs = data.pairs()
    found, typical = counts(pairs), [views(pair, data.softmax(pair))["interquartile mean"] for pair in pairs]
    openings = {
        (False, False): "Each at its best, neither head wins",
        (False, True): "Each at its best, only softmax wins",
        (True, False): "Each at its best, only s^tau wins",
        (True, True): "Each at its best, either head may win",
    }
    text = (
        f"{openings[found['s_tau'] > 0, found['softmax'] > 0]}: of {len(pairs)} pairs on grids of equal reach "
        f"{counts_text(pairs)}"
    )
    if silent := sum(data.silent(pair) for pair in pairs):
        text += f"; {silent} carry no information on the heads' shape, as argmax has less regret than either"
    if any(typical):
        text += f"; in the middle half of the runs s^tau is ahead in {typical.count(-1)}, softmax in {typical.count(1)}"
    return f"{text}."


def span(rows: list[dict[Any, Any]]) -> str:
    """From the smallest to the largest difference, in percent."""
    found = [row["percent"] for row in rows]
    return f"from {min(found):+.1f} to {max(found):+.1f} %"
