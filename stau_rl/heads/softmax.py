"""Softmax: f(s) = exp(beta s)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stau_rl.heads.base import PowerHead
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Softmax(PowerHead):
    """Softmax, the Boltzmann distribution: weights proportional to exp(beta s).

    Attributes:
        beta: inverse temperature, >= 0; 0 is uniform.
    """

    name: ClassVar[str] = "softmax"
    formula: ClassVar[str] = "exp(beta s)"
    sharpness: ClassVar[str] = "beta"

    beta: float | Schedule = parameter(1.0, low=0.0)

    def log_x(self, scores: Tensor) -> Tensor:
        """Return s, the log of exp(s)."""
        return scores
