"""Softmax: f(s) = exp(beta s)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Softmax(Head):
    """Softmax, the Boltzmann distribution: weights proportional to exp(beta s).

    Attributes:
        beta: inverse temperature, >= 0; 0 is uniform.
    """

    name: ClassVar[str] = "softmax"
    formula: ClassVar[str] = "exp(beta s)"
    sharpness: ClassVar[str | None] = "beta"

    beta: float | Schedule = parameter(1.0, low=0.0)

    def log_f(self, scores: Tensor) -> Tensor:
        """Return beta s; a score of -inf has f = 0 at every beta."""
        beta = self.fixed(self.beta)
        if not isinstance(beta, Tensor) and beta == 0.0:
            return scores.where(scores.isneginf(), scores * 0.0)
        return beta * scores
