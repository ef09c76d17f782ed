"""`score | head`: draw an arm from the head's weights on the scores, or abstain with the mass that they leave."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from stau_rl.agents.bandit.index import Index
from stau_rl.agents.bandit.policy import Policy
from stau_rl.agents.bandit.scores import Score
from stau_rl.heads import Argmax, Head
from stau_rl.kernels.float32 import SHIFT_FREE
from stau_rl.kernels.torch_sampling import inverse_cdf

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import Draws, State

RENORMALISE = "renormalise"


@dataclass(frozen=True, slots=True)
class Pipe(Policy):
    """Arm = first k with cdf_k > u total, for the weights of `head` on `score` and the step's action uniform u.

    A head of mass at most 1 draws with u itself: where u is at or above the mass, no arm is pulled and nothing is
    earned. If `renormalise` is set, its weights are divided by their sum, and a row without weight is uniform.

    Attributes:
        score: the scores, such as `centred_ucb(c=1)`.
        head: the head, such as `s_tau(tau=5)`.
        renormalise: for heads whose weights need not sum to 1 alone.
    """

    name: ClassVar[str] = "pipe"
    formula: ClassVar[str] = "score | head"

    # A field of its own: the base class has None here, which would be the default.
    score: Score = field()
    head: Head = field()
    renormalise: bool = False

    def __post_init__(self) -> None:
        """Check that the head's mass fits what is done with it."""
        if self.head.mass_kind == "free" and not self.renormalise:
            raise ValueError(f"the weights of {self.head} are no probabilities; add '| {RENORMALISE}'")
        if self.head.mass_kind == "simplex" and self.renormalise:
            raise ValueError(f"the weights of {self.head} sum to 1 already; leave out '| {RENORMALISE}'")

    @property
    def forces_pulls(self) -> bool:
        """Pull arm t at each step t < K before anything else, if the score asks for it."""
        return self.score.forces_pulls

    @property
    def may_abstain(self) -> bool:
        """Some steps may pull no arm."""
        return self.head.mass_kind == "sub" and not self.renormalise

    def start(self, state: "State") -> None:
        """Put the score's own tensors into `state.own`."""
        self.score.start(state)

    def learn(self, state: "State", arms: Tensor, rewards: Tensor) -> None:
        """Update them after a pull."""
        self.score.learn(state, arms, rewards)

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]; the number of arms where it abstains."""
        uniforms = draws.action(state.step)
        weights = self.weights(state)
        if self.may_abstain:
            return (weights.cumsum(0) <= uniforms.to(weights.dtype)).sum(0)
        return inverse_cdf(weights, uniforms)

    def weights(self, state: "State", dtype: torch.dtype | None = None) -> Tensor:
        """The weights that the next arm is drawn from, [arms, instances], computed in `dtype` or the engine's own."""
        # Ties of an argmax are decided on the statistics themselves, so in float64 whatever the engine's dtype.
        # Re-weighting compares a weight with its fair share, which takes the digits that they share.
        exact = isinstance(self.head, Argmax) or hasattr(self.head, "inner")
        dtype = dtype or (torch.float64 if exact else state.dtype)
        head = self.head.at(state.step + 1)
        score = self.score.at(state.step + 1)
        scores = score.differences if head.name in SHIFT_FREE else score.values
        weights = head.unchecked_log_weights(scores(state, dtype), dim=0).exp()
        if self.renormalise:
            weights = torch.where((weights > 0).any(0), weights, 1.0)
        return weights

    def __str__(self) -> str:
        """Text of the pipe, which parses back to it; that of an index that is maximised is its own."""
        if isinstance(self.score, Index) and self.head == Argmax():
            return str(self.score)
        return f"{self.score} | {self.head}" + (f" | {RENORMALISE}" if self.renormalise else "")
