"""What a plateau benchmark prints: a table per gradient and number of arms, methods down, starts across."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.terminal.glossary import HINT

EDGES = {"low": "v", "high": "^"}
LEFT = 0.005
"""Share of draws from which it is told that they were there and left again."""
HEAD, CELL, GAP = 34, 22, 2
"""Columns of text: of a head, of a cell such as `>20000 [15696, >20000]`, and between two cells."""


def render(rows: pd.DataFrame, explain: bool = True) -> RenderableType:
    """The tables, for a rich console; with `explain`, what they mean."""
    best = rows[rows["kind"] == "best"]
    parts: list[RenderableType] = []
    for (gradient, arms), mine in best.groupby(["gradient", "arms"], sort=False):
        title = f"{gradient} gradient, K = {arms}: draws not there, %; updates until there (median); step size"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("head", no_wrap=True, min_width=HEAD)
        starts = list(mine["start"].unique())
        for start in starts:
            table.add_column(start, justify="right", no_wrap=True, min_width=CELL)
        for method, group in mine.groupby("method", sort=False):
            by_start: dict[Any, dict[Any, Any]] = {row["start"]: row for row in group.to_dict("records")}
            table.add_row(str(method), *("\n".join(cells(by_start[start])) for start in starts if start in by_start))
        parts.append(table)
    parts.append(Text("\n".join(notes(rows, explain))))
    return Group(*parts)


def width(rows: pd.DataFrame) -> int:
    """How many columns of text the widest table needs."""
    return max(len(method) for method in (*rows["method"], HEAD * " ")) + (CELL + GAP) * rows["start"].nunique()


def cells(row: dict[Any, Any]) -> tuple[str, str, str]:
    """`41 [35, 47] %`, `7806 [5120, >20000]`, `at 40^`: share of failures, median of steps, step size."""
    return f"{share_text(row)} %", steps_text(row), f"at {row['step_size']:g}{EDGES.get(row['edge'], '')}"


def share_text(row: dict[Any, Any]) -> str:
    """Share of failures in percent with its interval."""
    return f"{100 * row['failed']:.0f} [{100 * row['failed_low']:.0f}, {100 * row['failed_high']:.0f}]"


def steps_text(row: dict[Any, Any]) -> str:
    """Median of steps with its interval; a failure is more than all updates."""
    ends = [_count(row[name], row["updates"]) for name in ("steps", "steps_low", "steps_high")]
    return ends[0] if len(set(ends)) == 1 else f"{ends[0]} [{ends[1]}, {ends[2]}]"


def _count(value: float, updates: int) -> str:
    # Too few draws for an interval leave its lower end open.
    if value == -math.inf:
        return "0"
    return f">{int(updates)}" if math.isinf(value) else f"{value:.0f}"


def notes(rows: pd.DataFrame, explain: bool = True) -> Iterator[str]:
    """What the numbers are, and what to be careful about."""
    best, grid = rows[rows["kind"] == "best"], rows[rows["kind"] == "grid"]
    first = best.iloc[0]
    sizes = sorted(grid["step_size"].unique())
    meaning = (
        f"There: within {first['within']:g} of the best reward at some time. {int(first['draws'])} draws of rewards, "
        f"up to {int(first['updates'])} updates; 95 % intervals. Each head at the best of the same {len(sizes)} step "
        f"sizes, {sizes[0]:g} to {sizes[-1]:g}, chosen on {int(grid['draws'].iloc[0])} other draws."
    )
    yield meaning if explain else HINT
    trivial = best.groupby(["arms", "start"], sort=False)["at_start"].max().reset_index()
    early = [
        f"{100 * row['at_start']:.0f} % (K = {row['arms']}, {row['start']})"
        for row in trivial[trivial["at_start"] > 0].to_dict("records")
    ]
    if early:
        yield f"Draws that are there before the first update: {', '.join(early)}."
    # Read from a file, what is empty is nan.
    edges = best[best["edge"].isin(EDGES)]
    if len(edges):
        yield f"Cases in which the best step size lies at an end of the grid (^ or v): {len(edges)}."
    left = best[best["outside_at_end"] - best["failed"] >= LEFT]
    again = [
        f"`{row['method']}` {100 * (row['outside_at_end'] - row['failed']):.0f} % (K = {row['arms']}, {row['start']}, "
        f"{row['gradient']})"
        for row in left.to_dict("records")
    ]
    if again:
        yield f"Draws that were there and are outside again after the last update: {', '.join(again)}."
