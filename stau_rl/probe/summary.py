"""A probe's rows over seeds: median, worst seed and interval."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.probe.metrics import METRICS
from stau_rl.statistics.means import mean_interval
from stau_rl.terminal.glossary import HINT

GOOD_HIGH = frozenset(
    {
        *("recall", "worst_key", "decoded", "decoded_worst_key", "silent_decoded", "auroc"),
        *("mass_answerable", "top1_mass", "top10_mass"),
    }
)
"""Metrics whose worst seed is the lowest; of the others it is the highest."""
UNBOUNDED = frozenset({"kurtosis"})
KEYS = ("part", "task", "normaliser", "factor")
TABLES = (
    ("recall", "worst_key", "decoded", "decoded_worst_key", "false_refusal", "commit_rate", "hallucination"),
    ("mass_answerable", "mass_unanswerable", "auroc", "dead_row_rate", "risk_80", "aurc", "silent_decoded"),
    ("sink_mass", "entropy", "top1_mass", "top10_mass", "below_1e6", "kurtosis"),
)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per setting, normaliser, length and metric, over the seeds.

    Returns:
        Columns `part, task, normaliser, factor, metric, median, worst, low, high, seeds`: the worst seed's value, and
        the 95 % Student interval of the mean over seeds, cut to [0, 1] where the metric is a share; masses that are
        not normalised may exceed 1, and so may their interval. Empty metrics are left out.
    """
    found = []
    for keys, group in rows.groupby(list(KEYS), sort=False):
        for metric in METRICS:
            values = group[metric].dropna().to_numpy(dtype=np.float64)
            if not len(values):
                continue
            interval = mean_interval(values)
            low, high = interval.low, interval.high
            if metric not in UNBOUNDED:
                # Rounding takes sums of weights a little above 1.
                low, high = np.clip([low, high], 0.0, 1.0 if values.max() < 1 + 1e-4 else np.inf)
            worst = values.min() if metric in GOOD_HIGH else values.max()
            named: dict[str, Any] = dict(zip(KEYS, keys, strict=True))
            numbers = {"median": np.median(values), "worst": worst, "low": low, "high": high, "seeds": len(values)}
            found.append(named | {"metric": metric} | numbers)
    return pd.DataFrame(found, columns=[*KEYS, "metric", "median", "worst", "low", "high", "seeds"])


def render(rows: pd.DataFrame, explain: bool = True) -> RenderableType:
    """Tables for a rich console of 120 columns or more: a table per setting with the median and worst seed."""
    found = summary(rows)
    parts: list[RenderableType] = []
    for (part, task), group in found.groupby(["part", "task"], sort=False):
        about = rows[(rows["part"] == part) & (rows["task"] == task)].iloc[0]
        seeds = rows.loc[(rows["part"] == part) & (rows["task"] == task), "seed"].nunique()
        title = (
            f"{task}: median of {seeds} seeds (worst); {about['layers']} layer(s), {about['steps']} steps of "
            f"{about['batch']}, {about['items']} test items, {about['positions']} positions"
        )
        for shown in TABLES:
            parts.append(_table(group, title, shown))
            title = ""
    parts.append(Text("\n".join(notes()) if explain else HINT))
    return Group(*parts)


def _table(group: pd.DataFrame, title: str, metrics: tuple[str, ...]) -> Table:
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    known = [metric for metric in metrics if (group["metric"] == metric).any()]
    lengths = group["factor"].nunique() > 1
    table.add_column("normaliser", overflow="fold", min_width=20)
    if lengths:
        table.add_column("length", justify="right")
    for metric in known:
        words = metric.split("_")
        table.add_column("\n".join(words), justify="right", min_width=max(6, *map(len, words)), vertical="bottom")
    for (normaliser, factor), own in group.groupby(["normaliser", "factor"], sort=False):
        cells = {row["metric"]: cell(row["median"], row["worst"]) for row in own.to_dict("records")}
        # As text: rich would take `[tau]` for markup.
        head = [Text(str(normaliser)), f"{factor}x"] if lengths else [Text(str(normaliser))]
        table.add_row(*head, *(cells.get(metric, "") for metric in known))
    return table


def cell(median: float, worst: float) -> str:
    """`median (worst)`, without the bracket where the two are equal as shown."""
    texts = [_short(value) for value in (median, worst)]
    return texts[0] if texts[0] == texts[1] else f"{texts[0]} ({texts[1]})"


def _short(value: float) -> str:
    if abs(value) >= 10:
        return f"{value:.0f}"
    return "1" if value == 1 else f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"


def notes() -> Iterator[str]:
    """What the columns mean."""
    for metric in METRICS:
        yield f"{metric.replace('_', ' ')}: {METRICS[metric]}."
