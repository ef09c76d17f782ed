"""What a regret benchmark prints: one table with raw and matched comparison side by side, and what it means."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.agents.bandit import Pipe, parse_policy
from stau_rl.heads import Head, Softmax
from stau_rl.regret.regrets import Regrets
from stau_rl.regret.tables import compare, summarise
from stau_rl.spec.grammar import SpecError
from stau_rl.terminal.glossary import HINT

SAME_SLOPE = 0.005
"""A softmax counts as the matched control of a head if its slope at score 0 is within this share of the head's."""
PERCENT = ("percent", "percent_low", "percent_high")


def matched_controls(policies: list[str]) -> dict[str, str]:
    """For each policy, the softmax of the list on the same scores whose slope at score 0 is nearest, if near enough.

    A head that changes with t has no one slope, and so no control.
    """
    pipes = {text: pipe for text in policies if (pipe := _pipe(text)) is not None and not pipe.head.schedules}
    found = {}
    for text, pipe in pipes.items():
        if isinstance(pipe.head, Softmax) or not pipe.head.smooth_at_zero:
            continue
        slope = pipe.head.slope_at_zero()
        if not 0.0 < slope < math.inf:
            continue
        distances = {
            other_text: abs(other.head.slope_at_zero() / slope - 1.0)
            for other_text, other in pipes.items()
            if isinstance(other.head, Softmax) and other.score == pipe.score
        }
        nearest = min(distances, key=distances.__getitem__, default=None)
        if nearest is not None and distances[nearest] < SAME_SLOPE:
            found[text] = nearest
    return found


def final_rows(result: Regrets) -> pd.DataFrame:
    """One row per policy at the horizon: the summary, the raw comparison and the matched one.

    Returns:
        The columns of `summarise`, those of `compare` against the baseline, and `matched` (text),
        `matched_percent`, `matched_percent_low`, `matched_percent_high`; nan where there is nothing to compare.
    """
    rows = _last(result, summarise(result))
    rows = rows.join(_last(result, compare(result)).drop(columns=["step"]))
    matched = []
    for text, control in matched_controls(result.policies).items():
        against = _last(result, compare(result, control)).loc[text]
        matched.append({"policy": text, "matched": control} | {f"matched_{name}": against[name] for name in PERCENT})
    columns = ["policy", "matched", *(f"matched_{name}" for name in PERCENT)]
    return rows.join(pd.DataFrame(matched, columns=columns).set_index("policy")).reset_index()


def _last(result: Regrets, table: pd.DataFrame) -> pd.DataFrame:
    return table[table["step"] == result.spec["checkpoints"][-1]].set_index("policy")


def _baseline(result: Regrets) -> str:
    """The baseline of `compare`: the spec's, or the first policy where it names none."""
    return str(result.spec.get("baseline") or result.policies[0])


def render(result: Regrets, explain: bool = True) -> RenderableType:
    """The tables and the sentences below them, for a rich console; with `explain`, what the columns mean."""
    rows = final_rows(result)
    return Group(_comparison(result, rows, explain), Text(), _spread(result, rows))


def comparison(result: Regrets) -> RenderableType:
    """The first table of `render` and the sentences below it: what one seed determines, the runs' speed left out."""
    return _comparison(result, final_rows(result))


def _comparison(result: Regrets, rows: pd.DataFrame, explain: bool = True) -> Group:
    spec, records = result.spec, rows.to_dict("records")
    title = (
        f"Pseudo-regret after {spec['horizon']} steps on {result.arms_shown}, {spec['instances']} instances, "
        f"seed {spec['seed']}: mean and 95 % interval"
    )
    table = _table(title, ("regret", "raw: % vs baseline", "matched: % vs softmax", "p (Holm)"))
    for row in records:
        baseline = row["policy"] == _baseline(result)
        table.add_row(
            Text(row["policy"]),
            interval(row["regret"], row["regret_low"], row["regret_high"], ".4g", signed=False),
            "baseline" if baseline else _percent(row, ""),
            "" if pd.isna(row["matched"]) else _percent(row, "matched_"),
            "" if baseline or pd.isna(row["p_holm"]) else p_value(row["p_holm"]),
        )
    return Group(table, Text("\n".join(sentences(result, rows, explain))))


def _spread(result: Regrets, rows: pd.DataFrame) -> Table:
    table = _table(
        "The runs behind it: median, 5 % and 95 % quantiles, mean of the worst 5 %; share of runs whose last pull is "
        "optimal; share stuck: less than 1 % optimal pulls in the last tenth",
        ("median [q05, q95]", "worst 5 %", "best arm at end", "stuck", "M arm-steps/s"),
    )
    speed = result.timing.get("arm_steps_per_second", {})
    for row in rows.to_dict("records"):
        table.add_row(
            Text(row["policy"]),
            interval(row["q50"], row["q05"], row["q95"], ".4g", signed=False),
            f"{row['cvar95']:.4g}",
            f"{100 * row['best_arm_rate']:.1f} %",
            f"{100 * row['stuck_rate']:.1f} %",
            three_digits(speed[row["policy"]] / 1e6) if row["policy"] in speed else "-",
        )
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy", overflow="fold", min_width=34)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _percent(row: dict[Any, Any], prefix: str) -> str:
    """A percentage with its interval; a dash where the regret that it would be a share of is not above 0."""
    values = [row[f"{prefix}{name}"] for name in PERCENT]
    return "-" if math.isnan(values[0]) else interval(*values)


def three_digits(value: float) -> str:
    """A positive number with three significant digits, or all those before the point."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def interval(value: float, low: float, high: float, form: str = "", signed: bool = True) -> str:
    """Text of a number with its interval, `-32.1 [-35.0, -29.0]`; by default to a digit that shows the width."""
    sign = "+" if signed else ""
    if math.isnan(low):
        return f"{value:{sign}{form or '.1f'}}"
    if not form:
        width = high - low
        form = f".{min(4, max(1, -math.floor(math.log10(width))))}f" if 0.0 < width < math.inf else ".1f"
    return f"{value:{sign}{form}} [{low:{sign}{form}}, {high:{sign}{form}}]"


def none_or_less(regrets: Iterable[float]) -> str:
    """Text of regrets that no percentage is taken of: `0`, or `0 or less` where one is below."""
    return "0 or less" if min(regrets) < 0 else "0"


def p_value(value: float) -> str:
    """Text of a p-value; those too small to tell apart are `<1e-16`."""
    return "<1e-16" if value < 1e-16 else f"{value:.1g}"


def sentences(result: Regrets, rows: pd.DataFrame, explain: bool = True) -> Iterator[str]:
    """What the table says about each head that has both a raw and a matched comparison, and where both stand."""
    by_policy = {row["policy"]: row for row in rows.to_dict("records")}
    baseline = _baseline(result)
    if explain:
        yield (
            f"Raw: against {baseline}. Matched: against the softmax that is equally steep at score 0. Differences are "
            "paired by instance; negative is less regret. p: of raw, adjusted for the number of policies."
        )
    else:
        yield HINT
    yield from result.spec.get("notes", [])
    base = _pipe(baseline)
    for text, row in by_policy.items():
        pipe = _pipe(text)
        if pd.isna(row["matched_percent"]) or text == baseline or pipe is None:
            continue
        if pd.isna(row["percent"]):
            yield f"{text}:"
        else:
            yield f"{text}: {_more_or_less(row, 'percent', 'the baseline')}."
        same_score = base is not None and base.score == pipe.score
        base_slope = _slope(base.head) if base is not None and same_score else 0.0
        ratio = _slope(pipe.head) / base_slope if base_slope > 0.0 else 0.0
        if ratio:
            yield f"  At score 0 its log-weights are {ratio:.3g} times as steep as the baseline's."
        yield f"  {_more_or_less(row, 'matched_percent', row['matched'])}, which is equally steep there."
        if ratio > 1.0 + SAME_SLOPE and row["percent_high"] < 0 and row["matched_percent_high"] >= 0:
            yield "  So its gain over the baseline is that of a sharper temperature, not of its shape."
    yield from _missing_controls(result.policies)
    compared = [baseline] if len(by_policy) > 1 else []
    compared += [row["matched"] for row in by_policy.values() if not pd.isna(row["matched"])]
    if idle := [text for text in dict.fromkeys(compared) if by_policy[text]["regret"] <= 0]:
        regret = none_or_less(by_policy[text]["regret"] for text in idle)
        yield f"Without a percentage are comparisons with {', '.join(idle)}, whose regret is {regret}."
    reference = [name for name in ("random", "ucb1") if name in by_policy and name != baseline]
    if reference:
        standing = ", ".join(f"{name} {by_policy[name]['regret']:.4g}" for name in reference)
        yield f"For scale: {standing}, baseline {by_policy[baseline]['regret']:.4g}."


def _missing_controls(policies: list[str]) -> Iterator[str]:
    """Name the control that a policy lacks, so that it can be added to the run."""
    controls = matched_controls(policies)
    for text in policies:
        pipe = _pipe(text)
        if pipe is None or text in controls or isinstance(pipe.head, Softmax) or (slope := _slope(pipe.head)) <= 0:
            continue
        yield f"{text} has no equally sharp control in this run: add '{pipe.score} | softmax(beta={slope:.4g})'."


def _pipe(text: str) -> Pipe | None:
    """The policy if it is a pipe; a result may name plug-in heads that are not loaded here."""
    try:
        policy = parse_policy(text)
    except SpecError:
        return None
    return policy if isinstance(policy, Pipe) else None


def _slope(head: Head) -> float:
    """Slope at score 0, or 0 where there is no one slope."""
    return head.slope_at_zero() if head.smooth_at_zero and not head.schedules else 0.0


def _more_or_less(row: dict[Any, Any], column: str, other: str) -> str:
    value, low, high = row[column], row[f"{column}_low"], row[f"{column}_high"]
    shown = interval(value, low, high)
    if math.isnan(low):
        return f"{shown} % regret against {other}, without an interval"
    if low <= 0.0 <= high:
        return f"No measurable difference in regret ({shown} %) from {other}"
    size = shown.split()[0].lstrip("+-")
    return f"{size} % {'less' if value < 0 else 'more'} regret ({shown} %) than {other}"
