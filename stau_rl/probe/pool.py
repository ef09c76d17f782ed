"""Groups of probe models in parallel processes of one thread each, with a CUDA context of their own on a GPU."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import pandas as pd
import torch

from stau_rl.machine.threads import one_thread
from stau_rl.plugin.load import load_plugins
from stau_rl.probe.folder import Maps
from stau_rl.probe.group import train_group
from stau_rl.probe.plan import Setting

Result = tuple[pd.DataFrame, Maps]
Played = tuple[int, Result, float]
"""The number of a group, its rows and maps, and the seconds it took."""


class ProbePool:
    """Processes that train groups; use it in a `with` block. Leaving it by an exception ends them at once.

    They also end when this process does, however it ends.

    Args:
        processes: how many at most.
        device: where they train.
        plugins: files of heads that every process loads.
    """

    def __init__(self, processes: int, device: torch.device, plugins: Sequence[str | Path] = ()) -> None:
        # Started afresh rather than forked: a fork cannot use CUDA, and would copy locks that other threads hold.
        context = multiprocessing.get_context("spawn")
        # Nothing is ever sent: the processes wait for the end of the pipe, which comes when this process ends too.
        self._watched, self._alive = context.Pipe(duplex=False)
        self._device = str(device)
        arguments = (self._watched, tuple(map(Path, plugins)))
        self._pool = ProcessPoolExecutor(processes, context, _begin, arguments)

    def play(self, groups: Sequence[tuple[int, Setting]], names: Sequence[str]) -> Iterator[Played]:
        """Train groups, begun in their order; each is given as soon as it is done.

        Args:
            groups: their numbers, and what they are.
            names: identities by number.

        Raises:
            ValueError: a group failed, or a process was killed.
        """
        with one_thread():
            futures: dict[Future[tuple[Result, float]], tuple[int, Setting]] = {
                self._pool.submit(_play, group, names[number], self._device): (number, group)
                for number, group in groups
            }
        for future in as_completed(futures):
            number, group = futures[future]
            try:
                with named_errors(group):
                    result, seconds = future.result()
            except BrokenProcessPool:
                raise ValueError(
                    "a process of the probe was killed, perhaps for want of memory; finished groups are kept: repeat "
                    "the command with --resume, perhaps with fewer --processes"
                ) from None
            yield number, result, seconds

    def __enter__(self) -> "ProbePool":
        """Nothing to do; processes start with the first groups."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the processes; after an error, end them first."""
        if kind is not None:
            self._alive.close()
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        self._alive.close()
        self._watched.close()


@contextmanager
def named_errors(group: Setting) -> Iterator[None]:
    """Turn what goes wrong while a group is trained into one line that says which and what to do.

    Raises:
        ValueError: something went wrong.
        BrokenProcessPool: a process is gone, whose group nobody knows.
    """
    try:
        yield
    except BrokenProcessPool:
        raise
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or "no reason given"
        raise ValueError(
            f"{group.title} failed ({type(error).__name__}: {reason}); finished groups are kept: repeat the command "
            "with --resume"
        ) from error


def _begin(watched: Connection, plugins: tuple[Path, ...]) -> None:
    """Set up a process: one thread, and Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_parent, args=(watched,), daemon=True).start()
    torch.set_num_threads(1)
    load_plugins(plugins)


def _end_with_the_parent(watched: Connection) -> None:
    watched.poll(None)
    os._exit(1)


def _play(group: Setting, name: str, device: str) -> tuple[Result, float]:
    begun = time.perf_counter()
    found = train_group(group, name, torch.device(device), lambda share: None)
    return found, time.perf_counter() - begun
