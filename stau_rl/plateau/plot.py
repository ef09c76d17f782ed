"""The curves of a plateau benchmark: distance to the best reward over updates, log-log, with quantile bands."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS, DASHES
from stau_rl.files.whole import whole_file

PANEL = (4.2, 3.4)
FLOOR = 1e-6
BANDED = 4
"""Bands of the first so many methods are drawn; more would hide one another."""


def draw_plateau(curves: pd.DataFrame, within: float = 0.01) -> Figure:
    """A panel per problem: a line of panels per gradient and number of arms, a column per start.

    Args:
        curves: rows of kind `curve`.
        within: where to draw the line that counts as there.

    Returns:
        A new figure.
    """
    lines = list(curves.groupby(["gradient", "arms"], sort=False))
    starts = list(curves["start"].unique())
    methods = list(curves["method"].unique())
    size = (PANEL[0] * len(starts), PANEL[1] * len(lines) + 0.3 * (len(methods) // 2 + 1))
    figure = Figure(figsize=size, layout="constrained")
    handles: dict[str, Artist] = {}
    for number, ((gradient, arms), mine) in enumerate(lines):
        for column, start in enumerate(starts):
            here = mine[mine["start"] == start]
            if here.empty:
                continue
            panel = figure.add_subplot(len(lines), len(starts), number * len(starts) + column + 1)
            handles |= _panel(panel, here, methods)
            panel.axhline(within, color="black", linewidth=0.6)
            panel.set_title(f"K = {arms}, {start}, {gradient}", fontsize=9)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


def _panel(panel: Axes, curves: pd.DataFrame, methods: list[str]) -> dict[str, Artist]:
    lines: dict[str, Artist] = {}
    for method, mine in curves.groupby("method", sort=False):
        number = methods.index(str(method))
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        # Update 0 has no place on a log axis; half a step before the first is where it is drawn.
        steps = mine["step"].clip(lower=0.5)
        levels = [mine[name].clip(lower=FLOOR) for name in ("gap_q10", "gap_q50", "gap_q90")]
        (lines[str(method)],) = panel.plot(steps, levels[1], color=colour, linestyle=dash, linewidth=1.4)
        if number < BANDED:
            panel.fill_between(steps, levels[0], levels[2], color=colour, alpha=0.1, linewidth=0)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(FLOOR, 1.0)
    panel.set_xlabel("updates")
    panel.set_ylabel("best reward - V")
    panel.grid(True, linewidth=0.4, alpha=0.5)
    return lines


def save_plateau(curves: pd.DataFrame, path: Path, dpi: int = 80) -> None:
    """Write the figure as PNG; equal rows give equal bytes, whatever the user's style."""
    with mpl.rc_context():
        mpl.rcdefaults()
        with whole_file(path) as temporary:
            draw_plateau(curves).savefig(temporary, format="png", dpi=dpi, metadata={"Software": None})
