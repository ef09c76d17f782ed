"""Device code of heads that are registered at run time, and its comparison with the head it is said to be."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stau_rl.kernels.cpu.codegen import load_loop
from stau_rl.kernels.cpu.heads import DEVICE_HEADS, DeviceHead
from stau_rl.kernels.cpu.lanes import WIDTH, load, store
from stau_rl.kernels.cpu.math import device
from stau_rl.kernels.plugin_check import GRID, check_agreement


def device_head(name: str, log2_weight: Callable[..., Any], parameters: int, origin: str | None) -> None:
    """Register the compiled code of a head.

    Args:
        name: the head's name.
        log2_weight: log2 f up to a constant, `(score, *parameters)` on float32 lanes; plain Python or compiled.
        parameters: how many parameters it takes after the score, at most two.
        origin: text that changes with the code; None if machine code must not be kept on disk.
    """
    inner = log2_weight if hasattr(log2_weight, "py_func") else device(log2_weight)
    adapters: list[Callable[..., Any]] = [
        lambda score, _, __: inner(score),
        lambda score, p, _: inner(score, p),
        lambda score, p, q: inner(score, p, q),
    ]
    DEVICE_HEADS[name] = DeviceHead(device(adapters[parameters]), parameters, origin=origin)


def forget_device_head(name: str) -> None:
    """Remove the compiled code of a head, if it has some."""
    if DEVICE_HEADS.pop(name, None) is not None:
        # Loops are kept by the names of their heads.
        load_loop.cache_clear()


@lru_cache(maxsize=256)
def check_plugin(head: Any, device_head: DeviceHead, horizon: int) -> None:
    """Compare a plug-in's compiled form with the head at its parameters; once for each.

    Raises:
        ValueError: they differ; see `plugin_check.check_agreement`.
    """

    def log2_weight(p: float, q: float) -> NDArray[np.float32]:
        values = np.empty(-(-GRID.size // WIDTH) * WIDTH, dtype=np.float32)
        _sweep(device_head.log2_weight)(np.resize(GRID, values.size), values, np.float32(p), np.float32(q))
        return values[: GRID.size]

    check_agreement(head, horizon, "numba", log2_weight)


@lru_cache(maxsize=64)
def _sweep(log2_weight: Callable[..., Any]) -> Callable[..., None]:
    """A loop over an array, compiled for one device function."""

    @njit
    def sweep(values: Any, result: Any, p: Any, q: Any) -> None:
        for start in range(0, values.size, WIDTH):
            store(result, start, log2_weight(load(values, start), p, q))

    return sweep
