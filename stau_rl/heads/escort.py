"""Escort: f(s) = |s|^p."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import PowerHead
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Escort(PowerHead):
    """The escort transform: weights proportional to |s|^p; an all-zero row is uniform.

    The gradient at a score of 0, or one so small that 1 / s might overflow, is 0. Scores of -inf are refused, as their
    |s|^p is infinite.

    Source: Mei, Xiao, Dai, Li, Szepesvari, Schuurmans, "Escaping the gravitational pull of softmax", NeurIPS 2020.

    Attributes:
        p: exponent, > 0.
    """

    name: ClassVar[str] = "escort"
    formula: ClassVar[str] = "|s|^p"
    source: ClassVar[str] = "Mei et al. 2020"
    smooth_at_zero: ClassVar[bool] = False
    sharpness: ClassVar[str] = "p"
    finite_only: ClassVar[bool] = True

    p: float | Schedule = parameter(2.0, above=0.0)

    def log_x(self, scores: Tensor) -> Tensor:
        """Return log |s|, -inf at 0."""
        zero, limits = scores == 0, torch.finfo(scores.dtype)
        # Where 1 / s might overflow the gradient is 0, as at 0.
        steep = torch.where(scores.abs() > limits.tiny / limits.eps, scores, scores.detach())
        return torch.where(zero, -torch.inf, torch.where(zero, 1.0, steep).abs().log())
