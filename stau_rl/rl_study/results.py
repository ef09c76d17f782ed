"""The rows of a study of heads in reinforcement learning: read back, and summed up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from stau_rl.rl_study.folder import CURVES, RUNS
from stau_rl.rl_study.runs import CONTROL, TUNING
from stau_rl.rl_study.tasks import TASKS, Task
from stau_rl.statistics.means import holm
from stau_rl.statistics.robust import (
    Estimate,
    interquartile_interval,
    rank_sum_test,
    stratified_interval,
    unpaired_improvement,
)

PLATEAU = "plateau.csv"
BOOTSTRAP_SEED = 0
KINDS = ("sampled", "deterministic")


@dataclass(frozen=True, slots=True)
class RLResults:
    """A study's rows.

    Attributes:
        runs: a row per run.
        curves: a row per evaluation run and point of its curve.
        plateau: rows of the plateau benchmark; None where there are none.
    """

    runs: pd.DataFrame
    curves: pd.DataFrame
    plateau: pd.DataFrame | None = None

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read the files of a folder.

        Raises:
            FileNotFoundError: the study's tables are not there.
        """
        folder = Path(folder)
        plateau = folder / PLATEAU
        return cls(
            pd.read_csv(folder / RUNS),
            pd.read_csv(folder / CURVES),
            pd.read_csv(plateau) if plateau.is_file() else None,
        )

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks, in the study's order."""
        return list(dict.fromkeys(self.runs["task"]))

    @property
    def families(self) -> list[str]:
        """Names of the families; the first is the reference."""
        return list(dict.fromkeys(self.runs["family"]))

    def task(self, name: str) -> Task:
        """The task of a name; one's own has from the rows what the grid needs, and no reference score."""
        known = {task.name: task for task in TASKS}
        if name in known:
            return known[name]
        rows = self.runs[(self.runs["task"] == name) & (self.runs["role"] == TUNING)]
        if rows.empty:
            raise ValueError(f"there are no rows of a task {name!r}; there are {', '.join(self.tasks)}")
        first, rates = rows.iloc[0], rows["learning_rate"]
        ends = float(rates.min()), float(rates.max())
        return Task(name, first["agent"], first["env"], int(first["steps"]), ends, floor=math.nan, goal=math.nan)

    def evaluation(self, task: str, family: str) -> pd.DataFrame:
        """The evaluation runs of one task and family."""
        runs = self.runs
        return runs[(runs["task"] == task) & (runs["family"] == family) & (runs["role"] == "evaluation")]

    def tuned(self, task: str, family: str) -> tuple[str, float]:
        """Head and learning rate that were chosen."""
        row = self.evaluation(task, family).iloc[0]
        return str(row["head"]), float(row["learning_rate"])

    def score(self, task: str, family: str, kind: str = "sampled") -> Estimate:
        """Interquartile mean over seeds, with its interval."""
        return interquartile_interval(self.evaluation(task, family)[kind].to_numpy(), seed=BOOTSTRAP_SEED)

    def normalised(self, task: str, family: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Sampled scores on a scale where the random policy has 0 and the task's reference score 1."""
        known = self.task(task)
        if math.isnan(known.goal):
            raise ValueError(f"task {task!r} has no reference score, so its scores are not normalised")
        return (self.evaluation(task, family)["sampled"].to_numpy(np.float64) - known.floor) / (
            known.goal - known.floor
        )

    def overall(self, family: str) -> Estimate:
        """Interquartile mean of normalised scores over all tasks and seeds; the bootstrap is stratified by task."""
        return stratified_interval([self.normalised(task, family) for task in self.tasks], seed=BOOTSTRAP_SEED)

    def control(self, task: str, family: str) -> pd.DataFrame:
        """Runs of the reference at the sharpness and learning rate of a family's choice; empty for the reference."""
        runs = self.runs
        return runs[(runs["task"] == task) & (runs["role"] == CONTROL) & (runs["control_of"] == family)]

    def improvement(self, task: str, family: str, kind: str = "sampled", *, control: bool = False) -> Estimate:
        """Probability that a run of a family scores more than one of the reference, ties counting half.

        With `control` the reference has the family's sharpness and learning rate instead of its own best.
        """
        # What is compared counts regrets: less is better.
        return unpaired_improvement(*(-scores for scores in self._pair(task, family, kind, control)))

    def p_values(self, *, control: bool = False) -> dict[tuple[str, str], float]:
        """Exact p-values of the rank sum, adjusted by Holm over all tasks and families."""
        cells = [(task, family) for task in self.tasks for family in self.families[1:]]
        cells = [cell for cell in cells if not control or len(self.control(*cell))]
        raw = [rank_sum_test(*self._pair(*cell, "sampled", control)) for cell in cells]
        return dict(zip(cells, map(float, holm(raw)), strict=True))

    def _pair(self, task: str, family: str, kind: str, control: bool) -> tuple[Any, Any]:
        other = self.control(task, family) if control else self.evaluation(task, self.families[0])
        return self.evaluation(task, family)[kind].to_numpy(), other[kind].to_numpy()

    def profile(self, family: str, levels: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Performance profile: share of runs, over all tasks, whose normalised score is above each level."""
        scores = np.concatenate([self.normalised(task, family) for task in self.tasks])
        return (scores[:, None] > np.asarray(levels)).mean(0)


def summary(results: RLResults) -> pd.DataFrame:
    """A row per task and family: what was chosen, both scores, and the probabilities of improvement."""
    rows = []
    p_values = results.p_values()
    for task in results.tasks:
        for family in results.families:
            head, rate = results.tuned(task, family)
            row: dict[str, Any] = {"task": task, "family": family, "head": head, "learning_rate": rate}
            row["seeds"] = len(results.evaluation(task, family))
            for kind in KINDS:
                found = results.score(task, family, kind)
                row |= {kind: found.value, f"{kind}_low": found.low, f"{kind}_high": found.high}
            chance = results.improvement(task, family)
            row |= {"improvement": chance.value, "improvement_low": chance.low, "improvement_high": chance.high}
            row["p_holm"] = p_values.get((task, family), math.nan)
            if len(results.control(task, family)):
                row["over_control"] = results.improvement(task, family, control=True).value
            rows.append(row)
    return pd.DataFrame(rows)


def rounded(table: pd.DataFrame) -> pd.DataFrame:
    """A summary to read: two decimals, but learning rates in full."""
    return table.round(2).assign(learning_rate=table["learning_rate"].map("{:g}".format))


def interval_text(found: Estimate, form: str) -> str:
    """An estimate and its interval, in a number's format; without an interval the estimate alone."""
    if math.isnan(found.low):
        return f"{found.value:{form}}"
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"
