"""Threads: independent pieces of numpy work on all cores (numpy holds no lock while it sorts and adds), or just one."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")
# Read by numerical libraries when they are loaded, so they are set before a process starts.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_all_cores(function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """`[function(item) for item in items]`, the calls side by side; the first error ends it."""
    with ThreadPoolExecutor(cores()) as pool:
        return list(pool.map(function, items))


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes that are started in this block run numerical libraries on one thread."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch works on one thread in this block, and on as many as before after it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
