"""LSSAR's normaliser: softplus weights, re-weighted."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import prepare
from stau_rl.heads.parameter import parameter
from stau_rl.heads.reweight import log_reweight
from stau_rl.heads.softplus_norm import SoftplusNorm
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Lssar(Head):
    """`reweight(inner=softplus_norm, p)` by its own name; LSSAR's scores are log d log n times cosines.

    Source: Gao and Spratling, "Softplus attention with re-weighting boosts length extrapolation in large
    language models", 2025.

    Attributes:
        p: exponent of the re-weighting, > 0.
    """

    name: ClassVar[str] = "lssar"
    formula: ClassVar[str] = "relu(A n - O)^p, A = softplus_norm's weights"
    source: ClassVar[str] = "Gao & Spratling 2025"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "sub"

    p: float | Schedule = parameter(15.0, above=0.0)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        working, full = prepare(scores, mask)
        first = SoftplusNorm().unchecked_log_weights(working, dim, full)
        return log_reweight(first, self.fixed(self.p), dim, full)
