"""Figures of a probe: attention maps, and how row masses are spread over queries with and without an answer."""

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
from stau_rl.figures.palette import HUES, on
from stau_rl.figures.save import save
from stau_rl.figures.style import SMALL, ground, headline, styled
from stau_rl.probe.folder import Maps

MOST, FEW = 24, 4


def save_figures(maps: Sequence[Maps], folder: Path) -> None:
    """Write the figures of every setting, `maps-PART-N.png` and `masses-PART-N.png`, N counting the part's settings."""
    settings: dict[tuple[str, str], list[Maps]] = {}
    for group in maps:
        settings.setdefault((str(group["setting"][0]), str(group["setting"][1])), []).append(group)
    numbers: dict[str, int] = {}
    for (part, task), groups in settings.items():
        numbers[part] = numbers.get(part, 0) + 1
        for kind, draw in (("maps", draw_maps), ("masses", draw_masses)):
            name = f"{kind}-{part.replace(' ', '_')}-{numbers[part]}.png"
            save(partial(draw, groups, task), folder / name, dpi=150)


@styled
def draw_maps(maps: Sequence[Maps], task: str) -> Figure:
    """Attention weights of example queries, a panel per normaliser: rows are queries, columns places."""
    each = _by_normaliser(maps, "weights")
    figure, grid = _grid(each, 1.6)
    colours = seaborn.color_palette("mako" if ground() == "dark" else "mako_r", as_cmap=True)
    for panel, (_, weights) in zip(grid, each, strict=False):
        image = panel.imshow(weights, vmin=0.0, vmax=1.0, cmap=colours, aspect="auto", interpolation="nearest")
        panel.grid(False)
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
    figure.colorbar(image, ax=grid, shrink=0.8, label="weight")
    headline(figure, "Where does the attention go?")
    figure.supxlabel("place", fontsize=SMALL)
    figure.supylabel(f"query ({len(each[0][1])} of task {task})", fontsize=SMALL)
    return figure


@styled
def draw_masses(maps: Sequence[Maps], task: str) -> Figure:
    """Histograms of row mass, a panel per normaliser: queries with an answer, and without."""
    each = _by_normaliser(maps, "masses")
    figure, grid = _grid(each, 1.7, sharex=True, sharey=True)
    there, absent = (on(HUES[hue], ground()) for hue in ("sky", "vermilion"))
    handles: dict[str, Any] = {}
    for panel, (_, counts) in zip(grid, each, strict=False):
        edges = np.linspace(0.0, 1.0, counts.shape[-1] + 1)
        # An outline over an area: where both are, both show.
        styles: tuple[tuple[str, dict[str, Any]], ...] = (
            ("key is there", {"fill": True, "color": there, "linewidth": 0}),
            ("key is absent", {"fill": False, "color": absent, "linewidth": 2.0, "hatch": "////"}),
        )
        for kind, (label, style) in enumerate(styles):
            total = counts[kind].sum()
            if total:
                share = np.where(counts[kind] > 0, counts[kind] / total, np.nan)
                handles[label] = panel.stairs(share, edges, **style)
        panel.set_ylim(0.0, 1.05)
    headline(figure, "Does the head keep silent where the key is absent?")
    figure.supylabel(f"share of queries, task {task}", fontsize=SMALL)
    legend_below(figure, handles, note="mass of a row: 0 is silence, 1 is full attention")
    return figure


def _by_normaliser(maps: Sequence[Maps], kind: Literal["weights", "masses"]) -> list[tuple[str, Any]]:
    return [(str(name), part) for group in maps for name, part in zip(group["normalisers"], group[kind], strict=True)]


def _grid(each: list[tuple[str, Any]], height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A panel for each of the first normalisers, under its name."""
    shown = each[:MOST]
    figure, grid = panels(len(shown), height, columns=2 if len(shown) <= FEW else 3, **shared)
    for panel, (name, _) in zip(grid, shown, strict=True):
        letters = 34 if len(shown) <= FEW else 22
        panel.set_title("\n".join(textwrap.wrap(name, letters)), fontsize="small")
    return figure, grid
