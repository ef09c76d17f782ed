"""Sensitivity curves of a study: regret over a family's parameter, with bands that hold for a whole curve at once."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS, DASHES
from stau_rl.files.whole import whole_file
from stau_rl.study.family import Family

COLUMNS, PANEL = 3, (4.4, 3.1)
# Greys of lines that have no parameter: reference policies, and families without one.
GREYS = ("0.15", "0.45", "0.65")


def draw_study(rows: pd.DataFrame, sweep: str | None = None) -> Figure:
    """A panel per setting that has curves.

    Args:
        rows: the table of a study.
        sweep: an axis, or `base`; None for all settings.

    Returns:
        A new figure; empty where nothing was tuned.
    """
    mine = rows if sweep is None else rows[rows["sweep"] == sweep]
    settings = [group for _, group in mine.groupby("setting", sort=False) if (group["comparison"] == "curve").any()]
    columns = min(COLUMNS, max(1, len(settings)))
    lines = max(1, -(-len(settings) // columns))
    figure = Figure(figsize=(columns * PANEL[0], lines * PANEL[1]), layout="constrained")
    for number, group in enumerate(settings):
        panel = figure.add_subplot(lines, columns, number + 1)
        curve_panel(panel, group[group["comparison"] == "curve"], str(group["value"].iloc[0]))
        _level_lines(panel, group)
        panel.legend(fontsize=7, frameon=False)
    return figure


def curve_panel(panel: Axes, curves: pd.DataFrame, title: str) -> None:
    """Draw one setting's curves: mean regret over the slope, a line and a band per family."""
    for number, (family, mine) in enumerate(curves.groupby("family", sort=False)):
        points = mine.sort_values("slope")
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        label = Family(str(family)).name
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
    panel.set_title(title, fontsize=9)
    panel.grid(True, linewidth=0.4, alpha=0.5)


def _level_lines(panel: Axes, group: pd.DataFrame) -> None:
    """Draw what has no parameter as a level line: the reference policies, and families that take part as they are."""
    curves = set(group.loc[group["comparison"] == "curve", "family"])
    fixed = (group["comparison"] == "reference") | ((group["comparison"] == "raw") & ~group["family"].isin(curves))
    for number, row in enumerate(group[fixed].to_dict("records")):
        colour, dash = GREYS[number % len(GREYS)], DASHES[number % len(DASHES)]
        name = Family(str(row["family"])).shown
        panel.axhline(row["regret"], label=name, color=colour, linestyle=dash, linewidth=1.0)


def save_study(rows: pd.DataFrame, path: Path) -> None:
    """Write the curves of all settings as PNG; equal rows give equal bytes, whatever the user's style."""
    with mpl.rc_context():
        mpl.rcdefaults()
        with whole_file(path) as temporary:
            draw_study(rows).savefig(temporary, format="png", dpi=80, metadata={"Software": None})
