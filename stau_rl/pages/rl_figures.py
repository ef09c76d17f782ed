"""The figures of docs/rl.md; the same rows give the same bytes."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS, DASHES
from stau_rl.files.whole import whole_file
from stau_rl.rl_study.results import RLResults

DPI = 80
LEVELS = np.linspace(0.0, 1.4, 141)


def draw_curves(results: RLResults) -> Figure:
    """Learning curves of the evaluation runs: median over seeds, and the band of the middle half."""
    figure = Figure(figsize=(3.2 * len(results.tasks), 3.4), layout="constrained")
    panels = np.atleast_1d(np.asarray(figure.subplots(1, len(results.tasks))))
    for panel, task in zip(panels, results.tasks, strict=True):
        for number, family in enumerate(results.families):
            rows = results.curves[(results.curves["task"] == task) & (results.curves["family"] == family)]
            by_point = rows.groupby("point")
            steps = by_point["step"].mean()
            low, middle, high = (by_point["train_return"].quantile(level) for level in (0.25, 0.5, 0.75))
            style = {"color": COLOURS[number % len(COLOURS)]}
            panel.plot(steps, middle, label=family, linestyle=DASHES[number % len(DASHES)], **style)
            panel.fill_between(steps, low, high, alpha=0.15, linewidth=0, **style)
        panel.set_title(task, fontsize=10)
        panel.set_xlabel("environment steps")
        panel.grid(True, linewidth=0.4, alpha=0.5)
    panels[0].set_ylabel("return of the episodes played")
    panels[0].legend(fontsize=7, frameon=False)
    return figure


def draw_profiles(results: RLResults) -> Figure:
    """Performance profiles: share of runs above each normalised score, over all tasks."""
    figure = Figure(figsize=(6.0, 3.4), layout="constrained")
    panel = figure.add_subplot()
    for number, family in enumerate(results.families):
        style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}
        panel.step(LEVELS, results.profile(family, list(LEVELS)), where="post", label=family, **style)
    panel.set_xlabel("normalised score (0: random policy, 1: reference score)")
    panel.set_ylabel("share of runs above it")
    panel.grid(True, linewidth=0.4, alpha=0.5)
    panel.legend(fontsize=8, frameon=False)
    return figure


FIGURES = {"rl_curves.png": draw_curves, "rl_profiles.png": draw_profiles}


def save_figures(results: RLResults, folder: Path) -> None:
    """Write every figure as PNG, whatever the user's style."""
    for name, draw in FIGURES.items():
        with mpl.rc_context():
            mpl.rcdefaults()
            with whole_file(folder / name) as temporary:
                draw(results).savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
