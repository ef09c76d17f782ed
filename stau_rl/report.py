"""What a regret benchmark prints: one table with raw and matched comparison side by side, and what it means."""

from collections.abc import Iterator

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.agents import Pipe, parse_policy
from stau_rl.heads import Head, Softmax
from stau_rl.result import RegretResult

# A softmax counts as the matched control of a head if its slope at score 0 is within this share of the head's.
SAME_SLOPE = 0.005


def matched_controls(policies: list[str]) -> dict[str, str]:
    """For each policy, the softmax on the same scores with the same slope at score 0, if it is in the list."""
    pipes = {text: policy for text in policies if isinstance(policy := parse_policy(text), Pipe)}
    found = {}
    for text, pipe in pipes.items():
        if isinstance(pipe.head, Softmax) or not pipe.head.smooth_at_zero:
            continue
        slope = pipe.head.slope_at_zero()
        for other_text, other in pipes.items():
            if (
                isinstance(other.head, Softmax)
                and other.score == pipe.score
                and abs(other.head.beta / slope - 1.0) < SAME_SLOPE
            ):
                found[text] = other_text
    return found


def final_rows(result: RegretResult) -> pd.DataFrame:
    """One row per policy at the horizon: the summary, the raw comparison and the matched one.

    Returns:
        The columns of `RegretResult.summary()`, those of `compare()` against the baseline, and `matched` (text),
        `matched_percent`, `matched_percent_low`, `matched_percent_high`; nan where there is nothing to compare.
    """
    rows = _last(result, result.summary())
    rows = rows.join(_last(result, result.compare()).drop(columns=["step"]))
    controls = matched_controls(result.policies)
    rows["matched"] = pd.Series(controls, dtype=object)
    percent = ["percent", "percent_low", "percent_high"]
    for control in set(controls.values()):
        against = _last(result, result.compare(control))
        for text in (text for text, other in controls.items() if other == control):
            for column in percent:
                rows.loc[text, f"matched_{column}"] = against.loc[text, column]
    for column in percent:
        if f"matched_{column}" not in rows:
            rows[f"matched_{column}"] = float("nan")
    return rows.reset_index()


def _last(result: RegretResult, table: pd.DataFrame) -> pd.DataFrame:
    return table[table["step"] == result.spec["checkpoints"][-1]].set_index("policy")


def render(result: RegretResult) -> RenderableType:
    """The table and the sentences below it, for a rich console."""
    rows = final_rows(result)
    spec = result.spec
    table = Table(
        title=f"Pseudo-regret after {spec['horizon']} steps on {spec['arms']}, {spec['instances']} instances, "
        f"seed {spec['seed']} (mean and 95 % interval)",
        title_justify="left",
    )
    table.add_column("policy", overflow="fold", min_width=24)
    for name in ("regret", "raw: % of baseline", "matched: % of equally sharp softmax", "p (Holm)"):
        table.add_column(name, justify="right")
    for name in ("median", "worst 5 %", "best arm", "stuck", "M arm-steps/s"):
        table.add_column(name, justify="right")
    speed = result.timing.get("arm_steps_per_second", {})
    for row in rows.to_dict("records"):
        baseline = row["policy"] == spec["baseline"]
        table.add_row(
            row["policy"],
            interval(row["regret"], row["regret_low"], row["regret_high"], ".4g", signed=False),
            "baseline" if baseline else interval(row["percent"], row["percent_low"], row["percent_high"]),
            ""
            if pd.isna(row["matched_percent"])
            else interval(row["matched_percent"], row["matched_percent_low"], row["matched_percent_high"]),
            "" if baseline or pd.isna(row["p_holm"]) else f"{row['p_holm']:.1g}",
            f"{row['q50']:.4g}",
            f"{row['cvar95']:.4g}",
            f"{100 * row['best_arm_rate']:.1f} %",
            f"{100 * row['stuck_rate']:.1f} %",
            f"{speed[row['policy']] / 1e6:.0f}" if row["policy"] in speed else "-",
        )
    return Group(table, Text("\n".join(sentences(result, rows))))


def interval(value: float, low: float, high: float, form: str = ".1f", signed: bool = True) -> str:
    """Text of a number with its interval, `-32.1 [-35.0, -29.0]`."""
    sign = "+" if signed else ""
    return f"{value:{sign}{form}} [{low:{sign}{form}}, {high:{sign}{form}}]"


def sentences(result: RegretResult, rows: pd.DataFrame) -> Iterator[str]:
    """What the table says about each head that has both a raw and a matched comparison, and where both stand."""
    by_policy = rows.set_index("policy")
    baseline = result.spec["baseline"]
    yield f"Baseline: {baseline}. Differences are paired by instance; negative is less regret."
    base_head = _head(baseline)
    for text, row in by_policy.iterrows():
        head = _head(str(text))
        if not row["matched"] or pd.isna(row["matched_percent"]) or text == baseline or head is None:
            continue
        yield f"{text} has {_more_or_less(row, 'percent')} regret than the baseline."
        if base_head is not None and base_head.smooth_at_zero and (base_slope := base_head.slope_at_zero()) > 0:
            ratio = head.slope_at_zero() / base_slope
            yield f"  Its log-weights are {ratio:.3g} times as steep in the score at 0 as the baseline's."
        matched = _more_or_less(row, "matched_percent")
        yield f"  Against {row['matched']}, which is equally steep there, it has {matched}."
        if row["percent_high"] < 0 and row["matched_percent_high"] >= 0:
            yield "  So its gain over the baseline is a sharper temperature, not the shape of the head."
    reference = [name for name in ("random", "ucb1") if name in by_policy.index]
    if reference:
        standing = ", ".join(f"{name} {by_policy.loc[name, 'regret']:.4g}" for name in reference)
        yield f"For scale: {standing}, baseline {by_policy.loc[baseline, 'regret']:.4g}."


def _head(text: str) -> Head | None:
    policy = parse_policy(text)
    return policy.head if isinstance(policy, Pipe) else None


def _more_or_less(row: "pd.Series[float]", column: str) -> str:
    value, low, high = row[column], row[f"{column}_low"], row[f"{column}_high"]
    if low <= 0.0 <= high:
        return (
            f"no measurable difference in regret ({interval(value, low, high)} %)"
            if "matched" in column
            else (f"no measurably different ({interval(value, low, high)} %)")
        )
    return f"{abs(value):.1f} % {'less' if value < 0 else 'more'} ({interval(value, low, high)} %)"
