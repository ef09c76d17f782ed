"""Device code of heads that are registered at run time."""

from collections.abc import Callable
from typing import Any

from stau_rl.kernels.numba_codegen import load_loop
from stau_rl.kernels.numba_heads import DEVICE_HEADS, DeviceHead
from stau_rl.kernels.numba_math import device


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
