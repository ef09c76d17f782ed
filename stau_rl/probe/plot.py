"""Figures of a probe: attention maps, row masses on queries with and without an answer, learning curves."""

import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stau_rl.figures.grid import legend_below, panels
from stau_rl.figures.palette import HUES, INK, PAPER, looks, on
from stau_rl.figures.save import save
from stau_rl.figures.style import SMALL, ground, headline, styled
from stau_rl.probe.folder import Maps

MOST, FEW = 24, 4


def save_figures(maps: Sequence[Maps], folder: Path) -> None:
    """Write the figures of every setting, such as `maps-PART-N.png`, N counting the part's settings."""
    settings: dict[tuple[str, str], list[Maps]] = {}
    for group in maps:
        settings.setdefault((str(group["setting"][0]), str(group["setting"][1])), []).append(group)
    numbers: dict[str, int] = {}
    for (part, task), groups in settings.items():
        numbers[part] = numbers.get(part, 0) + 1
        trained = [group for group in groups if "curve_steps" in group]
        for kind, draw, drawn in (
            ("maps", draw_maps, groups),
            ("masses", draw_masses, groups),
            ("curves", draw_curves, trained),
        ):
            name = f"{kind}-{part.replace(' ', '_')}-{numbers[part]}.png"
            if drawn:
                save(partial(draw, drawn, task), folder / name, dpi=150)


@styled
def draw_maps(maps: Sequence[Maps], task: str) -> Figure:
    """Attention weights of example queries, a panel per normaliser: rows are queries, columns places.

    A ring marks the right slot where its number was kept.
    """
    slots = maps[0].get("slots")
    each = _by_normaliser(maps, "weights")
    figure, grid = _grid(each, 2.0)
    colours = seaborn.color_palette("mako" if ground() == "dark" else "mako_r", as_cmap=True)
    for panel, (_, weights) in zip(grid, each, strict=False):
        image = panel.imshow(weights, vmin=0.0, vmax=1.0, cmap=colours, aspect="auto", interpolation="nearest")
        panel.grid(False)
        if slots is not None:
            there = np.flatnonzero(slots >= 0)
            # A light ring around a dark one shows on any weight.
            for colour, width in ((PAPER[ground()], 3.0), (on(HUES["vermilion"], ground()), 1.4)):
                rings = panel.scatter(
                    slots[there], there, s=42, marker="o", facecolors="none", edgecolors=colour, linewidths=width
                )
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
    figure.colorbar(image, ax=grid, shrink=0.8, label="weight")
    headline(figure, "Where does the attention go?")
    handles = {"right slot; a query without one has no answer": rings} if slots is not None and len(there) else {}
    # A legend without a name in it would not be drawn.
    _name_axes(grid, "place of the key" if handles else f"place of the key, task {task}", "query")
    legend_below(figure, handles, note=f"task {task}")
    return figure


@styled
def draw_masses(maps: Sequence[Maps], task: str) -> Figure:
    """Histograms of row mass, a panel per normaliser: queries with an answer upwards, those without downwards."""
    each = _by_normaliser(maps, "masses")
    figure, grid = _grid(each, 2.1, sharex=True, sharey=True)
    there, absent = (on(HUES[hue], ground()) for hue in ("sky", "vermilion"))
    handles: dict[str, Any] = {}
    for panel, (_, counts) in zip(grid, each, strict=False):
        edges = np.linspace(0.0, 1.0, counts.shape[-1] + 1)
        # Back to back: no colour lies on another.
        for kind, (label, colour, sign) in enumerate((("key is there", there, 1), ("key is absent", absent, -1))):
            total = counts[kind].sum()
            if total:
                handles[label] = panel.stairs(sign * counts[kind] / total, edges, fill=True, color=colour, linewidth=0)
        panel.axhline(0.0, color=INK[ground()], linewidth=0.8)
        panel.set_ylim(-1.05 if any(counts[1].sum() for _, counts in each) else 0.0, 1.05)
        panel.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    headline(figure, "Does the head keep silent where the key is absent?")
    _name_axes(grid, "mass of a row", "share of queries")
    legend_below(figure, handles, note=f"task {task}; mass 0 is silence, 1 is full attention")
    return figure


@styled
def draw_curves(maps: Sequence[Maps], task: str) -> Figure:
    """Share of right answers and loss against the step: a line per normaliser, the mean over seeds, in their range."""
    names = [str(name) for group in maps for name in group["normalisers"]]
    figure, grid = panels(2, 2.6)
    handles: dict[str, Any] = {}
    for panel, (kind, label) in zip(grid, (("right", "right answers"), ("loss", "loss, nats")), strict=True):
        lines = iter(zip(names, looks(names, ground()), strict=True))
        for group in maps:
            for values in group[f"curve_{kind}"]:
                name, look = next(lines)
                steps = group["curve_steps"]
                panel.fill_between(steps, values.min(0), values.max(0), color=look.colour, alpha=0.15, linewidth=0)
                (handles[name],) = panel.plot(steps, values.mean(0), **look.line)
        panel.set_xlabel("optimiser step")
        panel.set_title(label, fontsize="small")
    headline(figure, "How do the heads learn?")
    legend_below(figure, handles, note=f"task {task}; mean over seeds, and their range")
    return figure


def _by_normaliser(maps: Sequence[Maps], kind: Literal["weights", "masses"]) -> list[tuple[str, Any]]:
    return [(str(name), part) for group in maps for name, part in zip(group["normalisers"], group[kind], strict=True)]


def _name_axes(grid: list[Axes], across: str, up: str) -> None:
    """Name the axes of the panels at the left and at the bottom."""
    columns = _columns(len(grid))
    for number, panel in enumerate(grid):
        if number + columns >= len(grid):
            panel.set_xlabel(across, fontsize=SMALL)
        if number % columns == 0:
            panel.set_ylabel(up, fontsize=SMALL)


def _columns(count: int) -> int:
    return 2 if count <= FEW else 3


def _grid(each: list[tuple[str, Any]], height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A panel for each of the first normalisers, under its name."""
    shown = each[:MOST]
    figure, grid = panels(len(shown), height, columns=_columns(len(shown)), **shared)
    for panel, (name, _) in zip(grid, shown, strict=True):
        letters = 34 if len(shown) <= FEW else 22
        panel.set_title("\n".join(textwrap.wrap(name, letters)), fontsize="small")
    return figure, grid
