"""The curves of a plateau benchmark: distance to the best reward over updates, log-log, with quantile bands."""

import textwrap
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.coincide import show_coinciding
from stau_rl.figures.grid import legend_below, panels
from stau_rl.figures.palette import INK, Look, looks
from stau_rl.figures.save import save
from stau_rl.figures.style import ground, headline, plain_log, styled

FLOOR = 1e-6
BANDED = 4
"""Bands of the first so many methods are drawn; more would hide one another."""


@styled
def draw_plateau(curves: pd.DataFrame, within: float = 0.01) -> Figure:
    """A panel per problem: a line of panels per number of arms and start, a column per gradient.

    Args:
        curves: rows of kind `curve`.
        within: where to draw the line that counts as there.

    Returns:
        A new figure.
    """
    gradients = list(curves["gradient"].unique())
    problems = list(curves[["arms", "start"]].drop_duplicates().itertuples(index=False, name=None))
    methods = [str(method) for method in curves["method"].unique()]
    styles = dict(zip(methods, looks(methods, ground()), strict=True))
    figure, each = panels(len(problems) * len(gradients), 2.6, columns=len(gradients), sharex=True, sharey=True)
    for number, panel in enumerate(each):
        (arms, start), gradient = problems[number // len(gradients)], gradients[number % len(gradients)]
        here = curves[(curves["arms"] == arms) & (curves["start"] == start) & (curves["gradient"] == gradient)]
        if here.empty:
            panel.set_visible(False)
            continue
        _panel(panel, here, styles)
        panel.axhline(within, color=INK[ground()], linewidth=0.9)
        panel.set_title(f"{gradient} gradient, {start}, K = {arms}", fontsize="small")
        if number % len(gradients) == 0:
            panel.set_ylabel("best reward − V", fontsize="small")
        if number >= len(each) - len(gradients):
            panel.set_xlabel("updates", fontsize="small")
    banded = ", ".join(methods[:BANDED])
    headline(figure, "Who gets away from a suboptimal arm?")
    note = textwrap.fill(f"medians over draws; bands from 10 % to 90 %: {banded}", 80)
    legend_below(figure, {name: look.key() for name, look in styles.items()}, note=note)
    return figure


def _panel(panel: Axes, curves: pd.DataFrame, styles: dict[str, Look]) -> None:
    lines = []
    for method, mine in curves.groupby("method", sort=False):
        look = styles[str(method)]
        # Update 0 has no place on a log axis; half a step before the first is where it is drawn.
        steps = mine["step"].clip(lower=0.5)
        levels = [mine[name].clip(lower=FLOOR) for name in ("gap_q10", "gap_q50", "gap_q90")]
        lines += panel.plot(steps, levels[1], linewidth=1.6, **look.line)
        if list(styles).index(str(method)) < BANDED:
            panel.fill_between(steps, levels[0], levels[2], color=look.colour, alpha=0.1, linewidth=0)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(FLOOR, 1.0)
    plain_log(panel, "x")
    plain_log(panel, "y")
    show_coinciding(panel, lines)


def save_plateau(curves: pd.DataFrame, *paths: Path) -> None:
    """Write the figure as PNG or SVG; equal rows give equal bytes, whatever the user's style."""
    save(lambda: draw_plateau(curves), *paths, dpi=150)
