"""Training runs in parallel processes of one thread each."""

import multiprocessing
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any

from stau_rl.machine.threads import one_thread
from stau_rl.training.run import RunSpec, play_run

_shared: dict[str, Any] = {}


class Stopped(Exception):
    """The run was told to stop; its finished segments are kept."""


class RunPool:
    """Processes that play runs; use it in a `with` block. Leaving it by an exception stops the runs at once.

    Args:
        processes: how many.
        slots: how many runs have their steps counted; their slots are 0, ..., slots - 1.
        plugins: files of heads that every process loads.
    """

    def __init__(self, processes: int, slots: int, plugins: tuple[Path, ...] = ()) -> None:
        # Started afresh rather than forked: a fork would copy locks that other threads of this process hold.
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._steps = context.Array("q", max(slots, 1), lock=False)
        arguments = (self._stop, self._steps, plugins)
        with one_thread():
            self._pool = ProcessPoolExecutor(processes, context, _begin, arguments)

    def submit(
        self, run: RunSpec, slot: int | None = None, checkpoint: Path | None = None
    ) -> "Future[tuple[dict[str, Any], float]]":
        """Play a run, its steps counted in a slot if one is given; the future gives what `play_run` returns."""
        with one_thread():
            return self._pool.submit(_play, run, slot, checkpoint)

    def result(self, future: "Future[tuple[dict[str, Any], float]]") -> tuple[dict[str, Any], float]:
        """What a finished future gives.

        Raises:
            ValueError: a process was killed, for want of memory or by someone.
        """
        try:
            return future.result()
        except BrokenProcessPool:
            raise ValueError(
                "a process of the run was killed; what is finished is kept: repeat the command with --resume, perhaps "
                "with fewer --processes"
            ) from None

    @property
    def steps(self) -> int:
        """Steps done so far, over all slots."""
        return sum(self._steps)

    def __enter__(self) -> "RunPool":
        """Nothing to do; processes start with the first run."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the processes; after an error, tell them to stop first."""
        if kind is not None:
            self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)


def _begin(stop: Any, steps: Any, plugins: tuple[Path, ...]) -> None:
    """Set up a process: one thread, and Ctrl-C is the parent's to handle."""
    import torch

    from stau_rl.plugin.load import load_plugins

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    load_plugins(plugins)
    _shared.update(stop=stop, steps=steps)


def _play(run: RunSpec, slot: int | None, checkpoint: Path | None) -> tuple[dict[str, Any], float]:
    def report(step: int) -> None:
        if slot is not None:
            _shared["steps"][slot] = step
        if _shared["stop"].is_set():
            raise Stopped

    return play_run(run, checkpoint, report)
