"""Gradient bandit: policy gradient on one preference per arm."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from stau_rl.agents.bandit.policy import Policy
from stau_rl.heads import HEADS, Escort, Head, Softmax, STau
from stau_rl.kernels.torch_sampling import inverse_cdf

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import Draws, State

BASELINES = ("none", "mean_including", "mean_before")


@dataclass(frozen=True, slots=True)
class GradientBandit(Policy):
    """H_k += alpha (r - b) d log pi(A) / d H_k with pi = head(H).

    d log pi(A) / d H_k = (1[k = A] - pi_k) d log f(H_k) / d H_k. Preferences start at 0 (escort: at 1, as its
    gradient is 0 at a preference of exactly 0, where it would stay).

    Source: Williams 1992; Sutton and Barto, "Reinforcement Learning", 2nd edition, section 2.8, whose baseline is
    the mean of all rewards including the current one. That baseline depends on the action's own reward;
    `mean_before` does not, and leaves the gradient unbiased.

    Attributes:
        alpha: step size, > 0.
        baseline: `none`, `mean_including` (mean of the rewards up to and including this one) or `mean_before` (mean
            of the earlier rewards, 0 at first).
        head: softmax, s_tau or escort.
    """

    name: ClassVar[str] = "gradient_bandit"
    formula: ClassVar[str] = "H += alpha (r - b) grad log head(H)[A]"
    source: ClassVar[str] = "Sutton & Barto 2018"

    alpha: float = field(default=0.1, metadata={"show": True})
    baseline: str = field(default="mean_including", metadata={"show": True})
    head: Head = field(default_factory=Softmax, metadata={"registry": HEADS, "show": True})

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0.0 < self.alpha < math.inf:
            raise ValueError(f"gradient_bandit: alpha must be finite and > 0, got {self.alpha!r}")
        if self.baseline not in BASELINES:
            raise ValueError(f"gradient_bandit: baseline must be one of {', '.join(BASELINES)}, got {self.baseline!r}")
        if not isinstance(self.head, (Softmax, STau, Escort)):
            raise ValueError(f"gradient_bandit: head must be softmax, s_tau or escort, got {self.head}")

    @property
    def initial_preference(self) -> float:
        """The preference every arm starts from."""
        return 1.0 if isinstance(self.head, Escort) else 0.0

    def start(self, state: "State") -> None:
        """Set all preferences to their start."""
        shape = state.counts.shape
        state.own["preferences"] = torch.full(
            shape, self.initial_preference, dtype=state.dtype, device=state.counts.device
        )

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]."""
        head = self.head.at(state.step + 1)
        state.own["weights"] = head.unchecked_log_weights(state.own["preferences"], dim=0).exp()
        return inverse_cdf(state.own["weights"], draws.action(state.step))

    def learn(self, state: "State", arms: Tensor, rewards: Tensor) -> None:
        """Move the preferences along the gradient of the pulled arm's log-probability."""
        baseline = torch.zeros_like(rewards)
        if self.baseline == "mean_including":
            baseline = state.total / (state.step + 1)
        elif self.baseline == "mean_before" and state.step > 0:
            baseline = (state.total - rewards) / state.step
        preferences = state.own["preferences"]
        chosen = torch.zeros_like(preferences).scatter_(0, arms[None], 1.0)
        slope = self.head.at(state.step + 1).slope(preferences)
        advantage = (self.alpha * (rewards - baseline)).to(preferences.dtype)
        state.own["preferences"] = preferences + advantage * slope * (chosen - state.own["weights"])
