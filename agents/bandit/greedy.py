"""Greedy and eps-greedy: the arm of the largest empirical mean."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from stau_rl.agents.bandit.pipe import Pipe
from stau_rl.agents.bandit.policy import Policy
from stau_rl.agents.bandit.scores import Mean
from stau_rl.heads import Argmax
from stau_rl.kernels.philox import closed_uniform

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

    eps: float = field(default=0.1, metadata={"show": True})

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0.0 <= self.eps <= 1.0:
            raise ValueError(f"eps_greedy: eps must lie in [0, 1], got {self.eps!r}")

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]."""
        words = draws.second(state.step)
        explored = (closed_uniform(words[0]) * state.arms).to(torch.int64)
        means = state.means(torch.float64)
        tied = means == means.amax(0, keepdim=True)
        place = (closed_uniform(words[1]) * tied.sum(0)).to(torch.int64)
        best = (tied.cumsum(0) <= place).sum(0)
        return torch.where(draws.action(state.step) < self.eps, explored, best)
