"""UCB1-tuned and UCB-V: bonuses that shrink with the variance of an arm's rewards."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from stau_rl.agents.bandit.index import (
    CompiledIndex,
    Index,
    follow_spread,
    log_steps,
    positive,
    spread_of,
    start_spread,
)

if TYPE_CHECKING:
    from stau_rl.kernels.contract import ArmTable
    from stau_rl.kernels.torch_loop import State


class _ByVariance(Index):
    """An index that sees the variance of each arm's rewards."""

    __slots__ = ()

    def start(self, state: "State") -> None:
        """Put what the variance is computed from into `state.own`."""
        start_spread(state)

    def learn(self, state: "State", arms: Tensor, rewards: Tensor) -> None:
        """Update it after a pull."""
        follow_spread(state, arms, rewards)


@dataclass(frozen=True, slots=True)
class Ucb1Tuned(_ByVariance):
    """mean + c sqrt(ln N / n min(1/4, V)), V = variance / c^2 + sqrt(2 ln N / n), for rewards in [0, c].

    Source: Auer, Cesa-Bianchi, Fischer, "Finite-time analysis of the multiarmed bandit problem", 2002, section 4.

    Attributes:
        c: range of the rewards, > 0.
    """

    name: ClassVar[str] = "ucb1_tuned"
    formula: ClassVar[str] = "S_k / n_k + c sqrt(ln N / n_k min(1/4, var_k / c^2 + sqrt(2 ln N / n_k)))"
    source: ClassVar[str] = "Auer et al. 2002"
    scales: ClassVar[tuple[str, ...]] = ("c",)

    c: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        positive(self.name, "c", self.c)

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]."""
        share = math.log(max(state.step, 1)) / state.counts.double()
        spread = spread_of(state) / self.c**2 + (2.0 * share).sqrt()
        return state.means(torch.float64) + self.c * (share * spread.clamp(max=0.25)).sqrt()

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex | None:
        """For 0/1 rewards, whose variance follows from their mean."""
        return CompiledIndex("tuned", log_steps, self.c) if arms.binary else None


@dataclass(frozen=True, slots=True)
class UcbV(_ByVariance):
    """mean + sqrt(2 zeta var ln N / n) + 3 c b zeta ln N / n, for rewards in a range of width b.

    Source: Audibert, Munos, Szepesvari, "Exploration-exploitation tradeoff using variance estimates in multi-armed
    bandits", 2009; zeta = 1.2 and c = 1 are those of their theorem 3.

    Attributes:
        zeta: factor of ln N, > 0.
        c: factor of the last term, > 0.
        b: range of the rewards, > 0.
    """

    name: ClassVar[str] = "ucb_v"
    formula: ClassVar[str] = "S_k / n_k + sqrt(2 zeta var_k ln N / n_k) + 3 c b zeta ln N / n_k"
    source: ClassVar[str] = "Audibert et al. 2009"
    scales: ClassVar[tuple[str, ...]] = ("b",)

    zeta: float = 1.2
    c: float = 1.0
    b: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("zeta", "c", "b"):
            positive(self.name, name, getattr(self, name))

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]."""
        share = self.zeta * math.log(max(state.step, 1)) / state.counts.double()
        return state.means(torch.float64) + (2.0 * spread_of(state) * share).sqrt() + 3.0 * self.c * self.b * share

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex | None:
        """For 0/1 rewards, whose variance follows from their mean."""
        if not arms.binary:
            return None
        return CompiledIndex("ucb_v", lambda steps: self.zeta * log_steps(steps), 3.0 * self.c * self.b)
