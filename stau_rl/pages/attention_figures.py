"""The figures of docs/attention.md, drawn from the committed rows; the same rows give the same bytes."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.coincide import show_coinciding
from stau_rl.figures.grid import legend_below, panels
from stau_rl.figures.labels import label_ends
from stau_rl.figures.palette import DOTTED, HUES, SOLID, Look, looks, on, shaded
from stau_rl.figures.save import both, save
from stau_rl.figures.style import ground, headline, styled
from stau_rl.pages.attention_claims import length_rows
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.attention_taught import draw_taught
from stau_rl.probe.plot import draw_maps, draw_masses

TAUGHT_FIGURE = "attention_taught.png"
METRICS = {"first_dead": "dead rows at the start", "decoded": "right answers"}


def figures(data: AttentionData) -> dict[str, Callable[[AttentionData], Figure]]:
    """File name -> function that draws it; only those that the rows have something for."""
    known: dict[str, tuple[str, Callable[[AttentionData], Figure]]] = {
        "attention_silence.png": ("silence", draw_silence),
        "attention_maps.png": ("silence", draw_weights),
        "attention_thresholds.png": ("threshold", draw_thresholds),
        "attention_length.png": ("length", draw_lengths),
        "attention_sweeps.png": ("sweep", draw_sweeps),
    }
    parts = set(data.rows["part"])
    found = {name: draw for name, (part, draw) in known.items() if part in parts}
    if data.asked is not None:
        found = {TAUGHT_FIGURE: draw_taught_silence, **found}
    return found


def save_figures(data: AttentionData, folder: Path) -> None:
    """Write every figure as PNG and SVG."""
    for name, draw in figures(data).items():
        save(partial(draw, data), *both(folder / name))


def draw_taught_silence(data: AttentionData) -> Figure:
    """Answers made up, against the share of unanswerable training rows."""
    if data.asked is None:
        raise ValueError("there are no rows of the part `silence share`")
    return draw_taught(data.asked)


def _arrays(table: pd.DataFrame, value: str) -> list[dict[str, Any]]:
    first, second = table.columns[1], table.columns[2]
    found = []
    for name, rows in table.groupby("normaliser", sort=False):
        square = rows.pivot(index=first, columns=second, values=value).to_numpy()
        found.append({"normalisers": [name], "weights": [square], "masses": [square]})
    return found


def draw_silence(data: AttentionData) -> Figure:
    """How row masses are spread over queries with and without an answer."""
    return draw_masses(_arrays(data.masses, "count"), "silence")


def draw_weights(data: AttentionData) -> Figure:
    """Attention weights of example queries."""
    return draw_maps(_arrays(data.maps, "weight"), "silence")


@styled
def draw_thresholds(data: AttentionData) -> Figure:
    """Dead rows at the start and right answers at the end, against the threshold that training starts from."""
    tasks = data.tasks("threshold")
    figure, grid = panels(2 * len(tasks), 2.3, sharex=True, sharey=True)
    kinds = {"as given": _plain("blue", SOLID, "o"), "calibrated": _plain("orange", SOLID, "s")}
    for number, task in enumerate(tasks):
        for side, (metric, label) in enumerate(METRICS.items()):
            panel = grid[2 * number + side]
            for title, look in kinds.items():
                wide = title == "as given"
                names = [
                    name
                    for name in data.normalisers("threshold", task)
                    if ("calibrate" in name) == (title == "calibrated")
                ]
                points = [(_number(name, "threshold"), data.seeds("threshold", task, name)[metric]) for name in names]
                _seeds(panel, points, look, wide=wide)
            panel.set_title(f"{task}: {label}", fontsize="small")
    headline(figure, "Does calibration revive a dead threshold?")
    for panel in grid[-2:]:
        panel.set_xlabel("threshold at the start", fontsize="small")
    figure.supylabel("share: median of seeds, every seed", fontsize="small")
    legend_below(figure, {title: look.key(marker=True) for title, look in kinds.items()})
    return figure


@styled
def draw_lengths(data: AttentionData) -> Figure:
    """Right answers against the length, in multiples of the trained one."""
    tasks = data.tasks("length")
    figure, grid = panels(len(tasks), 3.0, columns=1)
    for panel, task in zip(grid, tasks, strict=True):
        rows = length_rows(data, task)
        lines = []
        for (name, values), look in zip(rows.items(), looks(list(rows), ground()), strict=True):
            style: dict[str, Any] = {"marker": look.marker, "label": name, **look.line}
            lines += panel.plot(list(values), list(values.values()), markersize=6, **style)
        panel.set_xscale("log", base=2)
        factors = sorted({factor for values in rows.values() for factor in values})
        panel.set_xticks(factors, [f"{factor}x" for factor in factors])
        panel.minorticks_off()
        panel.set_ylabel("right answers, median seed", fontsize="small")
        panel.set_ylim(-0.03, 1.03)
        panel.set_title(task, fontsize="small")
        show_coinciding(panel, lines)
        if not label_ends(panel, lines, size=9.0, letters=40):
            panel.legend(fontsize="x-small")
    grid[-1].set_xlabel("length, in multiples of the trained one")
    headline(figure, "Does a head still answer on longer inputs?")
    return figure


@styled
def draw_sweeps(data: AttentionData) -> Figure:
    """Right answers, and mass where there is no answer, over p, sigma and taps."""
    swept = (("p", "exponent p"), ("fir_sigma", "smoothing width sigma"), ("fir_taps", "smoothing taps"))
    tasks = data.tasks("sweep")
    figure, grid = panels(len(swept) * len(tasks), 2.2, columns=len(tasks), sharey=True)
    heads = list(dict.fromkeys(name.split("(")[0] for task in tasks for name in data.normalisers("sweep", task)))
    right = dict(zip(heads, (_plain(look.colour, SOLID, look.marker) for look in looks(heads, ground())), strict=True))
    silent = {head: _plain(shaded(look.colour, 0.5, ground()), DOTTED, "x") for head, look in right.items()}
    keys: dict[str, Any] = {}
    for row, (field, label) in enumerate(swept):
        for column, task in enumerate(tasks):
            panel = grid[len(tasks) * row + column]
            for number, head in enumerate(heads):
                names = [name for name in data.normalisers("sweep", task) if name.startswith(f"{head}(")]
                mine = [
                    (_number(name, field), data.seeds("sweep", task, name)) for name in names if f"{field}=" in name
                ]
                if not mine:
                    continue
                _seeds(panel, [(x, rows["decoded"]) for x, rows in mine], right[head], wide=number == 0)
                keys[f"{head}: right answers"] = right[head].key(marker=True)
                if mine[0][1]["mass_unanswerable"].notna().all():
                    _seeds(panel, [(x, rows["mass_unanswerable"]) for x, rows in mine], silent[head])
                    keys[f"{head}: mass without answer"] = silent[head].key(marker=True)
            panel.set_xlabel(label, fontsize="small")
            panel.set_title(task, fontsize="small")
    headline(figure, "Which exponent and which smoothing does a head need?")
    figure.supylabel("share: median of seeds, every seed", fontsize="small")
    legend_below(figure, keys)
    return figure


def _number(name: str, field: str) -> float:
    found = re.search(rf"\b{field}=([-+.\de]+)", name)
    if found is None:
        raise ValueError(f"{name} has no {field}")
    return float(found.group(1))


def _plain(colour: str, dash: Any, marker: str) -> Look:
    """A look of what is no head."""
    return Look(on(HUES.get(colour, colour), ground()), dash, marker)


def _seeds(panel: Axes, points: list[tuple[float, Any]], look: Look, *, wide: bool = False) -> None:
    """Medians as a line, every seed as a mark; of two lines that coincide the wide one shows on both sides."""
    width = 4.5 if wide else 1.6
    panel.plot([x for x, _ in points], [float(np.median(y)) for _, y in points], linewidth=width, **look.line)
    hollow = {} if wide else {"markerfacecolor": "none"}
    for x, values in points:
        places: list[float] = [x] * len(values)
        style: dict[str, Any] = {"color": look.colour, "linestyle": "none", **hollow}
        panel.plot(places, list(values), marker=look.marker, markersize=6, alpha=0.8, **style)
    panel.set_ylim(-0.05, 1.05)
