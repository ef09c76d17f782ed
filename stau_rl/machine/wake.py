"""Starting sooner: a GPU made ready in threads meanwhile, and imports without searches for cycles.

The driver takes a good part of a second to make a context, and Triton as long to hash its own library, which is part
of the key of every compiled kernel; neither holds the interpreter's lock meanwhile.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Thread

# There where a driver is loaded and this process may use it; torch need not be asked, which takes longer.
DRIVER = Path("/dev/nvidiactl")


@contextmanager
def uncollected() -> Iterator[None]:
    """Have no search for cycles among the objects made by the block, nor among those later on; they stay.

    For the imports of a command: such searches take long there and find nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()


@cache
def wake_gpu(device: str, engine: str) -> None:
    """Start making ready what a run on a GPU needs; returns at once, and does nothing where no GPU can be meant.

    An error is left to the run, which meets it again and has words for it.

    Args:
        device: `auto`, `cuda` or `cuda:N`, as in `run_regret`; nothing is done for others.
        engine: as in `run_regret`.
    """
    if (device != "auto" and not device.startswith("cuda")) or engine == "numba" or not DRIVER.exists():
        return
    jobs: list[Callable[[], object]] = [lambda: _make_context("cuda" if device == "auto" else device)]
    if engine != "torch":
        jobs.append(_hash_triton)
    for job in jobs:
        # Not a daemon: an interpreter that ends amid an import crashes.
        Thread(target=_quietly, args=(job,), name="stau-rl-wake").start()


def _quietly(job: Callable[[], object]) -> None:
    with suppress(Exception):
        job()


def _make_context(device: str) -> None:
    import torch

    from stau_rl.machine.ranks import current_ranks

    # Unlike asking whether a GPU is available, this does not warn of a driver that is too old.
    torch.cuda.init()
    torch.zeros(1, device=current_ranks().device(device))


def _hash_triton() -> None:
    from triton.runtime.cache import triton_key

    triton_key()
