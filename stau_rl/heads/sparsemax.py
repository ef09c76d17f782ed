"""Sparsemax: the Euclidean projection of the scores onto the simplex."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import prepare
from stau_rl.heads.threshold import largest_first, log_above, log_entmax, within_one


def log_sparsemax(s: Tensor, alpha: Tensor, count: Tensor) -> Tensor:
    """Log of max(s - theta, 0), with sum max(s - theta, 0) = 1.

    Theta is the mean of the k largest, minus 1/k, for the largest k that keeps them.
    """
    x = within_one(s, alpha)
    ordered, k = largest_first(x)
    candidates = (ordered.cumsum(-1) - 1.0) / k
    support = (ordered > candidates).sum(-1, keepdim=True).clamp(min=1)
    return log_above(x - candidates.gather(-1, support - 1), alpha)


@dataclass(frozen=True, slots=True)
class Sparsemax(Head):
    """Weights max(s - theta, 0), theta such that they sum to 1; exact, by sorting.

    Source: Martins and Astudillo, "From softmax to sparsemax", ICML 2016.
    """

    name: ClassVar[str] = "sparsemax"
    formula: ClassVar[str] = "max(s - theta, 0)"
    source: ClassVar[str] = "Martins & Astudillo 2016"
    smooth_at_zero: ClassVar[bool] = False

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values; -inf outside the support."""
        scores, mask = prepare(scores, mask)
        return log_entmax(scores, 2.0, log_sparsemax, dim, mask)
