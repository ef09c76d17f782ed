"""MOSS and its anytime form: bonuses that vanish once an arm has had its share of the pulls."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents.bandit.index import LEAST_LEVEL, CompiledIndex, Index, positive

if TYPE_CHECKING:
    from stau_rl.kernels.contract import ArmTable
    from stau_rl.kernels.torch_loop import State


def _bound(state: "State", level: float, c: float) -> Tensor:
    counts = state.counts.double()
    left = level - counts.log()
    return state.means(torch.float64) + c * (torch.where(left > LEAST_LEVEL, left, 0.0) / counts).sqrt()


@dataclass(frozen=True, slots=True)
class Moss(Index):
    """Minimax optimal strategy in the stochastic case: mean + c sqrt(max(ln(T / (K n)), 0) / n), T the horizon.

    Source: Audibert and Bubeck, "Minimax policies for adversarial and stochastic bandits", COLT 2009, for rewards in
    [0, 1].

    Attributes:
        c: width of the bonus, > 0; it carries the scale of the rewards.
    """

    name: ClassVar[str] = "moss"
    formula: ClassVar[str] = "S_k / n_k + c sqrt(max(ln(T / (K n_k)), 0) / n_k)"
    source: ClassVar[str] = "Audibert & Bubeck 2009"
    scales: ClassVar[tuple[str, ...]] = ("c",)

    c: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        positive(self.name, "c", self.c)

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]."""
        return _bound(state, math.log(state.horizon / state.arms), self.c)

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex:
        """A device function with a width that stays."""
        level = math.log(horizon / arms.arms)
        return CompiledIndex("moss", lambda steps: np.full(len(steps), level), self.c)


@dataclass(frozen=True, slots=True)
class MossAnytime(Index):
    """MOSS without a horizon: mean + c sqrt((1 + alpha) / 2 max(ln(N / (K n)), 0) / n), N steps so far.

    Source: Degenne and Perchet, "Anytime optimal algorithms in stochastic multi-armed bandits", ICML 2016.

    Attributes:
        alpha: how much wider than MOSS, >= 0; 1.35 is the authors'.
        c: width of the bonus, > 0; it carries the scale of the rewards.
    """

    name: ClassVar[str] = "moss_anytime"
    formula: ClassVar[str] = "S_k / n_k + c sqrt((1 + alpha) / 2 max(ln(N / (K n_k)), 0) / n_k)"
    source: ClassVar[str] = "Degenne & Perchet 2016"
    scales: ClassVar[tuple[str, ...]] = ("c",)

    alpha: float = 1.35
    c: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        positive(self.name, "c", self.c)
        if not 0.0 <= self.alpha < math.inf:
            raise ValueError(f"{self.name}: alpha must be finite and >= 0, got {self.alpha!r}")

    @property
    def _width(self) -> float:
        return self.c * math.sqrt(0.5 * (1.0 + self.alpha))

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]."""
        return _bound(state, math.log(max(state.step, 1) / state.arms), self._width)

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex:
        """The device function of MOSS with the step in place of the horizon."""
        k = arms.arms
        return CompiledIndex("moss", lambda steps: np.log(np.maximum(steps, 1.0) / k), self._width)
