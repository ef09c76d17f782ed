"""The figures of docs/rl.md; the same rows give the same bytes."""

from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stau_rl.figures.coincide import NOTE, show_coinciding
from stau_rl.figures.grid import legend_below, one_panel, panels
from stau_rl.figures.palette import Look, looks
from stau_rl.figures.save import both, save
from stau_rl.figures.style import ground, headline, styled
from stau_rl.rl_study.results import RLResults

LEVELS = np.linspace(0.0, 1.4, 141)


@styled
def draw_curves(results: RLResults) -> Figure:
    """Learning curves of the evaluation runs: median over seeds, and the band of the middle half."""
    figure, grid = panels(len(results.tasks), 2.3)
    styles = _styles(results)
    for panel, task in zip(grid, results.tasks, strict=True):
        lines = []
        for family, look in styles.items():
            rows = results.curves[(results.curves["task"] == task) & (results.curves["family"] == family)]
            by_point = rows.groupby("point")
            steps = by_point["step"].mean() / 1000
            low, middle, high = (by_point["train_return"].quantile(level) for level in (0.25, 0.5, 0.75))
            lines += panel.plot(steps, middle, label=family, **look.line)
            panel.fill_between(steps, low, high, color=look.colour, alpha=0.15, linewidth=0)
        show_coinciding(panel, lines)
        panel.set_title(task, fontsize="small")
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.set_xlabel("thousands of steps", fontsize="small")
    headline(figure, "Does an agent learn sooner with another head?")
    figure.supylabel("return of the episodes: median, middle half", fontsize="small")
    legend_below(figure, {family: look.key() for family, look in styles.items()}, note=NOTE)
    return figure


@styled
def draw_profiles(results: RLResults) -> Figure:
    """Performance profiles: share of runs above each normalised score, over all tasks."""
    figure, panel = one_panel(3.4)
    styles = _styles(results)
    lines = []
    for family, look in styles.items():
        share = np.asarray(results.profile(family, list(LEVELS)))
        lines += panel.plot(np.repeat(LEVELS, 2)[1:], np.repeat(share, 2)[:-1], label=family, **look.line)
    show_coinciding(panel, lines)
    panel.set_xlabel("normalised score (0: random policy, 1: reference score)")
    panel.set_ylabel("share of runs above it")
    headline(figure, "Do more runs reach a score with another head?")
    panel.legend([look.key() for look in styles.values()], list(styles), loc="lower left")
    return figure


def _styles(results: RLResults) -> dict[str, Look]:
    return dict(zip(results.families, looks(results.families, ground()), strict=True))


FIGURES = {"rl_curves.png": draw_curves, "rl_profiles.png": draw_profiles}


def save_figures(results: RLResults, folder: Path) -> None:
    """Write every figure as PNG and SVG, whatever the user's style."""
    for name, draw in FIGURES.items():
        save(partial(draw, results), *both(folder / name))
