"""Sensitivity curves of a study: regret over a family's parameter, with bands that hold for a whole curve at once."""

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from stau_rl.figures.coincide import NOTE, show_coinciding
from stau_rl.figures.grid import legend_below, panels
from stau_rl.figures.palette import Look, looks
from stau_rl.figures.save import save
from stau_rl.figures.style import ground, headline, plain_log, styled
from stau_rl.study.family import Family


@styled
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
    figure, each = panels(len(settings), 2.7)
    keys: dict[str, Any] = {}
    for panel, group in zip(each, settings, strict=True):
        styles = family_looks(group)
        keys |= curve_panel(panel, group[group["comparison"] == "curve"], str(group["value"].iloc[0]), styles)
        keys |= _level_lines(panel, group, styles)
    if settings:
        headline(figure, "How much does each family lose, over its sharpness?")
    legend_below(figure, keys, 3, note=NOTE)
    return figure


def family_looks(rows: pd.DataFrame) -> dict[str, Look]:
    """A look for every family of a setting; settings that name the same heads in the same order have the same looks."""
    families = [str(family) for family in rows["family"].unique()]
    return dict(zip(families, looks(families, ground()), strict=True))


def curve_panel(panel: Axes, curves: pd.DataFrame, title: str, styles: dict[str, Look]) -> dict[str, Line2D]:
    """Draw one setting's curves: mean regret over the slope, a line and a band per family.

    Returns:
        Lines for a legend, by name.
    """
    lines, keys = [], {}
    for family, mine in curves.groupby("family", sort=False):
        points, look = mine.sort_values("slope"), styles[str(family)]
        label = Family(str(family)).name
        keys[label] = look.key()
        lines += panel.plot(points["slope"], points["regret"], marker=".", label=label, **look.line)
        # On a log scale a band that reaches 0 goes down to the frame instead of ending early.
        floor = 0.1 * float(mine["regret"].min())
        low = points["band_low"].clip(lower=floor)
        panel.fill_between(points["slope"], low, points["band_high"], color=look.colour, alpha=0.2, linewidth=0)
    panel.set_xscale("log")
    if (curves["regret"] > 0).all():
        panel.set_yscale("log")
        plain_log(panel, "y")
    plain_log(panel, "x")
    show_coinciding(panel, lines)
    panel.set_xlabel("slope of log-weights at the scores", fontsize="small")
    panel.set_ylabel("pseudo-regret", fontsize="small")
    panel.set_title(title, fontsize="small", wrap=True)
    return keys


def _level_lines(panel: Axes, group: pd.DataFrame, styles: dict[str, Look]) -> dict[str, Line2D]:
    """Draw what has no parameter as a level line: the reference policies, and families that take part as they are."""
    curves = set(group.loc[group["comparison"] == "curve", "family"])
    keys = {}
    fixed = (group["comparison"] == "reference") | ((group["comparison"] == "raw") & ~group["family"].isin(curves))
    for row in group[fixed].to_dict("records"):
        look, label = styles[str(row["family"])], Family(str(row["family"])).shown
        keys[label] = look.key()
        panel.axhline(row["regret"], label=label, linewidth=1.2, **look.line)
    if panel.get_yscale() == "log":
        plain_log(panel, "y")
    return keys


def save_study(rows: pd.DataFrame, path: Path) -> None:
    """Write the curves of all settings as PNG or SVG; equal rows give equal bytes, whatever the user's style."""
    save(lambda: draw_study(rows), path, dpi=120)
