"""Scalable softmax: an inverse temperature that grows with the logarithm of the row's length."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import count_entries, normalise_log, power_log, prepare, representable
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class SSMax(Head):
    """Weights proportional to n^(scale s) = exp(scale s log n), n entries in the row that count.

    Source: Nakanishi, "Scalable-softmax is superior for attention", 2025.

    Attributes:
        scale: factor of log n, >= 0; meant to be learned, per head.
    """

    name: ClassVar[str] = "ssmax"
    formula: ClassVar[str] = "n^(scale s)"
    source: ClassVar[str] = "Nakanishi 2025"
    smooth_at_zero: ClassVar[bool] = False
    sharpness: ClassVar[str | None] = "scale"

    scale: float | Schedule = parameter(0.43, low=0.0)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values; a score of -inf has f = 0 at every scale."""
        scores, mask = prepare(scores, mask)
        scale = representable(self.fixed(self.scale), scores.dtype)
        length = count_entries(scores, dim, mask).clamp(min=1.0).log()
        exponent = (scale * length).clamp(max=torch.finfo(scores.dtype).max)
        log_f, _ = power_log(exponent, scores, dim, mask)
        return normalise_log(log_f, dim, mask)
