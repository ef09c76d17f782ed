"""Indices: scores that are made to be maximised, one number per arm from its own pulls and the step.

An index's name alone is a policy: `kl_ucb` is `kl_ucb | argmax`. Any head turns it into weights as well. An index that
says how it is computed from a mean, 1 / sqrt(n) and a number per step also runs on the compiled engines.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.agents.bandit.scores import Score

if TYPE_CHECKING:
    from stau_rl.kernels.contract import ArmTable
    from stau_rl.kernels.torch_loop import State

TIE = 1e-12
"""Indices this close to the largest, relative to it, count as equal to it: rounding must not tell them apart.

Exact ties of different counts come often, such as n kl + ln n = ln 2 of one failure and of two pulls of the best.
"""
LEAST_LEVEL = 1e-12
"""Logarithms below it are 0: ln(N / (K n)) is where an arm has had its share, and its root would make 1e-8 of 1e-16."""
Widths = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class CompiledIndex:
    """How the compiled engines compute an index.

    Attributes:
        function: name of a device function `(mean, root, top, width, q)` in `kernels.cpu.indices` and
            `kernels.gpu.indices`: the arm's mean and 1 / sqrt(n), the largest mean of all arms, `width` and `q`.
        contrast: the function reads the largest mean.
        widths: the number per step from N = 1, 2, ..., float64 [steps].
        q: a constant.
    """

    function: str
    widths: Widths
    q: float = 0.0
    contrast: bool = False


class Index(Score):
    """A score whose name alone is a policy that pulls the arm of its largest value, ties broken uniformly."""

    __slots__ = ()
    forces_pulls = True
    scales: ClassVar[tuple[str, ...]] = ("sigma",)
    """Its parameters that carry the scale of the rewards; None takes the arms' own."""

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex | None:
        """How compiled engines compute it in a run on these arms; None where they cannot."""
        return None

    def values(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores [arms, instances] in `dtype`; computed in float64, as a bound may be found by iteration."""
        bounds = self.bounds(state)
        best = bounds.amax(0, keepdim=True)
        return torch.where(bounds < best - TIE * best.abs(), bounds, best).to(dtype)

    def scaled(self, scale: float) -> "Index":
        """The index that plays rewards times `scale` as this one plays rewards.

        Raises:
            ValueError: a parameter is out of its range then.
        """
        changes = {name: getattr(self, name) * scale for name in self.scales if getattr(self, name) is not None}
        return replace(self, **changes)  # type: ignore[type-var]

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]; every arm has been pulled."""
        raise NotImplementedError


def log_steps(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln N; 0 before the second step."""
    return np.log(np.maximum(steps, 1.0))


def positive(owner: str, name: str, value: Any) -> None:
    """Raise a ValueError unless a number is finite and above 0."""
    if not 0.0 < value < math.inf:
        raise ValueError(f"{owner}: {name} must be finite and > 0, got {value!r}")


def deviation(sigma: float | None, arms: "ArmTable") -> float:
    """Standard deviation of one reward: a given one, or the arms' own; that of arms without noise is 1e-140."""
    return max(arms.sigma if sigma is None else sigma, 1e-140)


def spread_of(state: "State") -> Tensor:
    """Variance of each arm's rewards so far, divided by n, float64 [arms, instances].

    For 0/1 rewards from the mean, which makes arms of equal pulls and successes equal; else as `follow_spread` keeps
    it.
    """
    if state.table.binary:
        means = state.means(torch.float64)
        return means * (1.0 - means)
    return state.own["squares"] / state.counts.clamp(min=1)


def follow_spread(state: "State", arms: Tensor, rewards: Tensor) -> None:
    """Keep each arm's sum of squared deviations in `state.own` after a pull.

    Source: Welford, "Note on a method for calculating corrected sums of squares and products", 1962.
    """
    if state.table.binary:
        return
    at = arms[None]
    n, after = state.counts.gather(0, at).clamp(min=1), state.sums.gather(0, at)
    before = torch.where(n > 1, (after - rewards) / (n - 1).clamp(min=1), 0.0)
    change = (rewards - before) * (rewards - after / n)
    state.own["squares"].scatter_add_(0, at, torch.where(n > 1, change, 0.0))


def start_spread(state: "State") -> None:
    """Put zeros into `state.own` for `follow_spread`."""
    if not state.table.binary:
        state.own["squares"] = torch.zeros_like(state.sums)
