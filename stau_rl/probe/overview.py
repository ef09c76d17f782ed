"""The first table of a probe: what tells most, a row per normaliser, with intervals over seeds, on one screen."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.probe.metrics import METRICS
from stau_rl.probe.summary import UNBOUNDED
from stau_rl.statistics.means import mean_interval
from stau_rl.terminal.glossary import HINT

SHOWN = {
    "recall": "right slot",
    "decoded": "right answer",
    "commit_rate": "commits",
    "mass_unanswerable": "mass, absent",
    "auroc": "AUROC",
}
"""The metrics, and their titles."""
ROWS, FEWEST = 24, 3
"""Rows of a screen, and of a setting where it has so many."""


def overview(rows: pd.DataFrame, explain: bool = True) -> RenderableType:
    """A table for a rich console of 100 columns: the mean over seeds and its 95 % interval.

    Of settings with more normalisers than a screen has room for, those of most right answers are shown.
    """
    # A column without a number says nothing.
    shown = [metric for metric in SHOWN if rows[metric].notna().any()]
    lengths = rows["factor"].nunique() > 1
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Mean over seeds [95 % interval]", title_justify="left")
    table.add_column("task, normaliser", overflow="fold", min_width=36)
    if lengths:
        table.add_column("length", justify="right")
    for metric in shown:
        table.add_column(SHOWN[metric], justify="right", no_wrap=True)
    settings = list(rows.groupby(["part", "task"], sort=False))
    room = max(FEWEST, ROWS // len(settings) - 1)
    for (part, task), group in settings:
        seeds = group["seed"].nunique()
        steps = f"{seeds} seed{'s' * (seeds != 1)}, {int(group['steps'].iloc[0])} steps"
        table.add_row(Text(f"{task}" + ("" if part in (task, "probe") else f" ({part})") + f": {steps}", style="bold"))
        each = list(group.groupby(["normaliser", "factor"], sort=False))
        for (normaliser, factor), own in _most_right(each, room):
            length = [f"{factor}x"] if lengths else []
            table.add_row(Text(f"  {normaliser}"), *length, *(interval(own[metric], metric) for metric in shown))
        if len(each) > room:
            table.add_row(Text(f"  ... {len(each) - room} more in summary.csv"))
    notes = "\n".join(f"{SHOWN[metric]}: {METRICS[metric]}." for metric in shown)
    return Group(table, Text(notes if explain else HINT))


def _most_right(each: Sequence[tuple[Any, pd.DataFrame]], room: int) -> list[tuple[Any, pd.DataFrame]]:
    order = sorted(range(len(each)), key=lambda number: -each[number][1]["decoded"].fillna(0).mean())
    kept = sorted(order[:room])
    return [each[number] for number in kept]


def interval(values: Sequence[float] | pd.Series, metric: str) -> str:
    """`mean [low, high]` over seeds, cut to [0, 1] for a share; the mean alone of a single seed; empty without any."""
    known = pd.Series(values).dropna().to_numpy(dtype=np.float64)
    if not len(known):
        return ""
    found = mean_interval(known)
    if np.isnan(found.se):
        return _short(found.mean)
    ends = np.array([found.low, found.high])
    if metric not in UNBOUNDED:
        ends = np.clip(ends, 0.0, 1.0 if known.max() < 1 + 1e-4 else np.inf)
    return f"{_short(found.mean)} [{_short(ends[0])}, {_short(ends[1])}]"


def _short(value: float) -> str:
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.0f}"
    return {"0.000": "0", "1.000": "1"}.get(text, text.removeprefix("0"))
