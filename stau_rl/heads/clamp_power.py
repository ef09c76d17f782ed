"""A power of the clamped score: f(s) = max(s, eps)^tau."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import PowerHead
from stau_rl.heads.parameter import parameter
from stau_rl.heads.s_tau import EPS
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class ClampPower(PowerHead):
    """Weights proportional to max(s, eps)^tau; scores at or below eps are all alike.

    This is the power law of the experiment that reports 35 % less regret than softmax, where s^tau has softplus in the
    place of the clamp. The gradient is 0 at and below eps. A score of -inf counts as eps.

    Attributes:
        tau: exponent, > 0.
        eps: the least that a score counts as, > 0.
    """

    name: ClassVar[str] = "clamp_power"
    formula: ClassVar[str] = "max(s, eps)^tau"
    smooth_at_zero: ClassVar[bool] = False
    sharpness: ClassVar[str] = "tau"

    tau: float | Schedule = parameter(2.0, above=0.0)
    eps: float | Schedule = parameter(EPS, above=0.0, show=False)

    def log_x(self, scores: Tensor) -> Tensor:
        """Return log max(s, eps)."""
        eps = torch.as_tensor(self.fixed(self.eps), dtype=scores.dtype, device=scores.device)
        return torch.where(scores > eps, scores, eps).log()
