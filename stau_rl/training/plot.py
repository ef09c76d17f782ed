"""Learning curves as a figure; equal curves give equal bytes."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS
from stau_rl.files.whole import whole_file


def plot_curves(curves: pd.DataFrame, ax: Axes, title: str) -> None:
    """Mean return of the training episodes against the step: a thin line per seed, a thick one for their mean.

    Args:
        curves: columns seed, step, train_return.
        ax: where to draw.
        title: above it.
    """
    for _, rows in curves.groupby("seed", sort=True):
        ax.plot(rows["step"], rows["train_return"], color=COLOURS[3], linewidth=0.8)
    # Seeds reach a point at slightly different steps.
    point = curves.groupby("seed").cumcount()
    mean = curves.groupby(point)[["step", "train_return"]].mean()
    ax.plot(mean["step"], mean["train_return"], color=COLOURS[0], linewidth=2.0, label="mean over seeds")
    ax.set_xlabel("environment steps")
    ax.set_ylabel("return of the episodes played")
    ax.set_title(title, loc="left")
    ax.grid(True, linewidth=0.4, alpha=0.5)
    ax.legend(frameon=False)


def save_curves(curves: pd.DataFrame, title: str, path: Path) -> None:
    """Write the figure as PNG, whatever the user's style."""
    with mpl.rc_context():
        mpl.rcdefaults()
        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        plot_curves(curves, figure.add_subplot(), title)
        with whole_file(path) as temporary:
            figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})
