"""Sensitivity curves of a study: regret over a family's parameter, with bands that hold for a whole curve at once."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.atomic import whole_file
from stau_rl.plotting import COLOURS, DASHES

COLUMNS, PANEL = 2, (5.0, 3.2)


def draw_study(rows: pd.DataFrame, sweep: str = "base") -> Figure:
    """A panel per setting of a sweep that has curves.

    Args:
        rows: the table of a study.
        sweep: an axis, or `base`.

    Returns:
        A new figure; empty where nothing was tuned.
    """
    curves = rows[(rows["comparison"] == "curve") & (rows["sweep"] == sweep)]
    settings = list(curves.groupby("setting", sort=False))
    lines = max(1, -(-len(settings) // COLUMNS))
    figure = Figure(figsize=(COLUMNS * PANEL[0], lines * PANEL[1]), layout="constrained")
    for number, (_, mine) in enumerate(settings):
        panel = figure.add_subplot(lines, COLUMNS, number + 1)
        curve_panel(panel, mine, str(mine["value"].iloc[0]))
        panel.legend(fontsize=8, frameon=False)
    return figure


def curve_panel(panel: Axes, curves: pd.DataFrame, title: str) -> None:
    """Draw one setting's curves: mean regret over the slope, a line and a band per family."""
    for number, (family, mine) in enumerate(curves.groupby("family", sort=False)):
        points = mine.sort_values("slope")
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        label = str(family).split("|", 1)[-1].split("(", 1)[0].strip()
        panel.plot(points["slope"], points["regret"], color=colour, linestyle=dash, marker=".", label=label)
        # On a log scale a band that reaches 0 goes down to the frame instead of ending early.
        floor = 0.1 * float(mine["regret"].min())
        low = points["band_low"].clip(lower=floor)
        panel.fill_between(points["slope"], low, points["band_high"], color=colour, alpha=0.2, linewidth=0)
    panel.set_xscale("log")
    if (curves["regret"] > 0).all():
        panel.set_yscale("log")
    panel.set_xlabel("slope of the log-weight where the scores lie")
    panel.set_ylabel("pseudo-regret")
    panel.set_title(title, fontsize=10)
    panel.grid(True, linewidth=0.4, alpha=0.5)


def save_study(rows: pd.DataFrame, path: Path) -> None:
    """Write the curves of the base settings as PNG; equal rows give equal bytes, whatever the user's style."""
    with mpl.rc_context():
        mpl.rcdefaults()
        with whole_file(path) as temporary:
            draw_study(rows).savefig(temporary, format="png", dpi=100, metadata={"Software": None})
