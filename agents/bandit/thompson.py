"""Thompson sampling: the arm whose draw from the posterior of its mean is largest."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents.bandit.policy import Policy
from stau_rl.envs.arms.arms import Arms
from stau_rl.kernels.contract import noise_precision
from stau_rl.kernels.philox import open_uniform
from stau_rl.kernels.torch_sampling import beta_draws

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import Draws, State


# Standard deviations of the prior from its mean to an arm's from which it is told.
FAR = 3.0


@dataclass(frozen=True, slots=True)
class Thompson(Policy):
    """Beta(1, 1) prior where all rewards are 0 or 1; else a Gaussian prior and known noise.

    Gaussian: the posterior of arm k has precision 1/prior_sd^2 + n_k/sigma^2 and mean
    (prior_mean/prior_sd^2 + S_k/sigma^2) / precision; its draw is a quantile of one private uniform.

    The Gaussian parameters are not looked at where all rewards are 0 or 1.

    Source: Thompson 1933; Agrawal and Goyal, "Near-optimal regret bounds for Thompson sampling", 2017.

    Attributes:
        prior_mean: mean of the Gaussian prior.
        prior_sd: standard deviation of the Gaussian prior, > 0.
        sigma: standard deviation of one reward, > 0; None takes the arms' own (pooled, for empirical arms).
    """

    name: ClassVar[str] = "thompson"
    formula: ClassVar[str] = "argmax of a draw from each arm's posterior (Beta for 0/1 rewards, else Gaussian)"
    source: ClassVar[str] = "Thompson 1933"

    prior_mean: float = 0.0
    prior_sd: float = 1.0
    sigma: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not abs(self.prior_mean) <= 1e100:
            raise ValueError(f"thompson: prior_mean must be at most 1e100 in size, got {self.prior_mean!r}")
        for name, value in (("prior_sd", self.prior_sd), ("sigma", self.sigma)):
            if value is not None and not 1e-100 <= value <= 1e100:
                raise ValueError(f"thompson: {name} must lie in [1e-100, 1e100], got {value!r}")

    def note(self, arms: Arms) -> str:
        """That the arms' means lie far from the Gaussian prior, whose width then decides what is played for long.

        Means that are drawn per instance count from their 2.5 % to their 97.5 % quantile.
        """
        if arms.binary:
            return ""
        means = arms.fixed_means
        drawn = arms.mean_quantile(np.array([0.025, 0.975])) if means is None else means
        low, high = float(drawn.min()), float(drawn.max())
        away = max(high - self.prior_mean, self.prior_mean - low) / self.prior_sd
        if away <= FAR:
            return ""
        centre, spread = (low + high) / 2.0, max((high - low) / 2.0, arms.noise) or 1.0
        return (
            f"{self}: the arms' means ({low:.4g} to {high:.4g}) lie up to {away:.3g} standard deviations from its "
            f"prior N({self.prior_mean:g}, {self.prior_sd:g}^2), which misleads it; a prior that fits is "
            f"thompson(prior_mean={centre:.3g}, prior_sd={spread:.3g})."
        )

    def posterior_draws(self, state: "State", draws: "Draws") -> Tensor:
        """A draw from the posterior of each arm's mean, float64 [arms, instances]."""
        if state.table.binary:
            successes = state.sums
            failures = state.counts - state.sums
            return beta_draws(1.0 + successes, 1.0 + failures, partial(draws.private, state.step))
        precision = noise_precision(self.sigma, state.table)
        posterior = self.prior_sd**-2 + state.counts.double() * precision
        centre = (self.prior_mean * self.prior_sd**-2 + state.sums * precision) / posterior
        normal = torch.special.ndtri(open_uniform(draws.private(state.step)[0]))
        return centre + normal * posterior.rsqrt()

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]."""
        return self.posterior_draws(state, draws).argmax(0)
