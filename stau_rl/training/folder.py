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
from pathlib import Path
from typing import Any

from stau_rl.files.finished import FinishedFolder, keep_seconds
from stau_rl.files.identity import first_difference, identity
from stau_rl.files.lock import LOCK
from stau_rl.files.whole import refuse_link, temporary_of, write_json
from stau_rl.training.run import RunSpec, read_result

SETTINGS, SEEDS = "settings.json", "seeds"
CURVES, SCORES, FIGURE = "curves", "scores.csv", "curves.png"


class TrainFolder(FinishedFolder):
    """The folder of one training; use it in a `with` block, which creates it and locks it against other processes.

    Args:
        path: the folder.
        spec: agent, settings and seeds, JSON-able.
        resume: it may hold results of this spec, which are then kept.

    Raises:
        ValueError: it holds a training and `resume` is not set, holds another one or foreign files, is in use, or
            cannot be written. Then nothing in it has been touched.
    """

    made_for, holds, pieces, ending = "a training", "this training already", SEEDS, "json"

    def __init__(self, path: str | Path, spec: dict[str, Any], resume: bool) -> None:
        self.spec = spec
        self._refuse_another(Path(path))
        super().__init__(path, resume)

    @property
    def has_pieces(self) -> bool:
        """Whether the training has begun."""
        return (self.path / SETTINGS).exists()

    def _refuse_another(self, path: Path) -> None:
        """Refuse a folder of another training, or of foreign files."""
        refuse_link(path / SEEDS)
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
        try:
            kept = identity(json.loads((path / SETTINGS).read_text(encoding="utf-8")))
        except (ValueError, AttributeError):
            raise ValueError(f"{path / SETTINGS} is damaged; name another folder") from None
        difference = first_difference(kept, identity(self.spec))
        if difference:
            where, here, asked = difference
            raise ValueError(f"{path} holds another training: {where} is {here} there, {asked} was asked for")

    def _begin(self) -> None:
        """Say what the training is, for one that goes on with it."""
        if not (self.path / SETTINGS).exists():
            write_json(self.path / SETTINGS, self.spec)

    def checkpoint(self, run: RunSpec) -> Path:
        """Where an unfinished seed keeps its state."""
        return self.path / SEEDS / f"seed-{run.seed}.pt"

    def read(self, run: RunSpec) -> dict[str, Any] | None:
        """The result of a finished seed; None if it is not there or not whole."""
        return read_result(self.path / SEEDS / f"seed-{run.seed}.json")

    def write(self, run: RunSpec, result: dict[str, Any], seconds: float) -> None:
        """Keep the result of a finished seed and the seconds it took; its checkpoint goes."""
        self.keep(run, result)
        self.checkpoint(run).unlink(missing_ok=True)
        keep_seconds(self.path, f"seed-{run.seed}", seconds)

    def keep(self, run: RunSpec, result: dict[str, Any]) -> None:
        """Keep the result of a finished seed."""
        write_json(self.path / SEEDS / f"seed-{run.seed}.json", result)
