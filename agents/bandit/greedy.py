"""Greedy and eps-greedy: the arm of the largest empirical mean."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from stau_rl.agents.bandit.pipe import Pipe
from stau_rl.agents.bandit.policy import Policy
from stau_rl.agents.bandit.scores import Mean
from stau_rl.heads import Argmax
from stau_rl.heads.parameter import parameter
from stau_rl.kernels.philox import closed_uniform
from stau_rl.spec.schedule import Schedule

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import Draws, State


@dataclass(frozen=True, slots=True)
class Greedy(Policy):
    """Shorthand for `mean | argmax`; ties break uniformly."""

    name: ClassVar[str] = "greedy"
    formula: ClassVar[str] = "mean | argmax"

    def lowered(self) -> Policy:
        """The pipe that engines run."""
        return Pipe(Mean(), Argmax())


@dataclass(frozen=True, slots=True)
class EpsGreedy(Policy):
    """With probability eps a uniform arm, else the largest mean with ties broken uniformly.

    The action uniform decides whether to explore (u < eps); stream SECOND gives the arm to explore (word 0) and
    breaks ties (word 1).

    Source: Sutton and Barto, "Reinforcement Learning", 2nd edition, section 2.3.

    Attributes:
        eps: probability of exploring, in [0, 1].
    """

    name: ClassVar[str] = "eps_greedy"
    formula: ClassVar[str] = "uniform with probability eps, else mean | argmax"
    source: ClassVar[str] = "Sutton & Barto 2018"

    eps: float | Schedule = parameter(0.1, low=0.0, high=1.0)

    def __post_init__(self) -> None:
        """Check the parameters; a schedule at the first step."""
        self._check_ranges()

    def eps_at(self, t: int) -> float:
        """The probability of exploring at step t = 1, 2, ..."""
        return self.eps.at(t) if isinstance(self.eps, Schedule) else self.eps

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]."""
        words = draws.second(state.step)
        explored = (closed_uniform(words[0]) * state.arms).to(torch.int64)
        means = state.means(torch.float64)
        tied = means == means.amax(0, keepdim=True)
        place = (closed_uniform(words[1]) * tied.sum(0)).to(torch.int64)
        best = (tied.cumsum(0) <= place).sum(0)
        return torch.where(draws.action(state.step) < self.eps_at(state.step + 1), explored, best)
