"""Sensitivity curves of a study: regret over a family's parameter, with bands that hold for a whole curve at once."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from stau_rl.figures.coincide import NOTE, show_coinciding
from stau_rl.figures.grid import legend_below, panels
from stau_rl.figures.palette import Look, looks
from stau_rl.figures.save import save
from stau_rl.figures.style import ground, headline, plain, plain_log, styled
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
        own = any(Family(str(family)).parameter for group in settings for family in group["family"].unique())
        headline(figure, f"How much does each family lose, over its {'parameter' if own else 'sharpness'}?")
    legend_below(figure, keys, 3, note=NOTE)
    return figure


def family_looks(rows: pd.DataFrame) -> dict[str, Look]:
    """A look for every family of a setting; settings that name the same heads in the same order have the same looks."""
    families = [str(family) for family in rows["family"].unique()]
    return dict(zip(families, looks(families, ground()), strict=True))


def curve_panel(panel: Axes, curves: pd.DataFrame, title: str, styles: dict[str, Look]) -> dict[str, Line2D]:
    """Draw one setting's curves: mean regret over slope or parameter, a line and a band per family.

    Returns:
        Lines for a legend, by name.
    """
    lines, keys = [], {}
    families = [Family(str(text)) for text in curves["family"].unique()]
    smallest, signed = math.inf, False
    for family in families:
        mine = curves[curves["family"] == family.text]
        points, look = mine.sort_values("slope"), styles[family.text]
        places = points["slope"].map(family.value_of) if family.parameter else points["slope"]
        smallest = min(smallest, float(places[places != 0].abs().min()))
        signed = signed or bool((places <= 0).any())
        keys[family.name] = look.key()
        lines += panel.plot(places, points["regret"], marker=".", label=family.name, **look.line)
        # On a log scale a band that reaches 0 goes down to the frame instead of ending early.
        floor = 0.1 * float(mine["regret"].min())
        low = points["band_low"].clip(lower=floor)
        panel.fill_between(places, low, points["band_high"], color=look.colour, alpha=0.2, linewidth=0)
    if signed:
        # Of a grid set by hand, which may hold 0 and negative numbers.
        panel.set_xscale("symlog", linthresh=smallest)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    else:
        panel.set_xscale("log")
    if (curves["regret"] > 0).all():
        panel.set_yscale("log")
        plain_log(panel, "y")
    if not signed:
        plain_log(panel, "x")
    show_coinciding(panel, lines)
    panel.set_xlabel(_axis_label(families), fontsize="small")
    panel.set_ylabel("pseudo-regret", fontsize="small")
    panel.set_title(title, fontsize="small", wrap=True)
    return keys


def _axis_label(families: list[Family]) -> str:
    """What the curves of some families are drawn over: slopes, and by name what else is tuned."""
    own = [f"{family.parameter} of {family.shown}" for family in families if family.parameter]
    return "\n".join([*([] if len(own) == len(families) else ["slope of log-weights at the scores"]), *own])


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


def save_study(rows: pd.DataFrame, *paths: Path) -> None:
    """Write the curves of all settings as PNG, SVG or PDF; equal rows give equal bytes, whatever the user's style."""
    save(lambda: draw_study(rows), *paths, dpi=120)
