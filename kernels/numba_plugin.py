"""Device code of heads that are registered at run time, and its comparison with the head it is said to be."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from stau_rl.kernels.numba_codegen import load_loop
from stau_rl.kernels.numba_heads import DEVICE_HEADS, DeviceHead
from stau_rl.kernels.numba_lanes import WIDTH, load, store
from stau_rl.kernels.numba_math import device

# Scores that both forms of a head are compared at: fine about 0, out to where bandits seldom go.
GRID = np.unique(np.concatenate([np.linspace(-2, 2, 129), np.linspace(-16, 16, 129)])).astype(np.float32)
# Differences of log f that float32 may make: absolute, and per unit of the largest |log f| of the pair.
ABSOLUTE, RELATIVE = 1e-3, 1e-4
# At or below it a device function says that the arm is never drawn.
NEVER_DRAWN = -1e29


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


def check_agreement(head: Any, device_head: DeviceHead, p: float, q: float) -> None:
    """Raise a ValueError unless a head's compiled form has the log-weights of its `log_f` on a grid of scores.

    Both are known up to a constant, so differences from the first score that both give a finite value are compared.
    Scores at which `log_f` refuses to answer are left out.

    Args:
        head: the head with numbers for parameters.
        device_head: its compiled form.
        p: the first parameter as the compiled form takes it; 0 if it has none.
        q: the second.

    Raises:
        ValueError: they differ by more than 1e-3 + 1e-4 |log f| at some score; the message names the head, the score
            and both values.
    """
    scores, wanted = _reference(head)
    compiled = np.empty(-(-GRID.size // WIDTH) * WIDTH, dtype=np.float32)
    _sweep(device_head.log2_weight)(np.resize(GRID, compiled.size), compiled, np.float32(p), np.float32(q))
    got = compiled[: GRID.size].astype(np.float64)[scores] * np.log(2.0)
    got[got <= NEVER_DRAWN] = -np.inf
    both = np.isfinite(got) & np.isfinite(wanted)
    if both.any():
        at = int(np.argmax(both))
        wanted, got = wanted - wanted[at], got - got[at]
    close = np.isneginf(got) & np.isneginf(wanted)
    close[both] = np.abs(got[both] - wanted[both]) <= ABSOLUTE + RELATIVE * np.abs(wanted[both])
    if not close.all():
        worst = int(np.argmin(close))
        zero = f" (0 at score {GRID[scores][at]:g})" if both.any() else ""
        raise ValueError(
            f"head {head.name!r}: its numba function contradicts its function of tensors: at score "
            f"{GRID[scores][worst]:g} log f is {got[worst]:.6g} in the one and {wanted[worst]:.6g} in the other{zero}, "
            f"for {head}"
        )


def _reference(head: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Places on the grid where `log_f` answers, and its answers in float64."""
    values = torch.from_numpy(GRID.astype(np.float64))
    try:
        return np.arange(GRID.size), head.log_f(values).numpy()
    except ValueError:
        places, answers = [], []
        for place in range(GRID.size):
            try:
                answers.append(float(head.log_f(values[place : place + 1])))
            except ValueError:
                continue
            places.append(place)
        return np.array(places, dtype=np.int64), np.array(answers)


@lru_cache(maxsize=64)
def _sweep(log2_weight: Callable[..., Any]) -> Callable[..., None]:
    """A loop over an array, compiled for one device function."""

    @njit
    def sweep(values: Any, result: Any, p: Any, q: Any) -> None:
        for start in range(0, values.size, WIDTH):
            store(result, start, log2_weight(load(values, start), p, q))

    return sweep
