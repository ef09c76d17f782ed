"""Bayes-UCB: a quantile of each arm's posterior that rises with time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from stau_rl.agents.bandit.index import CompiledIndex, Index, deviation
from stau_rl.agents.bandit.kl_ucb import require_sigma

if TYPE_CHECKING:
    from stau_rl.kernels.contract import ArmTable
    from stau_rl.kernels.torch_loop import State


@dataclass(frozen=True, slots=True)
class BayesUcb(Index):
    """The quantile at 1 - 1 / (N + 1) of the posterior of an arm's mean.

    Beta(1 + S, 1 + n - S) where all rewards are 0 or 1; else Gaussian with a flat prior and known deviation sigma,
    whose quantile is mean + sigma Phi^-1(1 - 1 / (N + 1)) / sqrt(n).

    Source: Kaufmann, Cappe, Garivier, "On Bayesian upper confidence bounds for bandit problems", AISTATS 2012, without
    the power of ln T, as they recommend.

    Attributes:
        sigma: standard deviation of one reward, > 0; None takes the arms' own. Not looked at for 0/1 rewards.
    """

    name: ClassVar[str] = "bayes_ucb"
    formula: ClassVar[str] = "quantile at 1 - 1 / (N + 1) of the posterior (Beta for 0/1 rewards, else Gaussian)"
    source: ClassVar[str] = "Kaufmann et al. 2012"

    sigma: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_sigma(self.name, self.sigma)

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]."""
        if not state.table.binary:
            width = float(self._widths(np.array([float(state.step)]), state.table)[0])
            return state.means(torch.float64) + width * state.counts.double().rsqrt()
        # The same numbers of pulls and successes come often, and their quantile is dear.
        pairs = torch.stack([state.counts, state.sums.long()]).flatten(1)
        known, places = pairs.unique(dim=1, return_inverse=True)
        n, s = known.cpu().numpy()
        bounds = special.betaincinv(1.0 + s, 1.0 + n - s, 1.0 - 1.0 / (state.step + 1.0))
        return torch.as_tensor(bounds, device=pairs.device)[places].view_as(state.sums)

    def _widths(self, steps: NDArray[np.float64], arms: "ArmTable") -> NDArray[np.float64]:
        quantile: NDArray[np.float64] = -special.ndtri(1.0 / (steps + 1.0))
        return quantile * deviation(self.sigma, arms)

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex | None:
        """Gaussian posteriors alone: a quantile of Beta has no closed form."""
        if arms.binary:
            return None
        return CompiledIndex("plain", lambda steps: self._widths(np.maximum(steps, 1.0), arms))
