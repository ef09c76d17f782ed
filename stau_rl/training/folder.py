"""The folder of a training: a file per finished seed, and the tables and the figure made of them.

| file | what it holds |
| --- | --- |
| `settings.json` | agent, settings, seeds and a digest of the code of a plug-in head: what decides the numbers |
| `seeds/*.pt` | the state of an unfinished seed at the last point of its curve |
| `seeds/*.json` | the result of a finished seed |
| `curves.csv`, `curves.parquet` | learning curves: a row per seed and point |
| `scores.csv` | final evaluations: a row per seed |
| `curves.png` | the figure |
| `timing.json` | seconds of every seed, and the host: the only file that differs between two runs |

Where the head learns, `scores.csv` has a column `learned_NAME` per learned parameter, its final value, and the curves
have the value at each point, with `entropy`, the policy's mean entropy then on the states of the last update, as a
share of log n, n the number of actions. They are empty for points that were played before these columns were kept.

Every file is written whole or not at all.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.agents.policy_gradient.agent_settings import learned_column
from stau_rl.files.finished import keep_seconds
from stau_rl.files.identity import first_difference, identity
from stau_rl.files.lock import LOCK, DirectoryLock
from stau_rl.files.whole import refuse_link, whole_file, write_json
from stau_rl.training.run import RunSpec, read_result

SETTINGS, SEEDS = "settings.json", "seeds"
CURVES, SCORES, FIGURE = "curves", "scores.csv", "curves.png"


class TrainFolder:
    """The folder of one training; use it in a `with` block, which creates it and locks it against other processes.

    Args:
        path: the folder.
        spec: agent, settings and number of seeds, JSON-able.
        resume: it may hold results of this spec, which are then kept.

    Raises:
        ValueError: it holds a training and `resume` is not set, holds another one or foreign files, is in use, or
            cannot be written. Then nothing in it has been touched.
    """

    def __init__(self, path: Path, spec: dict[str, Any], resume: bool) -> None:
        self.path, self.spec = path, spec
        self._lock = DirectoryLock(path)
        if not path.exists():
            return
        if not path.is_dir():
            raise ValueError(f"{path} is a file, not a folder for a training")
        refuse_link(path / SEEDS)
        if not (path / SETTINGS).exists():
            foreign = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK)
            if foreign:
                raise ValueError(f"{path} holds files that are no training ({foreign[0]}); name a new or empty folder")
            return
        try:
            kept = identity(json.loads((path / SETTINGS).read_text(encoding="utf-8")))
        except (ValueError, AttributeError):
            raise ValueError(f"{path / SETTINGS} is damaged; name another folder") from None
        difference = first_difference(kept, identity(spec))
        if difference:
            where, here, asked = difference
            raise ValueError(f"{path} holds another training: {where} is {here} there, {asked} was asked for")
        if not resume:
            raise ValueError(f"{path} holds this training already; pass --resume to go on with it")

    def __enter__(self) -> "TrainFolder":
        """Create and lock the folder."""
        try:
            (self.path / SEEDS).mkdir(parents=True, exist_ok=True)
            self._lock.take()
            if not (self.path / SETTINGS).exists():
                write_json(self.path / SETTINGS, self.spec)
        except OSError as error:
            raise ValueError(f"{self.path} cannot be used: {error.strerror or error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Let other processes have the folder."""
        self._lock.release()

    def checkpoint(self, run: RunSpec) -> Path:
        """Where an unfinished seed keeps its state."""
        return self.path / SEEDS / f"seed-{run.seed}.pt"

    def read(self, run: RunSpec) -> dict[str, Any] | None:
        """The result of a finished seed; None if it is not there or not whole."""
        return read_result(self.path / SEEDS / f"seed-{run.seed}.json")

    def write(self, run: RunSpec, result: dict[str, Any], seconds: float) -> None:
        """Keep the result of a finished seed; its checkpoint goes."""
        write_json(self.path / SEEDS / f"seed-{run.seed}.json", result)
        self.checkpoint(run).unlink(missing_ok=True)
        keep_seconds(self.path, f"seed-{run.seed}", seconds)

    def finish(self, results: list[dict[str, Any]]) -> pd.DataFrame:
        """Write the tables and the figure of all seeds; the scores are returned."""
        from stau_rl.training.plot import save_curves

        learned = [learned_column(name) for name in dict.fromkeys(self.spec["settings"]["learn"])]
        curves = curve_table(results, learned)
        scores = pd.DataFrame([{k: v for k, v in r.items() if k not in ("curve", "settings")} for r in results])
        scores.insert(1, "env", [result["settings"]["env"] for result in results])
        scores.insert(2, "head", [result["settings"]["head"] for result in results])
        for column in learned:
            scores[column] = curves.groupby("seed", sort=False)[column].nth(-1).to_numpy()
        for name, table in ((f"{CURVES}.csv", curves), (SCORES, scores)):
            with whole_file(self.path / name) as temporary:
                table.to_csv(temporary, index=False, lineterminator="\n")
        with whole_file(self.path / f"{CURVES}.parquet") as temporary:
            curves.to_parquet(temporary, index=False)
        save_curves(curves, f"{self.spec['agent']} on {self.spec['settings']['env']}", self.path / FIGURE)
        return scores


def curve_table(results: list[dict[str, Any]], learned: Sequence[str]) -> pd.DataFrame:
    """Learning curves: a row per seed and point; columns of what the head learned are there even if no row has them."""
    rows = [{"seed": result["seed"], **row} for result in results for row in result["curve"]]
    table = pd.DataFrame(rows)
    extra = [*learned, "entropy"] if learned else []
    table = table.reindex(columns=[*table.columns.drop(extra, errors="ignore"), *extra])
    return table.astype(dict.fromkeys(["train_return", "sampled_return", *extra], "float64"))
