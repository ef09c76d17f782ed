"""Groups of probe models in parallel worker processes, with a CUDA context of their own on a GPU."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import torch

from stau_rl.machine.pool import WorkerPool
from stau_rl.plugin.load import load_plugins
from stau_rl.probe.folder import Maps
from stau_rl.probe.group import train_group
from stau_rl.probe.plan import Setting

# Seconds that a group waits for memory that other processes hold, and between two looks.
_PATIENCE, _PAUSE = 1800.0, 5.0
Result = tuple[pd.DataFrame, Maps]
Played = tuple[int, Result, float]
"""The number of a group, its rows and maps, and the seconds it took."""


class ProbePool(WorkerPool):
    """Workers that train groups.

    Args:
        processes: how many at most.
        device: where they train.
        plugins: files of heads that every process loads.
    """

    def __init__(self, processes: int, device: torch.device, plugins: Sequence[str | Path] = ()) -> None:
        super().__init__(processes, load_plugins, (tuple(map(Path, plugins)),), "probe")
        self._device = str(device)

    def play(self, groups: Sequence[tuple[int, Setting]], names: Sequence[str]) -> Iterator[Played]:
        """Train groups, begun in their order; each is given as soon as it is done.

        Args:
            groups: their numbers, and what they are.
            names: identities by number.

        Raises:
            ValueError: a group failed, or a process was killed.
        """
        futures: dict[Future[tuple[Result, float]], tuple[int, Setting]] = {
            self.submit(_play, group, names[number], self._device): (number, group) for number, group in groups
        }
        for future in as_completed(futures):
            number, group = futures[future]
            if isinstance(future.exception(), BrokenProcessPool):
                # No group's own error, so the pool says it.
                self.result(future)
            with named_errors(group):
                result, seconds = future.result()
            yield number, result, seconds


@contextmanager
def named_errors(group: Setting) -> Iterator[None]:
    """Turn what goes wrong while a group is trained into one line that says which and what to do.

    Raises:
        ValueError: something went wrong.
    """
    try:
        yield
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "") or "no reason given"
        raise ValueError(
            f"{group.title} failed ({type(error).__name__}: {reason}); finished groups are kept: repeat the command "
            "with --resume"
        ) from error


def _play(group: Setting, name: str, device: str) -> tuple[Result, float]:
    begun = time.perf_counter()
    while True:
        try:
            found = train_group(group, name, torch.device(device), lambda share: None)
        except torch.OutOfMemoryError:
            # The groups of other processes end, and leave their memory.
            if time.perf_counter() - begun > _PATIENCE or not memory_of_others(torch.device(device)):
                raise
        else:
            return found, time.perf_counter() - begun
        finally:
            if torch.device(device).type == "cuda":
                torch.cuda.empty_cache()
        time.sleep(_PAUSE)


def memory_of_others(device: torch.device) -> bool:
    """Other processes hold more than a twentieth of the GPU's memory."""
    free, total = torch.cuda.mem_get_info(device)
    return total - free - torch.cuda.memory_reserved(device) > total / 20
