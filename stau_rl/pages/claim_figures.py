"""The figures of docs/claim.md, drawn from the committed rows; the same rows give the same bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS
from stau_rl.files.whole import whole_file
from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_settings import ARMS, BONUSES, OFFSETS, SCALES
from stau_rl.study.plot import curve_panel

KINDS = {"raw": "as stated", "slope": "equally steep at 0", "entropy": "equal entropy", "tuned": "each at its best"}
MARKS = ("o", "s", "^", "D")
DPI = 80
TICKS = (-75, -40, -20, -10, -5, 0, 5, 10, 20, 50, 100, 200, 500)


def figures() -> dict[str, Any]:
    """File name -> function that draws it from the data."""
    return {
        "claim_comparisons.png": draw_comparisons,
        "claim_curves.png": draw_curves,
        "claim_differs.png": draw_differences,
    }


def save_figures(data: ClaimData, folder: Path) -> None:
    """Write every figure as PNG."""
    for name, draw in figures().items():
        with mpl.rc_context():
            mpl.rcdefaults()
            with whole_file(folder / name) as temporary:
                draw(data).savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})


def draw_comparisons(data: ClaimData) -> Figure:
    """Difference of s^tau from softmax by bonus width, raw and in the three fair ways."""
    figure, panels = _panels(1, 2, (10.0, 3.8))
    for panel, (name, arms) in zip(panels, ARMS.items(), strict=True):
        for number, (kind, label) in enumerate(KINDS.items()):
            rows = [(c, f"{arms} c {c:g}") for c in BONUSES if data.has("c", f"{arms} c {c:g}", kind)]
            places = [BONUSES.index(c) + 0.12 * (number - 1.5) for c, _ in rows]
            found = [data.row("c", value, kind) for _, value in rows]
            _percentages(panel, places, found, MARKS[number], COLOURS[number], label)
        panel.set_xticks(range(len(BONUSES)), [f"{c:g}" for c in BONUSES])
        panel.set_xlabel("bonus c")
        _finish_percentages(panel, f"{name} arms, K = 10, T = 10 000")
    panels[0].legend(fontsize=8, frameon=False)
    return figure


def draw_curves(data: ClaimData) -> Figure:
    """Regret of both heads over their slope at score 0, with bands that hold for a whole curve."""
    figure, panels = _panels(2, 2, (10.0, 6.4))
    shown = [(name, arms, c) for name, arms in ARMS.items() for c in (0.0, 0.25)]
    for panel, (name, arms, c) in zip(panels, shown, strict=True):
        rows = data.curves[(data.curves["sweep"] == "c") & (data.curves["value"] == f"{arms} c {c:g}")]
        curve_panel(panel, rows, f"{name} arms, c = {c:g}")
    panels[0].legend(fontsize=9, frameon=False)
    return figure


def draw_differences(data: ClaimData) -> Figure:
    """What moves s^tau and not softmax: an offset of the scores, and the scale of the rewards."""
    figure, panels = _panels(1, 3, (12.0, 3.8))
    labels = (("raw", "same parameters"), ("tuned", "each at its best"))
    for panel, (name, arms) in zip(panels, ARMS.items(), strict=False):
        for number, (kind, label) in enumerate(labels):
            found = [data.row("offset", f"{arms} offset {offset:g}", kind) for offset in OFFSETS]
            _percentages(panel, list(OFFSETS), found, MARKS[number], COLOURS[number], label, line=True)
        panel.set_xlabel("offset added to every score")
        _finish_percentages(panel, f"{name} arms, c = 0.25")
    arms = ARMS["Gaussian"]
    for number, (kind, label) in enumerate(labels):
        found = [data.row("scale", f"{arms} scale {scale:g}", kind) for scale in SCALES]
        _percentages(panels[2], list(SCALES), found, MARKS[number], COLOURS[number], label, line=True)
    panels[2].set_xscale("log")
    panels[2].set_xlabel("rewards and bonus multiplied by")
    _finish_percentages(panels[2], "Gaussian arms, rescaled")
    panels[0].legend(fontsize=8, frameon=False)
    return figure


def _panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=size, layout="constrained")
    return figure, list(np.asarray(figure.subplots(rows, columns)).ravel())


def _percentages(
    panel: Axes,
    places: Sequence[float],
    rows: Sequence[dict[Any, Any]],
    mark: str,
    colour: str,
    label: str,
    line: bool = False,
) -> None:
    value = np.array([row["percent"] for row in rows], dtype=np.float64)
    low = np.array([row["percent_low"] for row in rows], dtype=np.float64)
    high = np.array([row["percent_high"] for row in rows], dtype=np.float64)
    reach = np.nan_to_num(np.array([value - low, high - value])).clip(min=0.0)
    style = "-" if line else "none"
    panel.errorbar(
        places, value, reach, marker=mark, color=colour, label=label, linestyle=style, markersize=5, linewidth=1.0
    )


def _finish_percentages(panel: Axes, title: str) -> None:
    panel.axhline(0.0, color="black", linewidth=0.8)
    # Ten percent either way is linear, beyond it logarithmic: both a halving and half a percent show.
    panel.set_yscale("symlog", linthresh=10.0)
    low, high = panel.get_ylim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    panel.set_yticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks])
    panel.minorticks_off()
    panel.set_ylim(low, high)
    panel.set_ylabel("s^tau's regret, % more than softmax's")
    panel.set_title(title, fontsize=10)
    panel.grid(True, linewidth=0.4, alpha=0.5)
