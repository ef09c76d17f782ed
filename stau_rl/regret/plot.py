"""Regret curves as a figure that survives a printout, a colour-blind reader and nine policies.

Nothing here goes through pyplot: no backend is chosen, no window opens, nothing is registered globally.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from stau_rl.figures.coincide import NOTE, show_coinciding
from stau_rl.figures.grid import one_panel
from stau_rl.figures.labels import label_ends
from stau_rl.figures.palette import INK, Ground, looks
from stau_rl.figures.save import save
from stau_rl.figures.style import ground_of, headline, plain_log, theme
from stau_rl.regret.regrets import Regrets
from stau_rl.regret.tables import summarise

Scale = Literal["log", "linear"]
Legend = Literal["outside", "inside", "none"]

BOUND_LABEL = "Lai–Robbins C ln t (asymptotic, not a bound at finite t)"
EMPIRICAL_BOUND_LABEL = BOUND_LABEL.replace("Lai–Robbins", "Burnetas–Katehakis")

HEIGHT = 4.6
"""Inches of a new figure."""


def plot_regret(
    result: Regrets,
    ax: Axes | None = None,
    *,
    scale: Scale = "log",
    policies: Sequence[str] | None = None,
    quantiles: bool = False,
    legend: Legend | None = None,
    labels: Mapping[str, str] | None = None,
    title: str | None = None,
) -> Axes:
    """Mean pseudo-regret against the step, with 95 % bands; curves that coincide are one line of all their colours.

    Args:
        result: what to draw.
        ax: where to draw; by default the axes of a new figure, which is `ax.figure` of the returned axes
            and is known to nobody else (in a notebook, end the cell with it).
        scale: `log` (both axes; only that of the step where all regrets are 0) or `linear`.
        policies: the policies to draw, in this order; by default all. A policy keeps its colour in any
            choice.
        quantiles: draw the 5 % and 95 % quantiles over instances too, as thin lines.
        legend: `outside` (names at the ends of their lines, right of the axes; a list there where they are too many),
            `inside` (a list in the axes) or `none`; by default outside on a new figure, else inside.
        labels: names to show, by policy; a policy without one shows its text.
        title: above the axes.

    Returns:
        The axes. The line C ln t is drawn where the result has a constant above 0.

    Raises:
        ValueError: an unknown scale, legend or policy, among the labels too.
    """
    if scale not in ("log", "linear"):
        raise ValueError(f"scale must be 'log' or 'linear', got {scale!r}")
    if legend not in (None, "outside", "inside", "none"):
        raise ValueError(f"legend must be 'outside', 'inside' or 'none', got {legend!r}")
    names = result.policies if policies is None else list(policies)
    numbers = [result.index(name) for name in names]
    shown = {result.policies[result.index(name)]: label for name, label in (labels or {}).items()}
    if ax is None:
        with theme():
            _, ax = one_panel(HEIGHT)
            # Before the curves are drawn, so that the names beside them know how tall the axes are.
            ax.set_title(title or "")
            _draw(result, ax, scale, numbers, quantiles, legend or "outside", shown)
    else:
        if title is not None:
            ax.set_title(title)
        _draw(result, ax, scale, numbers, quantiles, legend or "inside", shown)
    return ax


def save_figure(result: Regrets, *paths: Path, ground: Ground = "light") -> None:
    """Write the log-log figure of a result; equal results give equal bytes, whatever the user's style.

    Args:
        result: what to draw.
        paths: the files to write, each whole or not at all: `.png`, `.svg` or `.pdf`.
        ground: `light` or `dark`, as the page that it stands on.
    """
    save(lambda: _figure(result), *paths, ground=ground)


def _figure(result: Regrets) -> Figure:
    figure, axes = one_panel(HEIGHT)
    spec = result.spec
    headline(figure, "How much reward does each policy lose?")
    arms = textwrap.shorten(str(spec.get("arms", "")), 200, placeholder=" ...")
    what = f"{arms}: mean of {spec['instances']} instances and its 95 % band".removeprefix(": ")
    lines = textwrap.wrap(what, 78)
    # Before the curves are drawn, so that the names beside them know how tall the axes are.
    title = axes.set_title("\n".join([*lines, NOTE]), fontsize="small")
    if not _draw(result, axes, "log", list(range(len(result.policies))), False, "outside", {}):
        title.set_text("\n".join(lines))
    return figure


def _draw(
    result: Regrets,
    ax: Axes,
    scale: Scale,
    numbers: Sequence[int],
    quantiles: bool,
    legend: Legend,
    labels: Mapping[str, str],
) -> bool:
    """Draw on axes; whether some curves coincide."""
    table, before = summarise(result), set(ax.get_children())
    names = [result.policies[number] for number in numbers]
    floor = _floor(result, table.loc[table["policy"].isin(names), "regret"]) if scale == "log" else None
    ground = ground_of(ax)
    styles = looks(result.policies, ground)
    lines = []
    for number, name in zip(numbers, names, strict=True):
        rows = table[table["policy"] == name]
        steps, look = rows["step"].to_numpy(), styles[number]
        lines += ax.plot(
            steps, _drawable(rows["regret"], floor), linewidth=1.8, label=labels.get(name, name), **look.line
        )
        # On a log scale, a band that reaches 0 goes down to the frame instead of ending early.
        low = rows["regret_low"].clip(lower=floor).to_numpy()
        high = _drawable(rows["regret_high"], floor)
        ax.fill_between(steps, low, high, color=look.colour, alpha=0.2, linewidth=0)
        if quantiles:
            for column in ("q05", "q95"):
                ax.plot(steps, _drawable(rows[column], floor), linewidth=0.7, **look.line)
    bound = []
    if result.lai_robbins:
        t = np.geomspace(2, max(3, result.spec["horizon"]), 200)
        height = result.lai_robbins * np.log(t)
        label = EMPIRICAL_BOUND_LABEL if "arms_sha256" in result.spec else BOUND_LABEL
        bound = ax.plot(t, height, color=INK[ground], linestyle=(0, (1, 3)), linewidth=1.2, label=label)
    ax.set_xlabel("step t")
    ax.set_ylabel("cumulative pseudo-regret (rewards)")
    ax.grid(True, which="major")
    ax.margins(x=0.02)
    if scale == "log":
        ax.set_xscale("log")
        plain_log(ax, "x")
    if floor is not None:
        ax.set_yscale("log")
        ax.set_ylim(bottom=floor)
        plain_log(ax, "y")
    together = show_coinciding(ax, lines)
    # What bears no name is left out where the caller names the lines: `ax.legend([...])` counts all the rest.
    for artist in set(ax.get_children()) - before:
        if str(artist.get_label()).startswith("_"):
            artist.set_label("_nolegend_")
    if legend == "inside" or (legend == "outside" and not label_ends(ax, [*lines, *bound])):
        place = {"loc": "best"} if legend == "inside" else {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
        named = zip(numbers, names, strict=True)
        keys = {labels.get(name, name): styles[number].key() for number, name in named}
        keys |= {str(line.get_label()): line for line in bound}
        ax.legend(list(keys.values()), list(keys), fontsize="small", handlelength=3.5, **place)
    return bool(together)


def _floor(result: Regrets, means: "pd.Series[float]") -> float | None:
    """Lower end of a log axis: below every positive mean and below the end of the line C ln t; None without any."""
    bound = (result.lai_robbins or 0.0) * math.log(max(3, result.spec["horizon"]))
    positive = [height for height in (*means, bound) if height > 0]
    return min(positive) / 1.5 if positive else None


def _drawable(heights: "pd.Series[float]", floor: float | None) -> NDArray[np.float64]:
    """Heights of a line; nan, a gap, where a log scale has no place for them."""
    values = np.array(heights, dtype=np.float64)
    if floor is not None:
        values[values <= 0] = np.nan
    return values
