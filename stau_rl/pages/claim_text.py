"""The text of docs/claim.md, written from the committed rows."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from stau_rl.pages import openings
from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_settings import ARMS, BONUSES, HORIZON, OFFSETS, SCALES, SEED
from stau_rl.pages.claim_verdict import ALPHA, verdict
from stau_rl.pages.markdown import table
from stau_rl.regret.report import interval
from stau_rl.statistics.means import wilson_interval
from stau_rl.study.report import percent_text

KINDS = ("raw", "slope", "entropy", "tuned")
HEADER = ("as stated", "equally steep at 0", "equal entropy", "each at its best")


def page(data: ClaimData) -> str:
    """The whole page as Markdown."""
    parts = [
        '# "s^tau has 35 % less regret than softmax"',
        "\n".join(f"- {sentence}" for sentence in openings.claim(data)),
        "![Differences by comparison](claim_comparisons.png)",
        "Written by `python -m stau_rl.pages.claim` from `notebooks/results/claim_*.csv`; the sentences below follow "
        "the numbers. `--rerun` plays everything again from its seed.",
        "## The verdict in full",
        "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(verdict(data), 1)),
        *_method(data),
        *_main(data),
        *_further(data),
        *_differs(data),
        *_made(data),
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
        "- **As stated**: s_tau(tau=5) against softmax(beta=1).\n"
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
                    _number(data.row("c", value, "reference", "random")["regret"]),
                    _number(stated["baseline_regret"]),
                    _number(stated["regret"]),
                    _regret(data.row("c", value, "tuned", "softmax")),
                    _regret(data.row("c", value, "tuned")),
                    _regret(data.row("limit", value, "raw", "argmax")),
                    _number(data.row("c", value, "reference", "ucb1")["regret"]),
                )
            )
    bernoulli, gaussian = (
        data.row("c", f"{ARMS[k]} c {c}", "tuned") for k, c in (("Bernoulli", "0.25"), ("Gaussian", "0"))
    )
    return [
        "## Where 35 % holds, and what remains",
        f"Ten arms, means drawn anew for each instance (uniform on [0, 1], or standard normal with noise of deviation "
        f"1), T = {_number(HORIZON)}, {_number(int(bernoulli['instances']))} instances.",
        table(("arms", "c", *HEADER, "best slopes"), rows, keys=2),
        f"On uniform Bernoulli arms at c = 0.25, {_sentence(bernoulli)}. On Gaussian arms at c = 0, "
        f"{_sentence(gaussian)}.",
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
            cells = [" / ".join(_regret(row, "iqm") for row in both)]
            cells.append(" / ".join(_number(row["cvar95"]) for row in both))
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
    if wins := data.limit_wins():
        names = {f"{arms} c {c:g}": f"{name} c = {c:g}" for name, arms in ARMS.items() for c in BONUSES}
        where = ", ".join(names[row["value"]] for row in wins)
        text += (
            f" In {len(wins)} settings ({where}) argmax's bracket lies below those of both heads at their best: the "
            "steepest members of the grid are still measurably unlike argmax, and steeper ones would do better."
        )
    return text


def _further(data: ClaimData) -> list[str]:
    rows = []
    for sweep, label in (("k", "K"), ("horizon", "T")):
        for name, arms in ARMS.items():
            for value in data.sweep(sweep, arms):
                shown = f"{label} = {value.rsplit(' ', 1)[1]}"
                rows.append((name, shown, *_cells(data, sweep, value), *_tuning(data, sweep, value)))
    for value in data.sweep("empirical"):
        rows.append((value, "c = 1", *_cells(data, "empirical", value), *_tuning(data, "empirical", value)))
    return [
        "## Number of arms, horizon, and real observations",
        f"c = 0.25, K = 10 and T = {_number(HORIZON)} unless said otherwise. The insect counts are twelve field "
        "plots for each of six sprays (Beall, Biometrika 1942), resampled; more insects count as more reward.",
        table(("arms", "", *HEADER, "best slopes", "tuned on"), rows, keys=2),
        "The last column is the number of instances of the last round of tuning, and of the comparison. "
        + _open_sentence(data),
    ]


def _open_sentence(data: ClaimData) -> str:
    """In which of the further settings a tuned head wins."""
    values = [(sweep, value) for sweep in ("k", "horizon", "empirical") for value in data.sweep(sweep)]
    rows = [data.row(sweep, value, "tuned") for sweep, value in values]
    sure = [row for row in rows if row["p_holm"] <= ALPHA]
    less = sum(row["percent"] < 0 for row in sure)
    return (
        f"Tuned, s^tau wins {less} and softmax {len(sure) - less} of these {len(rows)} settings (Holm-adjusted "
        f"p <= {ALPHA:g}); {len(rows) - len(sure)} remain open."
    )


def _match_error(data: ClaimData) -> str:
    """The largest relative standard error of a parameter matched by entropy, in percent."""
    rows = data.comparisons
    return f"{100 * rows.loc[rows['comparison'] == 'entropy', 'match_error'].max():.2g}"


def _tuning(data: ClaimData, sweep: str, value: str) -> tuple[str, str]:
    """Best slopes, and the instances that they were found on."""
    row = data.row(sweep, value, "tuned")
    return _best(data, sweep, value), _number(int(row["tuning_instances"]))


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
        "## Where s^tau really differs",
        "Softmax sees differences of scores alone. s^tau does not: far below 0 it is softmax(beta=tau), far above it "
        "is the power s^tau, whose relative slope tau / s falls. An offset of all scores therefore moves its "
        "sharpness, and so does leaving the mean in. Here softmax(beta=32) and s_tau(tau=44.3614), equally steep at 0, "
        "keep their parameters while the scores move; then each is tuned anew.",
        table(("arms", "scores", "same parameters", "each at its best", "best slopes"), offsets, keys=2),
        _offset_sentence(data),
        "![Offset and scale](claim_differs.png)",
        "Multiplying rewards and bonus by a factor makes softmax(beta) the softmax(factor beta) of before, so at its "
        "best softmax does not notice, grid permitting. For s^tau a factor also changes the shape: small scores see "
        "the exponential near 0, large ones the power law above it and weights near eps below.",
        table(("rewards and bonus", "same parameters", "each at its best", "best slopes"), scales),
        _scale_sentence(data),
    ]


def _offset_sentence(data: ClaimData) -> str:
    parts = []
    for name, arms in ARMS.items():
        rows = {offset: data.row("offset", f"{arms} offset {offset:g}", "raw") for offset in OFFSETS}
        flat = [data.row("offset", f"{arms} offset {offset:g}", "raw", "softmax")["regret"] for offset in OFFSETS]
        own = sorted(rows.values(), key=lambda row: float(row["regret"]))
        tuned = [data.row("offset", f"{arms} offset {offset:g}", "tuned") for offset in OFFSETS]
        apart = max(abs(row["percent"]) for row in tuned)
        reach = max(abs(row[end]) for row in tuned for end in ("percent_low", "percent_high"))
        parts.append(
            f"on {name} arms the regret of s_tau(tau=44.3614) runs from {_regret(own[0])} to {_regret(own[-1])} "
            f"over the offsets where softmax(beta=32) stays within {100 * (max(flat) / min(flat) - 1):.2f} %, and "
            f"after tuning the two are at most {apart:.1f} % apart (intervals reach {reach:.1f} %)"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _scale_sentence(data: ClaimData) -> str:
    rows = {scale: data.row("scale", f"{ARMS['Gaussian']} scale {scale:g}", "tuned") for scale in SCALES}
    sure = {scale: row for scale, row in rows.items() if row["p_holm"] <= ALPHA}
    if not sure:
        return "Tuned, no scale shows a difference (Holm-adjusted p <= 0.05)."
    shown = ", ".join(
        f"{abs(row['percent']):.1f} % {'less' if row['percent'] < 0 else 'more'} at x {scale:g}"
        for scale, row in sure.items()
    )
    return f"Tuned, s^tau has measurably different regret from softmax (Holm-adjusted p <= 0.05): {shown}."


def _made(data: ClaimData) -> list[str]:
    rows, timing = data.comparisons, dict(data.timing.iloc[0])
    commits = ", ".join(dict.fromkeys(text[:12] for text in rows["commit"]))
    return [
        "## How this was made",
        f"`stau_rl.pages.claim_settings` lists {rows['setting'].nunique()} settings; seed {SEED}; engine "
        f"{', '.join(rows['engine'].unique())}; commit {commits}; {rows['versions'].iloc[0]}. Played one after the "
        f"other, they took {timing['seconds'] / 60:.0f} minutes on {timing['threads']} threads ({timing['device']}). "
        "Every number has its row, with instances, intervals, quantiles, CVaR, interquartile mean and probability of "
        "improvement, in `notebooks/results/claim_comparisons.csv`; the tuning curves are in `claim_curves.csv`. "
        "`stau-rl study` does the same for any heads, scores and arms, and `notebooks/claim_35_percent.ipynb` reads "
        "these files. Settings share their seed and are therefore not independent of one another; p-values are "
        "Holm-adjusted over all settings of a comparison. `python -m stau_rl.checks.coverage` plays thousands of small "
        "studies of known truth and counts how often these intervals cover.",
    ]


def _cells(data: ClaimData, sweep: str, value: str) -> list[str]:
    return [percent_text(data.row(sweep, value, kind)) if data.has(sweep, value, kind) else "-" for kind in KINDS]


def _best(data: ClaimData, sweep: str, value: str) -> str:
    both = [data.row(sweep, value, "tuned", head) for head in ("softmax", "s_tau")]
    marks = {"high": "^", "low": "v"}
    return " / ".join(_number(row["slope"]) + marks.get(row["edge"], "") for row in both)


def _sentence(row: dict[Any, Any]) -> str:
    """Which head wins, tuned, and by how much."""
    shown = interval(row["percent"], row["percent_low"], row["percent_high"])
    heads = f"{_head(row['policy'])} against {_head(row['baseline'])}"
    if row["percent_low"] <= 0 <= row["percent_high"]:
        return f"tuned s^tau and softmax do not measurably differ ({shown} %, {heads})"
    winner = "s^tau wins" if row["percent"] < 0 else "softmax wins"
    side = "less" if row["percent"] < 0 else "more"
    return f"{winner}: tuned s^tau has {abs(row['percent']):.1f} % {side} regret ({shown} %, {heads})"


def _head(policy: str) -> str:
    return policy.split("|", 1)[-1].strip()


def _regret(row: dict[Any, Any], column: str = "regret") -> str:
    value, low, high = (_number(row[column + end]) for end in ("", "_low", "_high"))
    return f"{value} [{low}, {high}]"


def _number(value: float) -> str:
    """Three digits or more, and never a power of ten: 15 375, 354.9, 0.196."""
    return (
        f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.4g}" if value >= 100 else f"{value:.3g}"
    )


def tables(data: ClaimData) -> pd.DataFrame:
    """The main table as a data frame, for the notebook."""
    rows = []
    for name, arms in ARMS.items():
        for c in BONUSES:
            cells = _cells(data, "c", f"{arms} c {c:g}")
            rows.append({"arms": name, "c": c} | dict(zip(HEADER, cells, strict=True)))
    return pd.DataFrame(rows)
