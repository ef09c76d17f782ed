"""The figures of docs/attention.md, drawn from the committed rows; the same rows give the same bytes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS
from stau_rl.pages.attention_claims import length_rows
from stau_rl.pages.attention_data import AttentionData
from stau_rl.probe.plot import draw_maps, draw_masses, save

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def figures(data: AttentionData) -> dict[str, Callable[[AttentionData], Figure]]:
    """File name -> function that draws it; only those that the rows have something for."""
    known = {
        "attention_silence.png": ("silence", draw_silence),
        "attention_maps.png": ("silence", draw_weights),
        "attention_thresholds.png": ("threshold", draw_thresholds),
        "attention_length.png": ("length", draw_lengths),
        "attention_sweeps.png": ("sweep", draw_sweeps),
    }
    parts = set(data.rows["part"])
    return {name: draw for name, (part, draw) in known.items() if part in parts}


def save_figures(data: AttentionData, folder: Path) -> None:
    """Write every figure as PNG."""
    for name, draw in figures(data).items():
        save(draw(data), folder / name)


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


def draw_thresholds(data: AttentionData) -> Figure:
    """Dead rows at the start and right answers at the end, against the threshold that training starts from."""
    tasks = data.tasks("threshold")
    figure, panels = _panels(1, 2 * len(tasks), 3.2)
    for number, task in enumerate(tasks):
        for side, (metric, label) in enumerate(
            (("first_dead", "dead rows at the start"), ("decoded", "right answers"))
        ):
            panel = panels[2 * number + side]
            for kind, (title, calibrated) in enumerate((("as given", False), ("calibrated", True))):
                names = [name for name in data.normalisers("threshold", task) if ("calibrate" in name) == calibrated]
                _seeds(
                    panel,
                    [(_number(name, "threshold"), data.seeds("threshold", task, name)[metric]) for name in names],
                    kind,
                    title,
                )
            panel.set_xlabel("threshold at the start")
            panel.set_ylabel(label)
            panel.set_title(task, fontsize=9)
    panels[0].legend(fontsize=7, frameon=False)
    return figure


def draw_lengths(data: AttentionData) -> Figure:
    """Right answers against the length, in multiples of the trained one."""
    tasks = data.tasks("length")
    figure, panels = _panels(1, len(tasks), 4.6)
    for panel, task in zip(panels, tasks, strict=True):
        for number, (name, values) in enumerate(length_rows(data, task).items()):
            colour = COLOURS[number % len(COLOURS)]
            panel.plot(list(values), list(values.values()), marker=MARKS[number % len(MARKS)], color=colour, label=name)
        panel.set_xscale("log", base=2)
        factors = sorted({factor for values in length_rows(data, task).values() for factor in values})
        panel.set_xticks(factors, [f"{factor}x" for factor in factors])
        panel.set_xlabel("trained length times")
        panel.set_ylabel("right answers, median seed")
        panel.set_ylim(-0.03, 1.03)
        panel.set_title(task, fontsize=9)
        panel.grid(True, linewidth=0.4, alpha=0.5)
        panel.legend(fontsize=6, frameon=False)
    return figure


def draw_sweeps(data: AttentionData) -> Figure:
    """Right answers, and mass where there is no answer, over p, sigma and taps."""
    swept = (("p", "exponent p"), ("fir_sigma", "width sigma"), ("fir_taps", "taps"))
    figure, panels = _panels(len(data.tasks("sweep")), len(swept), 3.2)
    for row, task in enumerate(data.tasks("sweep")):
        for column, (field, label) in enumerate(swept):
            panel = panels[len(swept) * row + column]
            names = [name for name in data.normalisers("sweep", task) if f"{field}=" in name]
            heads = list(dict.fromkeys(name.split("(")[0] for name in names))
            for kind, head in enumerate(heads):
                mine = [
                    (_number(name, field), data.seeds("sweep", task, name))
                    for name in names
                    if name.startswith(f"{head}(")
                ]
                _seeds(panel, [(x, rows["decoded"]) for x, rows in mine], 2 * kind, f"{head}: right answers")
                if mine and mine[0][1]["mass_unanswerable"].notna().all():
                    silent = [(x, rows["mass_unanswerable"]) for x, rows in mine]
                    _seeds(panel, silent, 2 * kind + 1, f"{head}: mass without answer")
            panel.set_xlabel(label)
            panel.set_title(task, fontsize=9)
            panel.legend(fontsize=6, frameon=False)
    return figure


def _number(name: str, field: str) -> float:
    found = re.search(rf"\b{field}=([-+.\de]+)", name)
    if found is None:
        raise ValueError(f"{name} has no {field}")
    return float(found.group(1))


def _seeds(panel: Axes, points: list[tuple[float, Any]], number: int, label: str) -> None:
    """Medians as a line, every seed as a dot."""
    colour = COLOURS[number % len(COLOURS)]
    places = [x for x, _ in points]
    panel.plot(places, [float(np.median(y)) for _, y in points], color=colour, label=label, linewidth=1.2)
    for x, values in points:
        panel.plot([x] * len(values), list(values), ".", color=colour, markersize=4, alpha=0.7)
    panel.set_ylim(-0.03, 1.03)
    panel.grid(True, linewidth=0.4, alpha=0.5)


def _panels(rows: int, columns: int, side: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(side * columns, 0.85 * side * rows + 0.3), layout="constrained")
    return figure, list(np.asarray(figure.subplots(rows, columns, squeeze=False)).ravel())
