"""Learning curves as a figure; equal curves give equal bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from stau_rl.figures.grid import one_panel
from stau_rl.figures.palette import looks
from stau_rl.figures.save import save
from stau_rl.figures.style import ground_of, headline


def plot_curves(curves: pd.DataFrame, ax: Axes, title: str) -> None:
    """Mean return of the training episodes against the step: a thin line per seed, their median and middle half.

    A point in which no episode of a seed ended lies on the line between its neighbours; before a seed's first episode
    and after its last it has no line, and the median is that of the others.

    Args:
        curves: columns seed, step, train_return.
        ax: where to draw.
        title: above it.
    """
    (look,) = looks(["softmax"], ground_of(ax))
    for seed, (_, rows) in enumerate(curves.groupby("seed", sort=True)):
        known = rows[rows["train_return"].notna()]
        label = "" if seed else "each seed"
        # A line through one point would not be seen.
        mark = "o" if len(known) == 1 else ""
        style: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.5, "marker": mark, "label": label}
        ax.plot(known["step"], known["train_return"], color=look.colour, **style)
    steps, returns = filled(curves)
    if len(steps):
        low, middle, high = np.nanquantile(returns, (0.25, 0.5, 0.75), axis=0)
        mark = "o" if len(steps) == 1 else ""
        ax.plot(steps, middle, color=look.colour, linewidth=2.4, marker=mark, label="median over seeds")
        if len(returns) > 1:
            band: dict[str, Any] = {"alpha": 0.2, "linewidth": 0, "label": "middle half of the seeds"}
            ax.fill_between(steps, low, high, color=look.colour, **band)
        ax.legend(frameon=False)
    else:
        ax.text(0.5, 0.5, "no episode ended", transform=ax.transAxes, horizontalalignment="center")
    ax.set_xlabel("environment steps")
    ax.set_ylabel("return of the episodes played")
    ax.set_title(title, loc="left", fontsize="small", wrap=True)
    ax.grid(True)


def filled(curves: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns at every point, with those between two known ones on the line between them.

    Args:
        curves: columns seed, step, train_return.

    Returns:
        Mean step of every point that has a return of any seed, float64 [P]; returns, float64 [seeds, P], nan before a
        seed's first known one and after its last.
    """
    table = curves.assign(point=curves.groupby("seed").cumcount())
    # Seeds reach a point at slightly different steps.
    steps = table.pivot(index="seed", columns="point", values="step").to_numpy(np.float64)
    returns = table.pivot(index="seed", columns="point", values="train_return").to_numpy(np.float64, copy=True)
    for at, row in zip(steps, returns, strict=True):
        known = np.isfinite(row)
        if known.any():
            row[:] = np.interp(at, at[known], row[known], left=np.nan, right=np.nan)
    there = np.isfinite(returns).any(0)
    return steps.mean(0)[there], returns[:, there]


def save_curves(curves: pd.DataFrame, title: str, path: Path) -> None:
    """Write the figure as PNG or SVG, whatever the user's style."""
    save(lambda: _figure(curves, title), path)


def _figure(curves: pd.DataFrame, title: str) -> Figure:
    figure, axes = one_panel()
    headline(figure, "Does the agent learn?")
    plot_curves(curves, axes, title)
    return figure
