"""The three sentences that conclude docs/claim.md, written from the numbers: other numbers, other sentences."""

from typing import Any

import numpy as np

from stau_rl.pages.claim_data import ClaimData

CLAIMED = 35.0
# A family-wise error rate.
ALPHA = 0.05


def verdict(data: ClaimData) -> list[str]:
    """Three sentences: the claim as stated, at matched sharpness, and with each head at its own best."""
    raw, slope, entropy, tuned = (data.main(kind) for kind in ("raw", "slope", "entropy", "tuned"))
    return [_as_stated(raw), _matched(raw, slope, entropy), _tuned(tuned, data)]


def _as_stated(raw: list[dict[Any, Any]]) -> str:
    less = wins(raw, -1)
    claimed = sum(row["percent"] <= -CLAIMED for row in raw)
    opening = (
        "As stated, s_tau(tau=5) against softmax(beta=1), the claim reproduces"
        if claimed > 0 and less == len(raw)
        else "As stated, s_tau(tau=5) against softmax(beta=1), the claim reproduces in part"
        if less
        else "As stated, s_tau(tau=5) against softmax(beta=1), the claim does not reproduce"
    )
    return (
        f"{opening}: s^tau has measurably less regret in {less} of {len(raw)} settings, the difference runs "
        f"{span(raw)}, and it is {CLAIMED:g} % less or better in {claimed} of them."
    )


def _matched(raw: list[dict[Any, Any]], slope: list[dict[Any, Any]], entropy: list[dict[Any, Any]]) -> str:
    typical_raw, steep, sharp = (float(np.median([row["percent"] for row in rows])) for rows in (raw, slope, entropy))
    # The two matches answer differently; what remains is judged by the one that leaves s^tau more.
    if typical_raw < 0 and min(steep, sharp) > 0.5 * typical_raw:
        meaning = "the raw gain is mostly that of a sharper temperature"
    elif typical_raw < 0:
        meaning = "most of the raw gain remains"
    else:
        meaning = "there was no raw gain to explain"
    return (
        f"Against a softmax that is equally steep at score 0 the difference runs {span(slope)} (s^tau "
        f"{_signs(slope)}), and against one of equal entropy on the scores seen {span(entropy)} "
        f"({_signs(entropy)}): {meaning}, as the median of the settings is {steep:+.1f} % at equal slope and "
        f"{sharp:+.1f} % at equal entropy where raw it is {typical_raw:+.1f} %."
    )


def _signs(rows: list[dict[Any, Any]]) -> str:
    return f"measurably better in {wins(rows, -1)} of {len(rows)} settings, worse in {wins(rows, 1)}"


def wins(rows: list[dict[Any, Any]], sign: int) -> int:
    """In how many settings s^tau has measurably less (-1) or more (1) regret, by the p-values of all settings."""
    return sum(row["p_holm"] <= ALPHA and sign * row["percent"] > 0 for row in rows)


def _tuned(tuned: list[dict[Any, Any]], data: ClaimData) -> str:
    less, more = wins(tuned, -1), wins(tuned, 1)
    if not less + more:
        meaning = "neither head wins anywhere"
    elif less and more:
        meaning = f"s^tau wins {less} of {len(tuned)} settings and softmax {more}"
    else:
        meaning = f"{'s^tau' if less else 'softmax'} wins {less or more} of {len(tuned)} settings"
    open_cases = len(tuned) - less - more
    ends = sum("high" in edges for edges in data.edges())
    limit = len(data.limit_wins())
    at_end = f"; in {ends} of the {len(tuned)} a best parameter lies at the steep end of the grid" if ends else ""
    if limit:
        at_end += (
            f"; in {limit} argmax, the limit of both, has less regret than either: there the end of the grid, "
            "and not the shape of a head, sets the best"
        )
    widest = max(tuned, key=lambda row: abs(row["percent"]))
    return (
        f"With each head at its own best parameter, found on other instances with equal grids, {meaning} by mean "
        f"regret (Holm-adjusted p <= {ALPHA:g}), {open_cases} remain{'s' if open_cases == 1 else ''} open, and the "
        f"difference runs {span(tuned)}, largest on {widest['arms']} at {_score(widest)}{at_end}."
    )


def span(rows: list[dict[Any, Any]]) -> str:
    """From the smallest to the largest difference, in percent."""
    found = [row["percent"] for row in rows]
    return f"from {min(found):+.1f} to {max(found):+.1f} %"


def _score(row: dict[Any, Any]) -> str:
    return str(row["policy"]).split("|", 1)[0].strip()
