"""1.5-entmax: sparse weights with a quadratic onset."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import prepare
from stau_rl.heads.threshold import largest_first, log_above, log_entmax, within_one


def log_entmax15(s: Tensor, alpha: Tensor, count: Tensor) -> Tensor:
    """Log of max(x - theta, 0)^2, with x = s / 2 and sum max(x - theta, 0)^2 = 1.

    If the support is the k largest, theta solves k theta^2 - 2 theta S + Q = 1, with their sum S and sum of squares Q;
    k is the largest for which the k-th entry is above its theta.
    """
    x = within_one(s, alpha)
    ordered, k = largest_first(x)
    mean = ordered.cumsum(-1) / k
    spread = (ordered * ordered).cumsum(-1) - k * mean * mean
    candidates = mean - ((1.0 - spread).clamp(min=0.0) / k).sqrt()
    support = (ordered > candidates).sum(-1, keepdim=True).clamp(min=1)
    return log_above(x - candidates.gather(-1, support - 1), alpha)


@dataclass(frozen=True, slots=True)
class Entmax15(Head):
    """Weights max(s / 2 - theta, 0)^2, theta such that they sum to 1; exact, by sorting.

    Source: Peters, Niculae, Martins, "Sparse sequence-to-sequence models", ACL 2019.
    """

    name: ClassVar[str] = "entmax15"
    formula: ClassVar[str] = "max(s/2 - theta, 0)^2"
    source: ClassVar[str] = "Peters et al. 2019"
    smooth_at_zero: ClassVar[bool] = False

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values; -inf outside the support."""
        scores, mask = prepare(scores, mask)
        return log_entmax(scores, 1.5, log_entmax15, dim, mask)
