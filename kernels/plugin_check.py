"""The comparison of a plug-in head's compiled forms with the function of tensors that they are said to be."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stau_rl.kernels.head_parameters import Parameters

# Scores that both forms of a head are compared at: fine about 0, out to where bandits seldom go.
GRID = np.unique(np.concatenate([np.linspace(-2, 2, 129), np.linspace(-16, 16, 129)])).astype(np.float32)
# Differences of log f that float32 may make: absolute, and per unit of the largest |log f| of the pair.
ABSOLUTE, RELATIVE = 1e-3, 1e-4
# At or below it a device function says that the arm is never drawn.
NEVER_DRAWN = -1e29


def check_agreement(
    head: Any, horizon: int, engine: str, log2_weight: Callable[[float, float], NDArray[np.float32]]
) -> None:
    """Raise a ValueError unless a head's compiled form has the log-weights of its `log_f` on `GRID`.

    Both are known up to a constant, so differences from the first score that both give a finite value are compared.
    Scores at which `log_f` refuses to answer are left out. Schedules are looked at where they start and end.

    Args:
        head: the head.
        horizon: number of steps T.
        engine: whose function it is, for the message.
        log2_weight: the compiled form on `GRID`, float32, for parameters p and q; 0 stands for one that it has not.

    Raises:
        ValueError: they differ by more than 1e-3 + 1e-4 |log f| at some score; the message names the head, the score
            and both values.
    """
    for step in (1, horizon) if head.schedules else (1,):
        now = head.at(step)
        parameters = Parameters.of(now)
        _compare(now, engine, log2_weight(parameters.p, parameters.q))


def _compare(head: Any, engine: str, compiled: NDArray[np.float32]) -> None:
    scores, wanted = _reference(head)
    got = compiled.astype(np.float64)[scores] * np.log(2.0)
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
            f"head {head.name!r}: its {engine} function contradicts its function of tensors: at score "
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
