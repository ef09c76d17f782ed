"""Training runs in parallel worker processes, with the steps of all of them counted."""

import multiprocessing
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from stau_rl.machine.pool import WorkerPool
from stau_rl.plugin.load import load_plugins
from stau_rl.training.run import Played, RunSpec, play_run

# In a worker: the steps that each run has done.
_steps: Any = None


class RunPool(WorkerPool):
    """Workers that play training runs.

    Args:
        processes: how many at most.
        slots: how many runs have their steps counted; their slots are 0, ..., slots - 1.
        plugins: files of heads that every worker loads.
        work: what is done, for messages.
    """

    def __init__(self, processes: int, slots: int = 0, plugins: tuple[Path, ...] = (), work: str = "training") -> None:
        self._steps: Any = multiprocessing.get_context("spawn").Array("q", max(slots, 1), lock=False)
        super().__init__(processes, _begin, (self._steps, plugins), work)

    def play(
        self, run: RunSpec, slot: int | None = None, checkpoint: Path | None = None, **kept: Path | None
    ) -> "Future[Played]":
        """Play a run, its steps counted in a slot if one is given; the rest is as of `play_run`."""
        return self.submit(_play, run, slot, checkpoint, kept)

    @property
    def steps(self) -> int:
        """Steps done so far, over all slots."""
        return sum(self._steps)


def _begin(steps: Any, plugins: tuple[Path, ...]) -> None:
    """Set up a worker: where it counts, and the heads of plug-ins."""
    global _steps
    _steps = steps
    load_plugins(plugins)


def _play(run: RunSpec, slot: int | None, checkpoint: Path | None, kept: dict[str, Path | None]) -> Played:
    def count(what: str, done: int, total: int) -> None:
        if slot is not None:
            _steps[slot] = done

    return play_run(run, checkpoint, count, **kept)
