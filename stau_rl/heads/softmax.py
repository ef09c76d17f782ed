"""Softmax: f(s) = exp(beta s)."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from stau_rl.heads.base import Head, require_finite


@dataclass(frozen=True, slots=True)
class Softmax(Head):
    """Softmax, the Boltzmann distribution: weights proportional to exp(beta s).

    Attributes:
        beta: inverse temperature, >= 0; 0 is uniform.
    """

    name: ClassVar[str] = "softmax"
    formula: ClassVar[str] = "exp(beta s)"
    sharpness: ClassVar[str | None] = "beta"

    beta: float = field(default=1.0, metadata={"show": True})

    def __post_init__(self) -> None:
        """Check the parameters."""
        require_finite("softmax", "beta", self.beta, low=0.0)

    def log_f(self, scores: Tensor) -> Tensor:
        """Return beta s; a score of -inf has f = 0 at every beta."""
        return self.beta * scores if self.beta else scores.where(scores.isneginf(), scores * 0.0)
