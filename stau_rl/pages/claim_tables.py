"""The text of docs/claim_tables.md: the long tables behind docs/claim.md."""

from collections.abc import Sequence
from typing import Any

from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_effect import WORDS, effect
from stau_rl.pages.claim_names import cell, number, policy_name, regret
from stau_rl.pages.claim_settings import ARMS, BONUSES, HORIZON, OFFSETS, SCALES
from stau_rl.pages.markdown import table
from stau_rl.regret.report import interval
from stau_rl.statistics.means import wilson_interval
from stau_rl.study.report import percent_text

KINDS = ("tuned", "entropy", "slope", "raw")
HEADER = ("each at its best", "equal entropy", "equally steep at 0", "unequal sharpness")


def tables_page(data: ClaimData) -> str:
    """The whole page as Markdown."""
    parts = [
        '# All numbers of "s^tau has 35 % less regret than softmax"',
        "The tables behind [the claim](claim.md), written by `python -m stau_rl.pages.claim` from "
        "`notebooks/results/claim_*.csv`.",
        *_method(data),
        *_main(data),
        *_further(data),
        *_differs(data),
        *_pairs(data),
        *_others(data),
    ]
    return "\n\n".join(parts) + "\n"


def _method(data: ClaimData) -> list[str]:
    row = data.main("tuned")[0]
    return [
        "## What is compared",
        "Both heads turn the same mean-centred UCB scores into a choice of arm; nothing else differs. All policies "
        "face the same instances and the same luck, so differences are paired. A percentage is the ratio of mean "
        "pseudo-regrets less one: negative is less regret than softmax. Brackets are 95 % intervals, "
        "behind a percentage of the paired bootstrap. Measurably: Holm-adjusted p <= 0.05.",
        "- **Unequal sharpness**: s_tau(tau=5) against softmax(beta=1), which no paper compares.\n"
        "- **Equally steep at 0**: against the softmax whose log-weights have the slope of s_tau's at score 0.\n"
        "- **Equal entropy**: against the softmax of the same mean entropy on the scores that s_tau saw, collected at "
        "log-spaced steps of a pilot run of its own. The bracket counts the pilot's own uncertainty, a relative "
        f"standard error of softmax's parameter of at most {_match_error(data)} %.\n"
        f"- **Each at its best**: each head at the best of {int(row['tuning_points'])} parameters, in grids of as many "
        "points of the slope that the log-weights have where the scores lie, from 0.75 to 1 536 (the sweep over scales "
        "moves the ends with the scale), on instances of another Philox key than those that are compared. All points "
        "are tried on an eighth of the instances, and ever fewer of them on more, in the last round on as many as are "
        "compared. The bracket counts that another tuning sample would have chosen other parameters: its bootstrap "
        "draws tuning and evaluation instances and chooses anew among the three members of the last round. Best slopes "
        "are softmax / s^tau; `^` marks the upper end of the grid.",
    ]


def _main(data: ClaimData) -> list[str]:
    rows = []
    for name, arms in ARMS.items():
        for c in BONUSES:
            value = f"{arms} c {c:g}"
            rows.append((name, f"{c:g}", *_cells(data, "c", value), _best(data, "c", value)))
    absolute = []
    for name, arms in ARMS.items():
        for c in BONUSES:
            value = f"{arms} c {c:g}"
            stated = data.row("c", value, "raw")
            absolute.append(
                (
                    name,
                    f"{c:g}",
                    number(data.row("c", value, "reference", "random")["regret"]),
                    number(stated["baseline_regret"]),
                    number(stated["regret"]),
                    regret(data.row("c", value, "tuned", "softmax")),
                    regret(data.row("c", value, "tuned")),
                    regret(data.row("limit", value, "raw", "argmax")),
                    number(data.row("c", value, "reference", "ucb1")["regret"]),
                )
            )
    played = data.main("tuned")[0]["instances"]
    return [
        "## Bonus of the scores",
        f"Ten arms, means drawn anew for each instance (uniform on [0, 1], or standard normal with noise of deviation "
        f"1), T = {number(HORIZON)}, {number(int(played))} instances.",
        table(("arms", "c", *HEADER, "best slopes"), rows, keys=2),
        "In absolute terms, with the mean regret of the random policy and of argmax, which every head becomes as it is "
        "made steeper:",
        table(
            ("arms", "c", "random", "softmax(1)", "s_tau(5)", "best softmax", "best s_tau", "argmax", "UCB1 (c = 1)"),
            absolute,
            keys=2,
        ),
        _limit_sentence(data),
        "The mean is not all. Each at its best, beyond it: the interquartile mean, the mean of the worst 5 %, the "
        "share of runs stuck on another arm at the end (each softmax / s^tau), and the probability that s^tau has less "
        "regret on an instance, ties counting half. The mean of the worst 5 % stands without an interval:",
        table(
            ("arms", "c", "interquartile mean", "worst 5 %", "stuck, %", "P(s^tau better)"),
            _beyond_the_mean(data),
            keys=2,
        ),
        "![Regret over the slope](claim_curves.png)",
        "The curves come from the first round of tuning. Their bands are made for a whole curve at once (95 %, "
        "studentised bootstrap of the largest deviation, which covers skewed regrets too).",
    ]


def _beyond_the_mean(data: ClaimData) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for name, arms in ARMS.items():
        for c in BONUSES:
            both = [data.row("c", f"{arms} c {c:g}", "tuned", head) for head in ("softmax", "s_tau")]
            cells = [" / ".join(regret(row, "iqm") for row in both)]
            cells.append(" / ".join(number(row["cvar95"]) for row in both))
            cells.append(" / ".join(_stuck(row) for row in both))
            chances = [both[1][f"improvement{end}"] for end in ("", "_low", "_high")]
            rows.append((name, f"{c:g}", *cells, interval(chances[0], chances[1], chances[2], ".3f", signed=False)))
    return rows


def _stuck(row: dict[Any, Any]) -> str:
    """Share of stuck runs in percent, with Wilson's interval."""
    runs = int(row["instances"])
    low, high = wilson_interval(round(row["stuck_rate"] * runs), runs)
    return f"{100 * row['stuck_rate']:.2f} [{100 * low:.2f}, {100 * high:.2f}]"


def _limit_sentence(data: ClaimData) -> str:
    """How wide the columns without brackets are, and where the limit of both heads beats them."""
    plain = [
        data.row("c", row["value"], kind, head)
        for row in data.main("raw")
        for kind, head in (("reference", "random"), ("reference", "ucb1"), ("raw", "softmax"), ("raw", "s_tau"))
    ]
    widest = max((row["regret_high"] - row["regret_low"]) / (2 * row["regret"]) for row in plain)
    text = (
        "Brackets here are Student's, for the very policy of the column; those of the columns without reach at most "
        f"{100 * widest:.1f} % to either side. All columns share their instances, and so their luck."
    )
    if silent := [cell(pair) for pair in data.main("tuned") if data.silent(pair)]:
        text += (
            f" In {len(silent)} settings ({', '.join(silent)}) argmax's bracket lies below those of both heads "
            "at their best: the steepest members of the grid are still unlike argmax, and steeper ones would do better."
        )
    return text


def _further(data: ClaimData) -> list[str]:
    rows = []
    for sweep, label in (("k", "K"), ("horizon", "T")):
        for name, arms in ARMS.items():
            for value in data.sweep(sweep, arms):
                shown = f"{label} = {value.rsplit(' ', 1)[1]}"
                rows.append((name, shown, *_cells(data, sweep, value), _best(data, sweep, value)))
    for value in data.sweep("empirical"):
        rows.append((value, "c = 1", *_cells(data, "empirical", value), _best(data, "empirical", value)))
    return [
        "## Number of arms, horizon, and real observations",
        f"c = 0.25, K = 10 and T = {number(HORIZON)} unless said otherwise. The insect counts are twelve field "
        "plots for each of six sprays (Beall, Biometrika 1942), resampled; more insects count as more reward.",
        table(("arms", "", *HEADER, "best slopes"), rows, keys=2),
        f"Settings that cost more have fewer instances, {number(_fewest(data))} at least.",
    ]


def _match_error(data: ClaimData) -> str:
    """The largest relative standard error of a parameter matched by entropy, in percent."""
    rows = data.comparisons
    return f"{100 * rows.loc[rows['comparison'] == 'entropy', 'match_error'].max():.2g}"


def _fewest(data: ClaimData) -> int:
    """The smallest number of instances that two heads are compared on."""
    return min(int(pair["instances"]) for pair in data.pairs())


def _differs(data: ClaimData) -> list[str]:
    offsets = []
    for name, arms in ARMS.items():
        for offset in OFFSETS:
            value = f"{arms} offset {offset:g}"
            same, tuned = data.row("offset", value, "raw"), data.row("offset", value, "tuned")
            offsets.append(
                (name, f"{offset:+g}", percent_text(same), percent_text(tuned), _best(data, "offset", value))
            )
        for value in data.sweep("centring", arms):
            same, tuned = data.row("centring", value, "raw"), data.row("centring", value, "tuned")
            shown = value.rsplit(" ", 1)[1]
            offsets.append((name, shown, percent_text(same), percent_text(tuned), _best(data, "centring", value)))
    scales = []
    for scale in SCALES:
        value = f"{ARMS['Gaussian']} scale {scale:g}"
        same, tuned = data.row("scale", value, "raw"), data.row("scale", value, "tuned")
        scales.append((f"x {scale:g}", percent_text(same), percent_text(tuned), _best(data, "scale", value)))
    return [
        "## Offset and scale",
        "Softmax sees differences of scores alone. s^tau does not: far below 0 it is softmax(beta=tau), far above it "
        "is the power s^tau, whose relative slope tau / s falls. An offset of all scores therefore moves its "
        "sharpness, and so does leaving the mean in. Here softmax(beta=32) and s_tau(tau=44.3614), equally steep at 0, "
        "keep their parameters while the scores move; then each is tuned anew.",
        table(("arms", "scores", "same parameters", "each at its best", "best slopes"), offsets, keys=2),
        "Multiplying rewards and bonus by a factor makes softmax(beta) the softmax(factor beta) of before, so at its "
        "best softmax does not notice, grid permitting. For s^tau a factor also changes the shape: small scores see "
        "the exponential near 0, large ones the power law above it and weights near eps below.",
        table(("rewards and bonus", "same parameters", "each at its best", "best slopes"), scales),
    ]


def _pairs(data: ClaimData) -> list[str]:
    rows = [(cell(pair), percent_text(pair), WORDS[effect(pair)], _shape(data, pair)) for pair in data.pairs()]
    return [
        "## Every pair of tuned heads",
        "Each once, with the verdict that counts on the page. *No information*: argmax, the limit of both heads, has "
        "less regret than either.",
        table(("setting", "s^tau, %", "verdict", "shape"), rows),
    ]


def _shape(data: ClaimData, pair: dict[Any, Any]) -> str:
    """Whether a pair tells the shapes of the heads apart."""
    return "argmax not played" if data.limit(pair) is None else "no information" if data.silent(pair) else ""


def _others(data: ClaimData) -> list[str]:
    rows = [row for sweep in ("baselines", "entmax", "positive") for row in data.others(sweep)]
    if not rows:
        return []
    lines = [(cell(row), policy_name(row["family"]), percent_text(row), regret(row)) for row in rows]
    return [
        "## Other policies",
        "Each at its best, against softmax at its best on the same scores.",
        table(("setting", "policy", "against softmax, %", "regret"), lines, keys=2),
    ]


def _cells(data: ClaimData, sweep: str, value: str) -> list[str]:
    return [percent_text(data.row(sweep, value, kind)) if data.has(sweep, value, kind) else "-" for kind in KINDS]


def _best(data: ClaimData, sweep: str, value: str) -> str:
    both = [data.row(sweep, value, "tuned", head) for head in ("softmax", "s_tau")]
    marks = {"high": "^", "low": "v"}
    return " / ".join(number(row["slope"]) + marks.get(row["edge"], "") for row in both)
