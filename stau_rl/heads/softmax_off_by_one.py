"""Softmax with a constant in its denominator."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import log_parameter, prepare, share_log
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class SoftmaxOffByOne(Head):
    """Weights exp(s) / (n + sum exp(s)): n entries of score 0 that nobody can choose.

    Source: Miller, "Attention is off by one", 2023.

    Attributes:
        n: what is added to the denominator, >= 0; 0 is softmax. At exactly 0 it has no gradient.
    """

    name: ClassVar[str] = "softmax_off_by_one"
    formula: ClassVar[str] = "exp(s), with n added to the sum"
    source: ClassVar[str] = "Miller 2023"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "sub"

    n: float | Schedule = parameter(1.0, low=0.0)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        scores, mask = prepare(scores, mask)
        return share_log(scores, dim, mask, log_parameter(self.fixed(self.n), scores))
