"""The figures of docs/claim.md, drawn from the committed rows; the same rows give the same bytes."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from stau_rl.figures.coincide import NOTE
from stau_rl.figures.grid import legend_below, panels
from stau_rl.figures.palette import HUES, INK, on, shaded
from stau_rl.figures.save import both, save
from stau_rl.figures.style import ground, headline, plain, plain_log, styled
from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_settings import ARMS, BONUSES, OFFSETS, SCALES
from stau_rl.study.plot import curve_panel, family_looks

# What is compared is no head, so none has the colour of softmax or of s^tau.
KINDS = {
    "raw": ("unequal sharpness", "grey", "o"),
    "slope": ("equally steep at 0", "green", "s"),
    "entropy": ("equal entropy", "pink", "^"),
    "tuned": ("each at its best", "orange", "D"),
}
TICKS = (-75, -40, -20, -10, -5, 0, 5, 10, 20, 50, 100, 200, 500)
SHADE: dict[str, Any] = {"color": HUES["vermilion"], "alpha": 0.1, "linewidth": 0}
PERCENT = "s^tau's regret − softmax's, %"


def figures() -> dict[str, Callable[[ClaimData], Figure]]:
    """File name -> function that draws it from the data."""
    return {
        "claim_comparisons.png": draw_comparisons,
        "claim_curves.png": draw_curves,
        "claim_differs.png": draw_differences,
    }


def save_figures(data: ClaimData, folder: Path) -> None:
    """Write every figure as PNG and SVG."""
    for name, draw in figures().items():
        save(partial(draw, data), *both(folder / name))


@styled
def draw_comparisons(data: ClaimData) -> Figure:
    """Difference of s^tau from softmax by bonus width, raw and in the three fair ways."""
    figure, grid = panels(2, 3.6)
    for panel, (name, arms) in zip(grid, ARMS.items(), strict=True):
        for number, kind in enumerate(KINDS):
            rows = [(c, f"{arms} c {c:g}") for c in BONUSES if data.has("c", f"{arms} c {c:g}", kind)]
            places = [BONUSES.index(c) + 0.14 * (number - 1.5) for c, _ in rows]
            _percentages(panel, places, [data.row("c", value, kind) for _, value in rows], kind)
        panel.set_xticks(range(len(BONUSES)), [f"{c:g}" for c in BONUSES])
        panel.grid(False, axis="x")
        panel.set_xlabel("bonus c")
        _finish_percentages(panel, f"{name} arms, K = 10, T = 10 000")
    grid[0].set_ylabel(PERCENT)
    headline(figure, "Does s^tau lose less than softmax?")
    legend_below(figure, _keys(KINDS))
    return figure


@styled
def draw_curves(data: ClaimData) -> Figure:
    """Regret of both heads over their slope at score 0, with bands that hold for a whole curve."""
    shown = [(name, arms, c) for name, arms in ARMS.items() for c in (0.0, 0.25)]
    figure, grid = panels(len(shown), 2.7)
    keys: dict[str, Any] = {}
    for panel, (name, arms, c) in zip(grid, shown, strict=True):
        rows = data.curves[(data.curves["sweep"] == "c") & (data.curves["value"] == f"{arms} c {c:g}")]
        keys |= curve_panel(panel, rows, f"{name} arms, c = {c:g}", family_looks(rows))
    headline(figure, "Is one head better at equal sharpness?")
    legend_below(figure, keys, note=NOTE)
    return figure


@styled
def draw_differences(data: ClaimData) -> Figure:
    """What moves s^tau and not softmax: an offset of the scores, and the scale of the rewards."""
    figure, grid = panels(3, 3.0)
    kinds = {"raw": ("same parameters", *KINDS["raw"][1:]), "tuned": KINDS["tuned"]}
    for panel, (name, arms) in zip(grid, ARMS.items(), strict=False):
        for kind in kinds:
            found = [data.row("offset", f"{arms} offset {offset:g}", kind) for offset in OFFSETS]
            _percentages(panel, list(OFFSETS), found, kind, line=True)
        panel.set_xlabel("offset added to every score")
        _finish_percentages(panel, f"{name} arms, c = 0.25")
    arms = ARMS["Gaussian"]
    for kind in kinds:
        found = [data.row("scale", f"{arms} scale {scale:g}", kind) for scale in SCALES]
        _percentages(grid[2], list(SCALES), found, kind, line=True)
    grid[2].set_xscale("log")
    plain_log(grid[2], "x")
    grid[2].set_xlabel("rewards and bonus multiplied by")
    _finish_percentages(grid[2], "Gaussian arms, rescaled")
    for panel in (grid[0], grid[2]):
        panel.set_ylabel(PERCENT, fontsize="small")
    headline(figure, "What moves s^tau and not softmax?")
    legend_below(figure, _keys(kinds))
    return figure


def _keys(kinds: dict[str, tuple[str, str, str]]) -> dict[str, Any]:
    """Artist by name of the comparisons, and of the shade."""
    marks: dict[str, Any] = {
        name: Line2D([], [], linestyle="none", color=_colour(hue), marker=mark, markersize=7)
        for name, hue, mark in kinds.values()
    }
    return marks | {"shaded: s^tau loses less": Patch(**SHADE)}


def _colour(hue: str) -> str:
    """The hue on the ground of the figure; grey is darker than the others, in a grey print too."""
    return on(shaded(HUES[hue], 0.6 if hue == "grey" else 0.0, ground()), ground())


def _percentages(
    panel: Axes, places: Sequence[float], rows: Sequence[dict[Any, Any]], kind: str, line: bool = False
) -> None:
    value = np.array([row["percent"] for row in rows], dtype=np.float64)
    low = np.array([row["percent_low"] for row in rows], dtype=np.float64)
    high = np.array([row["percent_high"] for row in rows], dtype=np.float64)
    reach = np.nan_to_num(np.array([value - low, high - value])).clip(min=0.0)
    _, hue, mark = KINDS[kind]
    style: dict[str, Any] = {"linestyle": "-" if line else "none", "color": _colour(hue), "marker": mark}
    panel.errorbar(places, value, reach, markersize=6, linewidth=1.4, **style)


def _finish_percentages(panel: Axes, title: str) -> None:
    panel.axhline(0.0, color=INK[ground()], linewidth=1.0)
    # Ten percent either way is linear, beyond it logarithmic: both a halving and half a percent show.
    panel.set_yscale("symlog", linthresh=10.0)
    panel.margins(y=0.09)
    panel.autoscale_view()
    low, high = panel.get_ylim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    panel.set_yticks(ticks, [f"+{tick}" if tick > 0 else plain(tick) for tick in ticks])
    panel.minorticks_off()
    panel.set_ylim(low, high)
    panel.set_title(title, fontsize="small")
    panel.axhspan(low, 0.0, **SHADE)
