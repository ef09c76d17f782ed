"""Regret curves as a figure that survives a printout, a colour-blind reader and nine policies.

Nothing here goes through pyplot: no backend is chosen, no window opens, nothing is registered globally.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from stau_rl.figures.palette import COLOURS, DASHES
from stau_rl.regret.regrets import Regrets
from stau_rl.regret.tables import summarise

Scale = Literal["log", "linear"]
Legend = Literal["outside", "inside", "none"]

BOUND_LABEL = "Lai–Robbins C ln t (asymptotic, not a bound at finite t)"
EMPIRICAL_BOUND_LABEL = BOUND_LABEL.replace("Lai–Robbins", "Burnetas–Katehakis")

SIZE = (11.0, 5.0)


def plot_regret(
    result: Regrets,
    ax: Axes | None = None,
    *,
    scale: Scale = "log",
    policies: Sequence[str] | None = None,
    quantiles: bool = False,
    legend: Legend | None = None,
) -> Axes:
    """Mean pseudo-regret against the step, with 95 % bands.

    Args:
        result: what to draw.
        ax: where to draw; by default the axes of a new figure, which is `ax.figure` of the returned axes
            and is known to nobody else (in a notebook, end the cell with it).
        scale: `log` (both axes; only that of the step where all regrets are 0) or `linear`.
        policies: the policies to draw, in this order; by default all. A policy keeps its colour in any
            choice.
        quantiles: draw the 5 % and 95 % quantiles over instances too, as thin lines.
        legend: `outside` (right of the axes), `inside` or `none`; by default outside on a new figure, else
            inside.

    Returns:
        The axes. The line C ln t is drawn where the result has a constant above 0.

    Raises:
        ValueError: an unknown scale, legend or policy.
    """
    if scale not in ("log", "linear"):
        raise ValueError(f"scale must be 'log' or 'linear', got {scale!r}")
    if legend not in (None, "outside", "inside", "none"):
        raise ValueError(f"legend must be 'outside', 'inside' or 'none', got {legend!r}")
    names = result.policies if policies is None else list(policies)
    numbers = [result.index(name) for name in names]
    if legend is None:
        legend = "outside" if ax is None else "inside"
    if ax is None:
        ax = Figure(figsize=SIZE, layout="constrained").add_subplot()
    table = summarise(result)
    floor = _floor(result, table.loc[table["policy"].isin(names), "regret"]) if scale == "log" else None
    for number, name in zip(numbers, names, strict=True):
        rows = table[table["policy"] == name]
        steps = rows["step"].to_numpy()
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": DASHES[number % len(DASHES)],
        }
        ax.plot(steps, _drawable(rows["regret"], floor), linewidth=1.8, label=name, **style)
        # On a log scale, a band that reaches 0 goes down to the frame instead of ending early.
        low = rows["regret_low"].clip(lower=floor).to_numpy()
        high = _drawable(rows["regret_high"], floor)
        ax.fill_between(steps, low, high, color=style["color"], alpha=0.2, linewidth=0)
        if quantiles:
            for column in ("q05", "q95"):
                ax.plot(steps, _drawable(rows[column], floor), linewidth=0.7, **style)
    if result.lai_robbins:
        t = np.geomspace(2, max(3, result.spec["horizon"]), 200)
        height = result.lai_robbins * np.log(t)
        label = EMPIRICAL_BOUND_LABEL if "arms_sha256" in result.spec else BOUND_LABEL
        ax.plot(t, height, color="black", linestyle=(0, (1, 3)), linewidth=1.2, label=label)
    ax.set_xlabel("step t")
    ax.set_ylabel("cumulative pseudo-regret")
    if scale == "log":
        ax.set_xscale("log")
    if floor is not None:
        ax.set_yscale("log")
        ax.set_ylim(bottom=floor)
    ax.grid(True, which="major", linewidth=0.4, alpha=0.5)
    if legend == "outside":
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False, handlelength=3.5)
    elif legend == "inside":
        ax.legend(loc="best", fontsize=7, framealpha=0.8, handlelength=3.5)
    return ax


def save_figure(result: Regrets, path: Path) -> None:
    """Write the log-log figure of a result as PNG; equal results give equal bytes, whatever the user's style.

    Args:
        result: what to draw.
        path: the file to write.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = plot_regret(result, figure.add_subplot(), legend="outside")
        spec = result.spec
        axes.set_title(f"{result.arms_shown}, {spec['instances']} instances, mean and 95 % band", loc="left", wrap=True)
        figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


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
