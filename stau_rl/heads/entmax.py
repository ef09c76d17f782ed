"""alpha-entmax: from softmax (alpha near 1) over 1.5-entmax to sparsemax (alpha = 2) and beyond."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import prepare
from stau_rl.heads.parameter import parameter
from stau_rl.heads.threshold import largest_first, log_entmax
from stau_rl.spec.schedule import Schedule


def gentle_log(s: Tensor, alpha: Tensor, count: Tensor) -> Tensor:
    """Log-weights for alpha <= 2, by bisection for the largest weight v: y = v^(alpha - 1) + (alpha - 1) s.

    y - 1 is what is formed, so that alpha near 1 costs no digits: log w = log1p(y - 1) / (alpha - 1).
    """
    power = alpha - 1.0
    fall = power * s

    def log_weights(v: Tensor) -> Tensor:
        less = torch.expm1(power * v.log()) + fall
        keep = less > -1.0
        return torch.where(keep, torch.log1p(torch.where(keep, less, 0.0)) / power, -torch.inf)

    low = (1.0 / count.clamp(min=1.0)).expand(*fall.shape[:-1], 1)
    return log_weights(_bisect(log_weights, low, torch.ones_like(low), s.shape[-1]))


def steep_log(s: Tensor, alpha: Tensor, count: Tensor) -> Tensor:
    """Log-weights for alpha > 2, by bisection for the smallest positive weight v.

    y = v^(alpha - 1) + (alpha - 1) (s - t), t the smallest score of the support. With theta itself a weight of v would
    cost v^(alpha - 1) digits of it.
    """
    power, n = alpha - 1.0, s.shape[-1]
    ordered, _ = largest_first(s)
    ordered = ordered.expand(torch.broadcast_shapes(s.shape, alpha.shape))

    def log_rise(t: Tensor) -> Tensor:
        """Log-weights if t had weight 0."""
        above = s > t
        rise = power * torch.where(above, s - t, 1.0)
        return torch.where(above, rise.log() / power, -torch.inf)

    # The k-th score is in the support if the weights above it, were its own 0, do not sum to 1 yet.
    low = torch.ones(*ordered.shape[:-1], 1, dtype=torch.long, device=s.device)
    high = torch.full_like(low, n)
    for _ in range(n.bit_length()):
        k = (low + high + 1) // 2
        inside = log_rise(ordered.gather(-1, k - 1)).exp().sum(-1, keepdim=True) < 1.0
        low, high = torch.where(inside, k, low), torch.where(inside, high, k - 1)
    least = ordered.gather(-1, low - 1)
    rise, keep = log_rise(least), s >= least

    def log_weights(v: Tensor) -> Tensor:
        # log(v^power + rise^power) / power, from the larger of the two.
        log_v = v.log()
        rest = torch.log1p((-power * (log_v - rise).abs()).exp()) / power
        return torch.where(keep, torch.maximum(log_v, rise) + rest, -torch.inf)

    top = 1.0 / low.to(s.dtype)
    return log_weights(_bisect(log_weights, torch.zeros_like(top), top, n))


def _bisect(log_weights: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, n: int) -> Tensor:
    """The v at which the weights of n entries, which grow with it, sum to 1: to a rounding unit of 1 / n."""
    for _ in range((26 if low.dtype == torch.float32 else 55) + n.bit_length()):
        middle = 0.5 * (low + high)
        enough = log_weights(middle).exp().sum(-1, keepdim=True) >= 1.0
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high


def any_log(s: Tensor, alpha: Tensor, count: Tensor) -> Tensor:
    """Log-weights for alphas on both sides of 2."""
    gentle, steep = gentle_log(s, alpha.clamp(max=2.0), count), steep_log(s, alpha.clamp(min=2.0), count)
    return torch.where(alpha > 2.0, steep, gentle)


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
        alpha: Any = self.fixed(self.alpha)
        log_map = any_log if isinstance(alpha, Tensor) else steep_log if alpha > 2.0 else gentle_log
        return log_entmax(scores, alpha, log_map, dim, mask)
