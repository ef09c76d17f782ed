"""The table of claims that docs/claim.md opens with: a line per claim, its verdict from the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_effect import MINIMUM, effect
from stau_rl.pages.claim_verdict import CLAIMED, sharpness_explains
from stau_rl.pages.markdown import listing
from stau_rl.regret.report import interval

BEST, SHARP, ANNEALED, POSITIVE = (
    "Each head at its best",
    "Equally sharp",
    "Annealed schedules",
    "Scores that are all positive",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A claim.

    Attributes:
        claim: in a few words.
        published: its published number.
        measured: ours, with an interval.
        verdict: reproduced, not reproduced, another cause or not testable here.
        heading: of the section that has the rest.
    """

    claim: str
    published: str
    measured: str
    verdict: str
    heading: str


def claim_lines(data: ClaimData) -> list[Line]:
    """The claims whose rows are committed."""
    made = (_best(data), _sharp(data), _annealed(data), _positive(data))
    return [line for line in made if line is not None]


def claim_table(lines: Sequence[Line]) -> str:
    """The lines as a table; a verdict leads to its section."""
    header = ("claim", "published", "measured here", "verdict")
    rows = [(line.claim, line.published, line.measured, f"[{line.verdict}]({anchor(line.heading)})") for line in lines]
    return listing(header, rows)


def anchor(heading: str) -> str:
    """Where a heading of the same page is linked to."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -")
    return f"#{kept.replace(' ', '-')}"


def reach(rows: Sequence[dict[Any, Any]]) -> str:
    """The smallest and the largest difference with their intervals."""
    ends = (min(rows, key=lambda row: row["percent"]), max(rows, key=lambda row: row["percent"]))
    low, high = (interval(row["percent"], row["percent_low"], row["percent_high"], ".1f") for row in ends)
    return f"{low} to {high} %"


def share(holds: int, of: int) -> str:
    """Whether a claim holds in all settings, in some or in none."""
    return "reproduced" if holds == of else f"reproduced in {holds} of {of}" if holds else "not reproduced"


def judged(rows: Sequence[dict[Any, Any]], claimed: float = 0.0) -> str:
    """Whether s^tau wins, by so many percent or more."""
    wins = [row for row in rows if effect(row) == "s_tau" and row["percent"] <= -claimed]
    return share(len(wins), len(rows))


def _best(data: ClaimData) -> Line:
    pairs = data.pairs()
    claim = f"{CLAIMED:g} % less, both tuned"
    return Line(claim, f"-{CLAIMED:g} %", reach(pairs), judged(pairs, CLAIMED), BEST)


def _sharp(data: ClaimData) -> Line:
    rows = data.pairs(kind="entropy")
    words = {True: "another cause", False: judged(rows), None: "not reproduced"}
    return Line(
        f"{CLAIMED:g} % less, equally sharp",
        f"-{CLAIMED:g} %",
        reach(rows),
        words[sharpness_explains(data)],
        SHARP,
    )


def _annealed(data: ClaimData) -> Line | None:
    rows = data.pairs("annealed")
    if not rows:
        return None
    return Line("less regret, both annealed", "-", reach(rows), judged(rows), ANNEALED)


def _positive(data: ClaimData) -> Line | None:
    rows = power_rows(data)
    if not rows:
        return None
    alike = sum(as_power(*row) for row in rows)
    return Line(
        "a power on positive scores",
        "-",
        f"within {MINIMUM:g} % of escort in {alike} of {len(rows)}",
        share(alike, len(rows)),
        POSITIVE,
    )


def power_rows(data: ClaimData) -> list[tuple[dict[Any, Any], dict[Any, Any]]]:
    """s^tau's and escort's rows on scores that are all positive, each against softmax at its best."""
    escorts = {row["value"]: row for row in data.others("positive") if "escort" in row["policy"]}
    return [(row, escorts[row["value"]]) for row in data.pairs("positive") if row["value"] in escorts]


def as_power(pair: dict[Any, Any], escort: dict[Any, Any]) -> bool:
    """s^tau and escort, each against the same softmax: intervals that share a point, and the minimum effect at most."""
    apart = abs(pair["percent"] - escort["percent"])
    shared = pair["percent_low"] <= escort["percent_high"] and escort["percent_low"] <= pair["percent_high"]
    return bool(shared and apart <= MINIMUM)
