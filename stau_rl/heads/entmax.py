"""alpha-entmax: from softmax (alpha near 1) over 1.5-entmax to sparsemax (alpha = 2) and beyond."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import prepare
from stau_rl.heads.parameter import parameter
from stau_rl.heads.threshold import log_entmax
from stau_rl.spec.schedule import Schedule


def bisect_threshold(x: Tensor, alpha: Tensor, count: Tensor) -> Tensor:
    """Theta with sum max(x - theta, 0)^(1 / (alpha - 1)) = 1, by bisection down to a rounding unit.

    The largest x is 0, so its weight alone puts theta at -1 or above, and equal weights at -count^(1 - alpha) or below.
    """
    low = torch.full_like(count, -1.0).expand(torch.broadcast_shapes(count.shape, alpha.shape))
    high = -(count.clamp(min=1.0) ** (1.0 - alpha))
    for _ in range(26 if x.dtype == torch.float32 else 55):
        middle = 0.5 * (low + high)
        enough = ((x - middle).clamp(min=0.0) ** (1.0 / (alpha - 1.0))).sum(-1, keepdim=True) >= 1.0
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    return low


@dataclass(frozen=True, slots=True)
class Entmax(Head):
    """Weights max((alpha - 1) s - theta, 0)^(1 / (alpha - 1)), theta such that they sum to 1.

    Source: Blondel, Martins, Niculae, "Learning classifiers with Fenchel-Young losses", AISTATS 2019; its gradient in
    alpha is that of Correia, Niculae, Martins, "Adaptively sparse transformers", EMNLP 2019.

    Attributes:
        alpha: > 1; 2 is sparsemax, and weights approach softmax as it falls to 1.
    """

    name: ClassVar[str] = "entmax"
    formula: ClassVar[str] = "max((alpha - 1) s - theta, 0)^(1 / (alpha - 1))"
    source: ClassVar[str] = "Blondel et al. 2019"
    smooth_at_zero: ClassVar[bool] = False

    alpha: float | Schedule = parameter(1.25, above=1.0)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values; -inf outside the support."""
        scores, mask = prepare(scores, mask)
        return log_entmax(scores, self.fixed(self.alpha), bisect_threshold, dim, mask)
