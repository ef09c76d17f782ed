"""The outcome of a study of heads in reinforcement learning, with its table, its figure and its files."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import RenderableType

from stau_rl.figures.palette import looks
from stau_rl.figures.style import ground_of
from stau_rl.rl_study.folder import RLStudyFolder, write_tables
from stau_rl.rl_study.results import RLResults, summary
from stau_rl.rl_study.table import printed, render
from stau_rl.terminal.notebook import ShownAsTables


class RLStudyResult(RLResults, ShownAsTables):
    """Every run of a study; the rows and estimates are those of `RLResults`.

    Attributes:
        runs: a row per run, with the columns of `rl_runs.csv`.
        curves: a row per run and point of its learning curve, with the columns of `rl_curves.csv`.

    Examples:
        >>> result = RLStudyResult.load("runs/rl-study")                # doctest: +SKIP
        >>> result.table()[["task", "family", "sampled", "p_holm"]]     # doctest: +SKIP
        >>> axes = result.plot("ppo-cartpole")                          # doctest: +SKIP
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """A line about the study; `table` has the numbers."""
        seeds = self.runs.loc[self.runs["role"] == "evaluation", "seed"].nunique()
        tasks, families = len(self.tasks), len(self.families)
        return (
            f"RLStudyResult({tasks} task{'s' if tasks > 1 else ''}, {families} famil{'ies' if families > 1 else 'y'}, "
            f"{seeds} seed{'s' if seeds > 1 else ''})"
        )

    def __rich__(self) -> RenderableType:
        """What a notebook shows, and what `stau-rl rl-study` prints."""
        seeds = self.runs.loc[self.runs["role"] == "evaluation", "seed"].nunique()
        return render(
            self, title=f"Return after training, {seeds} seeds, each family at its best head and learning rate"
        )

    def __str__(self) -> str:
        """The table as the command line prints it."""
        return printed(self)

    def table(self) -> pd.DataFrame:
        """A row per task and family.

        Returns:
            Columns `task, family, head, learning_rate, seeds`, what was chosen; `sampled, deterministic`, interquartile
            mean returns over seeds with `_low` and `_high`, their 95 % intervals; `improvement`, the probability of
            scoring more than the first family, with its interval; `p_holm`; and `over_control` where there is one.
        """
        return summary(self)

    def plot(self, task: str | None = None, ax: Axes | None = None) -> Axes:
        """Learning curves of a task's evaluation runs: median over seeds, and the band of the middle half.

        Args:
            task: its name; the first by default.
            ax: where to draw; a figure of its own by default.

        Raises:
            ValueError: the study has no such task.
        """
        task = self.tasks[0] if task is None else task
        if task not in self.tasks:
            raise ValueError(f"task must be one of {', '.join(self.tasks)}, got {task!r}")
        ax = ax or Figure(layout="constrained").add_subplot()
        for family, look in zip(self.families, looks(self.families, ground_of(ax)), strict=True):
            rows = self.curves[(self.curves["task"] == task) & (self.curves["family"] == family)]
            by_point = rows.groupby("point")
            steps = by_point["step"].mean()
            low, middle, high = (by_point["train_return"].quantile(level) for level in (0.25, 0.5, 0.75))
            ax.plot(steps, middle, label=family, **look.line)
            ax.fill_between(steps, low, high, color=look.colour, alpha=0.15, linewidth=0)
        ax.set_title(task, loc="left")
        ax.set_xlabel("environment steps")
        ax.set_ylabel("return of the episodes played")
        ax.legend(frameon=False)
        return ax

    def save(self, directory: str | Path) -> None:
        """Write `rl_runs.csv` and `rl_curves.csv`; `load` reads them. Numbers keep eight digits.

        Args:
            directory: created if it is not there; the tables in it are replaced.

        Raises:
            ValueError: the directory is in use or cannot be written.
        """
        with RLStudyFolder(directory, resume=True, replace=True) as folder:
            write_tables(folder.path, self.runs, self.curves)
