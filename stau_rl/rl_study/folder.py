"""The folder of a study of heads in reinforcement learning: a file per finished run, and the tables made of them.

| file | what it holds |
| --- | --- |
| `runs/*.json` | a finished run each; the name carries a digest of everything that decides its numbers |
| `rl_runs.csv` | a row per run: task, family, head, learning rate, role (tuning, evaluation, control), seed, scores |
| `rl_curves.csv` | a row per evaluation run and point of its learning curve |

Every file is written whole or not at all.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.files.finished import FinishedFolder, write_table
from stau_rl.files.whole import write_json
from stau_rl.rl_study.runs import Row, StudyRun
from stau_rl.rl_study.tasks import TASKS, Family, Task
from stau_rl.training.run import read_result

RUN_FILES, RUNS, CURVES = "runs", "rl_runs.csv", "rl_curves.csv"
DIGITS = 8


class RLStudyFolder(FinishedFolder):
    """The folder of one study; its finished pieces are runs, by `StudyRun.file_name`."""

    made_for, holds, pieces, ending = "a study", "a study", RUN_FILES, "json"
    tables = (RUNS, CURVES)

    def read(self, run: StudyRun) -> dict[str, Any] | None:
        """A finished run; None if it is not there or not whole."""
        return read_result(self.path / RUN_FILES / run.file_name)

    def write(self, run: StudyRun, result: dict[str, Any], seconds: float, about: dict[str, str]) -> dict[str, Any]:
        """Keep a run, with the seconds it took and what the study says about itself."""
        kept = {**result, "seconds": round(seconds, 2), **about}
        write_json(self.path / RUN_FILES / run.file_name, kept)
        return kept


def write_tables(folder: Path, rows: Sequence[Row] | pd.DataFrame, curves: Sequence[Row] | pd.DataFrame) -> None:
    """Write `rl_runs.csv`, a row per run, and `rl_curves.csv`, a row per evaluation run and point of its curve."""
    for name, table in ((RUNS, rows), (CURVES, curves)):
        write_table(folder / name, pd.DataFrame(table), DIGITS)


def unused_runs(
    folder: Path, rows: pd.DataFrame, families: Sequence[Family], shorter: int, tasks: Sequence[Task] = TASKS
) -> int:
    """How many finished runs a study's folder holds that its rows do not use."""
    tasks_named = {task.name: task for task in tasks}
    named = {family.name: family for family in families}
    used = {
        StudyRun(
            tasks_named[row["task"]],
            named[row["family"]],
            row["head"],
            row["learning_rate"],
            row["role"],
            row["seed"],
            shorter,
        ).file_name
        for row in rows.to_dict("records")
    }
    return len({file.name for file in (folder / RUN_FILES).glob("*.json")} - used)


def unused_text(folder: Path, unused: int) -> str:
    """A line about them."""
    return (
        f"{unused} finished run{'s' * (unused != 1)} in {folder} belong{'s' * (unused == 1)} to other tasks, heads, "
        f"seeds or lengths and {'is' if unused == 1 else 'are'} not in the tables"
    )
