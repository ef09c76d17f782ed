"""KL-UCB: the largest mean that an arm's rewards do not contradict, by the divergence of their family."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.agents.bandit.index import LEAST_LEVEL, CompiledIndex, Index, deviation, log_steps

if TYPE_CHECKING:
    from stau_rl.kernels.contract import ArmTable
    from stau_rl.kernels.torch_loop import State

# Halvings of [0, 1], beyond float64.
_HALVINGS = 60


def bernoulli_divergence(p: Tensor, q: Tensor) -> Tensor:
    """kl(p, q) of Bernoulli laws, 0 ln 0 = 0, in the shape that both broadcast to."""
    return torch.special.xlogy(p, p / q) + torch.special.xlogy(1.0 - p, (1.0 - p) / (1.0 - q))


def bernoulli_upper_bound(means: Tensor, levels: Tensor) -> Tensor:
    """The largest q in [mean, 1] with kl(mean, q) <= level, by halving.

    Args:
        means: in [0, 1], float64 of any shape.
        levels: >= 0, in a shape that broadcasts against that of `means`.
    """
    low, high = means.clone(), torch.ones_like(means)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        # Where the interval has shrunk to the mean itself the divergence is 0 / 0 at 0 and 1.
        inside = torch.nan_to_num(bernoulli_divergence(means, middle), nan=0.0) <= levels
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return torch.where(levels > 0.0, low, means)


def require_sigma(owner: str, sigma: float | None) -> None:
    """Raise a ValueError unless a deviation is None or lies in [1e-100, 1e100]."""
    if sigma is not None and not 1e-100 <= sigma <= 1e100:
        raise ValueError(f"{owner}: sigma must lie in [1e-100, 1e100], got {sigma!r}")


@dataclass(frozen=True, slots=True)
class KlUcb(Index):
    """max {q: n kl(mean, q) <= f(N)}, f(N) = ln N + c ln ln N.

    kl is that of Bernoulli laws where all rewards are 0 or 1; else that of Gaussian laws of one deviation sigma, where
    the bound is mean + sigma sqrt(2 f / n).

    Source: Garivier and Cappe, "The KL-UCB algorithm for bounded stochastic bandits and beyond", COLT 2011, who prove
    c = 3 and recommend c = 0.

    Attributes:
        c: factor of ln ln N, >= 0.
        sigma: standard deviation of one reward, > 0; None takes the arms' own. Not looked at for 0/1 rewards.
    """

    name: ClassVar[str] = "kl_ucb"
    formula: ClassVar[str] = "max {q: n_k kl(S_k / n_k, q) <= ln N + c ln ln N}"
    source: ClassVar[str] = "Garivier & Cappe 2011"

    c: float = 0.0
    sigma: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0.0 <= self.c < math.inf:
            raise ValueError(f"{self.name}: c must be finite and >= 0, got {self.c!r}")
        require_sigma(self.name, self.sigma)

    def levels(self, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """f(N) of numbers of steps."""
        logs = log_steps(steps)
        return logs + self.c * np.log(np.maximum(logs, 1.0))

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]."""
        level = float(self.levels(np.array([float(state.step)]))[0]) / state.counts.double()
        return _upper_bound(state, level, self.sigma)

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex:
        """Halley's iteration for Bernoulli laws, the closed form for Gaussian ones."""
        if arms.binary:
            return CompiledIndex("kl_bernoulli", self.levels)
        sd = deviation(self.sigma, arms)
        return CompiledIndex("plain", lambda steps: sd * np.sqrt(2.0 * self.levels(steps)))


@dataclass(frozen=True, slots=True)
class KlUcbPlus(Index):
    """max {q: n kl(mean, q) <= max(ln(N / n), 0)}: KL-UCB that explores less what was pulled often.

    Source: Garivier and Cappe, COLT 2011, who name it KL-UCB+; kl is as in `kl_ucb`.

    Attributes:
        sigma: standard deviation of one reward, > 0; None takes the arms' own. Not looked at for 0/1 rewards.
    """

    name: ClassVar[str] = "kl_ucb_plus"
    formula: ClassVar[str] = "max {q: n_k kl(S_k / n_k, q) <= ln(N / n_k)}"
    source: ClassVar[str] = "Garivier & Cappe 2011"

    sigma: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_sigma(self.name, self.sigma)

    def bounds(self, state: "State") -> Tensor:
        """The index of each arm, float64 [arms, instances]."""
        counts = state.counts.double()
        left = (state.step / counts).log()
        return _upper_bound(state, torch.where(left > LEAST_LEVEL, left, 0.0) / counts, self.sigma)

    def compiled(self, arms: "ArmTable", horizon: int) -> CompiledIndex:
        """Halley's iteration for Bernoulli laws; for Gaussian ones the bonus is that of MOSS."""
        if arms.binary:
            return CompiledIndex("kl_bernoulli", log_steps, 1.0)
        return CompiledIndex("moss", log_steps, math.sqrt(2.0) * deviation(self.sigma, arms))


def _upper_bound(state: "State", level: Tensor, sigma: float | None) -> Tensor:
    means = state.means(torch.float64)
    if state.table.binary:
        return bernoulli_upper_bound(means, level)
    return means + deviation(sigma, state.table) * (2.0 * level).sqrt()
