"""`score | head`: draw an arm from the head's weights on the scores."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from stau_rl.agents.policy import Policy
from stau_rl.agents.scores import Score
from stau_rl.heads import HEADS, Argmax, Head
from stau_rl.kernels.sampling import inverse_cdf

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import Draws, State


@dataclass(frozen=True, slots=True)
class Pipe(Policy):
    """Arm = first k with cdf_k > u total, for the weights of `head` on `score` and the step's action uniform u.

    Attributes:
        score: the scores, such as `centred_ucb(c=1)`.
        head: the head, such as `s_tau(tau=5)`.
    """

    name: ClassVar[str] = "pipe"
    formula: ClassVar[str] = "score | head"

    score: Score
    head: Head

    def __post_init__(self) -> None:
        """Refuse a head whose weights do not sum to 1."""
        if self.head.mass_kind != "simplex":
            raise ValueError(
                f"{self.head} may leave a row without weight, and a policy must pull an arm at every step; "
                f"use a head of mass 1, such as {', '.join(name for name, head in HEADS.items() if _whole(head))}"
            )

    @property
    def forces_pulls(self) -> bool:
        """Pull arm t at each step t < K before anything else, if the score asks for it."""
        return self.score.forces_pulls

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]."""
        # Ties of an argmax are decided on the statistics themselves, so in float64 whatever the engine's dtype.
        dtype = torch.float64 if isinstance(self.head, Argmax) else state.dtype
        head = self.head.at(state.step + 1)
        weights = head.unchecked_log_weights(self.score.values(state, dtype), dim=0).exp()
        return inverse_cdf(weights, draws.action(state.step))

    def __str__(self) -> str:
        """Text of the pipe, which parses back to it."""
        return f"{self.score} | {self.head}"


def _whole(head: type[Head]) -> bool:
    return head.mass_kind == "simplex"
