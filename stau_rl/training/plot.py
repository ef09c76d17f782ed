"""Learning curves as a figure; equal curves give equal bytes."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.grid import one_panel
from stau_rl.figures.palette import looks
from stau_rl.figures.save import save
from stau_rl.figures.style import ground_of, headline


def plot_curves(curves: pd.DataFrame, ax: Axes, title: str) -> None:
    """Mean return of the training episodes against the step: a thin line per seed, a thick one for their mean.

    Args:
        curves: columns seed, step, train_return.
        ax: where to draw.
        title: above it.
    """
    (look,) = looks(["softmax"], ground_of(ax))
    for seed, (_, rows) in enumerate(curves.groupby("seed", sort=True)):
        label = "" if seed else "each seed"
        ax.plot(rows["step"], rows["train_return"], color=look.colour, linewidth=0.8, alpha=0.5, label=label)
    # Seeds reach a point at slightly different steps.
    point = curves.groupby("seed").cumcount()
    mean = curves.groupby(point)[["step", "train_return"]].mean()
    ax.plot(mean["step"], mean["train_return"], color=look.colour, linewidth=2.4, label="mean over seeds")
    ax.set_xlabel("environment steps")
    ax.set_ylabel("return of the episodes played")
    ax.set_title(title, loc="left", fontsize="small", wrap=True)
    ax.grid(True)
    ax.legend(frameon=False)


def save_curves(curves: pd.DataFrame, title: str, path: Path) -> None:
    """Write the figure as PNG or SVG, whatever the user's style."""
    save(lambda: _figure(curves, title), path)


def _figure(curves: pd.DataFrame, title: str) -> Figure:
    figure, axes = one_panel()
    headline(figure, "Does the agent learn?")
    plot_curves(curves, axes, title)
    return figure
