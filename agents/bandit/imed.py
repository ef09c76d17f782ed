"""IMED: the arm whose mean is refuted least as the best one's, so that no optimisation is needed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents.bandit.index import CompiledIndex, Index, deviation
from stau_rl.agents.bandit.kl_ucb import bernoulli_divergence, require_sigma

if TYPE_CHECKING:
    from stau_rl.kernels.contract import ArmTable
    from stau_rl.kernels.torch_loop import State


@dataclass(frozen=True, slots=True)
class Imed(Index):
    """-(n kl(mean, largest mean) + ln n): indexed minimum empirical divergence, its sign turned to be maximised.

    kl is that of Bernoulli laws where all rewards are 0 or 1; else that of Gaussian laws of one deviation sigma,
    (mean - largest)^2 / (2 sigma^2).

    Source: Honda and Takemura, "Non-asymptotic analysis of a new bandit algorithm for semi-bounded rewards", JMLR 2015.

    Attributes:
        sigma: standard deviation of one reward, > 0; None takes the arms' own. Not looked at for 0/1 rewards.
    """

    name: ClassVar[str] = "imed"
    formula: ClassVar[str] = "-(n_k kl(S_k / n_k, max_j S_j / n_j) + ln n_k)"
    source: ClassVar[str] = "Honda & Takemura 2015"

    sigma: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_sigma(self.name, self.sigma)

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]; at least -1e300 where a mean of 1 refutes all others."""
        counts, means = state.counts.double(), state.means(torch.float64)
        best = means.amax(0, keepdim=True)
        if state.table.binary:
            divergence = torch.where(means == best, 0.0, bernoulli_divergence(means, best.expand_as(means)))
        else:
            divergence = 0.5 * ((best - means) / deviation(self.sigma, state.table)).square()
        return (-(counts * divergence + counts.log())).clamp(min=-1e300)

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex:
        """A device function that sees the largest mean."""
        if arms.binary:
            return CompiledIndex("imed_bernoulli", np.zeros_like, contrast=True)
        return CompiledIndex("imed_gaussian", np.zeros_like, 0.5 * deviation(self.sigma, arms) ** -2, True)
