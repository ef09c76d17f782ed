"""Normalised rectifier: f(s) = relu(s)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import log_relu


@dataclass(frozen=True, slots=True)
class ReluNorm(Head):
    """Weights proportional to relu(s); a row without a positive score is uniform.

    The gradient at a score of exactly 0 is 0.
    """

    name: ClassVar[str] = "relu_norm"
    formula: ClassVar[str] = "relu(s)"
    smooth_at_zero: ClassVar[bool] = False

    def log_f(self, scores: Tensor) -> Tensor:
        """Return log relu(s), -inf at 0 and below."""
        return log_relu(scores)
