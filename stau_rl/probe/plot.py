"""Figures of a probe: attention maps, and how row masses are spread over queries with and without an answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS
from stau_rl.files.whole import whole_file
from stau_rl.probe.folder import Maps

DPI, COLUMNS_WIDE, MOST = 90, 4, 24


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
            save(draw(groups, task), folder / name)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, whole or not at all; the same figure gives the same bytes."""
    with mpl.rc_context():
        mpl.rcdefaults()
        with whole_file(path) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})


def draw_maps(maps: Sequence[Maps], task: str) -> Figure:
    """Attention weights of example queries, a panel per normaliser: rows are queries, columns places."""
    each = [
        (str(name), weights)
        for part in maps
        for name, weights in zip(part["normalisers"], part["weights"], strict=True)
    ]
    figure, panels = _grid(len(each[:MOST]), 1.3)
    for panel, (name, weights) in zip(panels, each, strict=False):
        image = panel.imshow(weights, vmin=0.0, vmax=1.0, cmap="magma", aspect="auto", interpolation="nearest")
        panel.set_title(name, fontsize=7)
        panel.tick_params(labelsize=6)
    figure.colorbar(image, ax=panels, shrink=0.8, label="weight")
    figure.suptitle(f"{task}: weights of {len(each[0][1])} queries (rows) over places", fontsize=9)
    return figure


def draw_masses(maps: Sequence[Maps], task: str) -> Figure:
    """Histograms of row mass, a panel per normaliser: queries with an answer, and without."""
    each = [
        (str(name), counts) for part in maps for name, counts in zip(part["normalisers"], part["masses"], strict=True)
    ]
    figure, panels = _grid(len(each[:MOST]), 1.5)
    for panel, (name, counts) in zip(panels, each, strict=False):
        edges = np.linspace(0.0, 1.0, counts.shape[-1] + 1)
        for kind, label in enumerate(("key is there", "key is absent")):
            total = counts[kind].sum()
            if total:
                panel.stairs(counts[kind] / total, edges, fill=True, alpha=0.6, color=COLOURS[kind], label=label)
        panel.set_title(name, fontsize=7)
        panel.tick_params(labelsize=6)
        panel.set_ylim(0.0, 1.0)
    panels[0].legend(fontsize=6, frameon=False)
    figure.suptitle(f"{task}: row mass, share of queries", fontsize=9)
    return figure


def _by_normaliser(maps: Sequence[Maps], kind: str) -> list[tuple[str, Any]]:
    return [(str(name), part) for group in maps for name, part in zip(group["normalisers"], group[kind], strict=True)]


def _grid(count: int, height: float) -> tuple[Figure, list[Any]]:
    wide = min(COLUMNS_WIDE, count)
    tall = -(-count // wide)
    figure = Figure(figsize=(2.6 * wide + 0.6, height * tall + 0.8), layout="constrained")
    panels = list(np.asarray(figure.subplots(tall, wide, squeeze=False)).ravel())
    for panel in panels[count:]:
        panel.set_visible(False)
    return figure, panels[:count]
