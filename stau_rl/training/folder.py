"""The folder of a training: a file per finished seed, and the tables and the figure made of them.

| file | what it holds |
| --- | --- |
| `settings.json` | agent, settings, seeds and a digest of the code of a plug-in head: what decides the numbers |
| `seeds/*.json` | the result of a finished seed |
| `seeds/*.pt` | the state of a seed at the last point of its curve, to go on from |
| `policies/` | the final weights of every finished seed, described in `stau_rl.training.policies` |
| `curves.csv`, `curves.parquet` | learning curves: a row per seed and point |
| `scores.csv` | final evaluations: a row per seed |
| `curves.png` | the figure |
| `tensorboard/` | where it was asked for, a folder of events per seed, for TensorBoard |
| `timing.json` | seconds of every seed; it and the events are all that differs between two runs |

Where the head learns, `scores.csv` has a column `learned_NAME` per learned parameter, its final value, and the curves
have the value at each point, with `entropy`, the policy's mean entropy then on the states of the last update, as a
share of log n, n the number of actions. They are empty for points that were played before these columns were kept.

Every file is written whole or not at all.
"""

from pathlib import Path
from typing import Any

from stau_rl.files.finished import FinishedFolder, keep_seconds
from stau_rl.files.identity import first_difference, identity
from stau_rl.files.lock import LOCK
from stau_rl.files.whole import refuse_link, temporary_of, write_json
from stau_rl.training.board import BOARD
from stau_rl.training.policies import POLICIES
from stau_rl.training.request import SETTINGS, goes_on, has_more_steps, kept_spec
from stau_rl.training.run import RunSpec, read_result

SEEDS = "seeds"
CURVES, SCORES, FIGURE = "curves", "scores.csv", "curves.png"


class TrainFolder(FinishedFolder):
    """The folder of one training; use it in a `with` block, which creates it and locks it against other processes.

    Args:
        path: the folder.
        spec: agent, settings and seeds, JSON-able.
        resume: it may hold results of this spec, or of the same with fewer steps or seeds: they are kept or go on.

    Raises:
        ValueError: it holds a training and `resume` is not set, holds another one or foreign files, is in use, or
            cannot be written; or it lacks the state of a seed that is to go on. Then nothing in it has been touched.
    """

    made_for, holds, pieces, ending = "a training", "this training already", SEEDS, "json"

    def __init__(self, path: str | Path, spec: dict[str, Any], resume: bool) -> None:
        self.spec, self._goes_on = spec, False
        self._refuse_another(Path(path))
        super().__init__(path, resume)

    @property
    def has_pieces(self) -> bool:
        """Whether the training has begun."""
        return (self.path / SETTINGS).exists()

    def _refuse_another(self, path: Path) -> None:
        """Refuse a folder of another training, or of foreign files."""
        for folder in (SEEDS, POLICIES, BOARD):
            refuse_link(path / folder)
        if not path.is_dir():
            return
        if not (path / SETTINGS).exists():
            # A process killed before it wrote its settings leaves these and nothing else.
            ours = {LOCK, temporary_of(path / SETTINGS).name}
            if not any((path / SEEDS).glob("*")):
                ours.add(SEEDS)
            foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in ours)
            if foreign:
                raise ValueError(f"{path} holds files that are no training ({foreign[0]}); name a new or empty folder")
            return
        kept = kept_spec(path) or {}
        self._goes_on = goes_on(self.spec, kept)
        difference = None if self._goes_on else first_difference(kept, identity(self.spec))
        if difference:
            where, here, asked = difference
            raise ValueError(f"{path} holds another training: {where} is {here} there, {asked} was asked for")
        for seed in kept["seeds"] if has_more_steps(self.spec, kept) else ():
            if _result(path, seed).exists() and not _state(path, seed).exists():
                raise ValueError(
                    f"{path} has no {SEEDS}/{_state(path, seed).name}, the state that seed {seed} would go on from; "
                    "name another folder to train anew"
                )

    def _begin(self) -> None:
        """Say what the training is, for one that goes on with it."""
        if self._goes_on or not (self.path / SETTINGS).exists():
            write_json(self.path / SETTINGS, self.spec)

    def checkpoint(self, run: RunSpec) -> Path:
        """Where a seed keeps its state."""
        return _state(self.path, run.seed)

    def read(self, run: RunSpec) -> dict[str, Any] | None:
        """The result of a finished seed; None if it is not there, not whole, or of fewer steps."""
        kept = read_result(_result(self.path, run.seed))
        return kept if kept and first_difference(kept["settings"], run.settings) is None else None

    def write(self, run: RunSpec, result: dict[str, Any], seconds: float) -> None:
        """Keep the result of a finished seed and the seconds it took."""
        self.keep(run, result)
        keep_seconds(self.path, f"seed-{run.seed}", seconds)

    def keep(self, run: RunSpec, result: dict[str, Any]) -> None:
        """Keep the result of a finished seed."""
        write_json(_result(self.path, run.seed), result)


def _state(folder: Path, seed: int) -> Path:
    return folder / SEEDS / f"seed-{seed}.pt"


def _result(folder: Path, seed: int) -> Path:
    return folder / SEEDS / f"seed-{seed}.json"
