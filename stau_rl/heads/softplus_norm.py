"""Softplus normalisation: f(s) = softplus(s)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.log_softplus import log_phi


@dataclass(frozen=True, slots=True)
class SoftplusNorm(Head):
    """Weights proportional to softplus(s), the normaliser of length-scaled softplus attention (LSSA).

    Source: Gao and Spratling, "Softplus attention with re-weighting boosts length extrapolation in large
    language models", 2025.
    """

    name: ClassVar[str] = "softplus_norm"
    formula: ClassVar[str] = "softplus(s)"
    source: ClassVar[str] = "Gao & Spratling 2025"

    def log_f(self, scores: Tensor) -> Tensor:
        """Return log softplus(s)."""
        return log_phi(scores, 0.0)
