"""The nearest tau as a problem on rows that share it: the rows in parts, and Newton's method on all of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from stau_rl.heads.log_softplus import log_phi_forward, log_softplus
from stau_rl.heads.look import everywhere
from stau_rl.heads.normalise import normalise_log_forward
from stau_rl.heads.s_tau import centred_log_phi

STEPS = 200
# Where all scores of a row lie below this, s - log softplus(s) comes from its series in z = exp(s).
SERIES_BELOW = -5.0
# -log(log1p(z) / z) = z/2 - 5 z^2/24 + z^3/8 - ...; the next term is below 1e-17 relative at z = exp(-5).
SERIES = (1 / 2, -5 / 24, 1 / 8, -251 / 2880, 19 / 288, -19087 / 362880, 751 / 17280)
# Of so many parts every eighth finds where to begin.
MANY, FEW = 16, 8
Item = TypeVar("Item")
Value = TypeVar("Value")
Each = Callable[[Callable[[Item], Value], Iterable[Item]], list[Value]]
"""How a function is called on several items: in turn, or on all cores."""


class Rows:
    """Scores [pools, rows, entries] with everything taken relative to the largest score of its row.

    The unknown is u = (tau - 1) scale, with scale the largest |log phi - max log phi| of the pool: a tau that exceeds 1
    by 1e-9 keeps its digits, and so does the log-ratio of softmax and s^tau, gap - u slope, which cancels otherwise. A
    pool may have more rows than these, so its scale is an argument.
    """

    def __init__(self, scores: Tensor, keep: Tensor, eps: float) -> None:
        log_phi = log_phi_forward(scores, eps)
        # With eps = 0 a score of -inf has no weight in either distribution.
        keep = keep & ~torch.isneginf(log_phi)
        scores = torch.where(keep, scores, 0.0)
        log_phi = torch.where(keep, log_phi, 0.0)
        self.keep, self.alive = keep, keep.any(-1)
        self.log_p, _ = normalise_log_forward(torch.where(keep, scores, -torch.inf), -1, keep)
        self.p = self.log_p.exp()
        top = torch.where(keep, scores, -torch.inf).argmax(-1, keepdim=True)
        fall = torch.where(keep, centred_log_phi(scores, log_phi, eps, -1, keep), 0.0)
        peak = scores.gather(-1, top)
        gap = scores - peak - fall
        low = peak < SERIES_BELOW
        if not everywhere(~low):
            slow = _gap_below(scores, eps)
            gap = torch.where(low, slow - slow.gather(-1, top), gap)
        # A score of -inf has p = 0, whatever the gap; its log-weight under s^tau is all that matters.
        self.floored = torch.isneginf(scores)
        self.infinite = (self.floored & ~torch.isneginf(peak)).any(2, keepdim=True).any(1, keepdim=True)
        self.gap = torch.where(keep & ~self.floored, gap, 0.0)
        self.scale = fall.abs().amax((1, 2), keepdim=True)
        self.fall = fall
        self.log_top = self.log_p.gather(-1, top)

    def slope(self, scale: Tensor) -> Tensor:
        """log phi - max log phi in units of the scale."""
        return self.fall / torch.where(scale == 0, 1.0, scale)

    def least_squares(self, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Terms of Cov(s - log phi, log phi) and of Var(log phi) in units of the scale: [pools, rows, entries] each."""
        count = self.keep.sum(-1, keepdim=True).clamp(min=1)
        slope, gap = (
            torch.where(self.keep, part - part.sum(-1, keepdim=True) / count, 0.0)
            for part in (self.slope(scale), self.gap)
        )
        return slope * gap, slope * slope

    def log_ratio(self, u: Tensor, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log p - log q up to a constant that makes its mean under p vanish; p h of it; log(q / that constant).

        h(x) = exp(-x) - 1 + x >= 0, so that KL = log(1 + sum p h): no term cancels another.
        """
        delta = torch.where(self.floored, 0.0, self.gap - u * slope)
        mean = (self.p * delta).sum(-1, keepdim=True)
        delta = delta - mean
        # log p - delta, also for a score of -inf.
        log_q = self.log_top + self.fall + u * slope + mean
        far = self.floored | (delta < -1.0)
        tail = self.p * _exp_remainder(delta)
        if not everywhere(~far):
            tail = torch.where(far, log_q.exp() - self.p * (1.0 - delta), tail)
        return delta, torch.where(self.keep, tail, 0.0), torch.where(self.keep, log_q, -torch.inf)

    def kl(self, u: Tensor, scale: Tensor) -> Tensor:
        """KL(softmax || s^tau) of every row, [pools, rows]; 0 where a row has no entry."""
        _, tail, log_q = self.log_ratio(u.nan_to_num(posinf=0.0), self.slope(scale))
        return torch.where(self.alive, _divergence(tail, log_q)[..., 0], 0.0)

    def newton(self, u: Tensor, scale: Tensor) -> Tensor:
        """What Newton's method sums over the rows, [4, pools, rows]: E_q - E_p, E_p, E_q and Var_q of the slope."""
        slope = self.slope(scale)
        delta, tail, log_q = self.log_ratio(u, slope)
        log_ratio = delta + _divergence(tail, log_q)
        q = (log_q - log_q.logsumexp(-1, keepdim=True)).exp().nan_to_num()
        near = ~self.floored & (log_ratio > -1.0)
        change = torch.where(near, self.p * torch.expm1(-log_ratio), q - self.p)
        row_mean = (q * slope).sum(-1, keepdim=True)
        variance = (q * (slope - row_mean) ** 2).sum(-1)
        excess = torch.where(self.keep, change * slope, 0.0).sum(-1)
        return torch.stack([excess, (self.p * slope).sum(-1), row_mean[..., 0], variance])


@dataclass(frozen=True, slots=True)
class Solution:
    """Both answers of a problem, [pools, 1, 1].

    Attributes:
        scale: of the pools.
        closed: u of Cov(s, log phi) / Var(log phi).
        newton: u of the least KL.
        kl_closed: mean KL that the first leaves, [pools].
        kl_newton: and the second, never more.
    """

    scale: Tensor
    closed: Tensor
    newton: Tensor
    kl_closed: Tensor
    kl_newton: Tensor

    def tau(self, u: Tensor, clamp: bool) -> Tensor:
        """Tau of u, [pools]; NaN where it makes no difference."""
        tau = torch.where(self.scale == 0, torch.nan, 1.0 + u / self.scale)[:, 0, 0]
        return tau.clamp(min=1.0) if clamp else tau


def in_turn(function: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """Call a function on one item after the other."""
    return [function(item) for item in items]


class Problem:
    """Rows that share a tau, pool by pool, in parts: as sums over rows add up, no two parts need be there at a time.

    Args:
        parts: make the rows of each part, [pools, rows, entries]; called once in every pass over the rows.
        each: how a function is called on the parts.
    """

    def __init__(self, parts: Sequence[Callable[[], Rows]], each: Each = in_turn) -> None:
        self.parts, self.each = parts, each

    def solve(self) -> Solution:
        """Both answers."""
        first = self.each(_first_look, self.parts)
        scales, infinite, sums, alive = zip(*first, strict=True)
        scale = torch.stack(scales).amax(0)
        flat, unit = scale == 0, torch.where(scale == 0, 1.0, scale)
        # Each part summed in units of its own scale.
        above = sum(part[0] * (own / unit) for part, own in zip(sums, scales, strict=True))
        below = sum(part[1] * (own / unit) ** 2 for part, own in zip(sums, scales, strict=True))
        u = torch.where(flat, 0.0, torch.where(torch.stack(infinite).any(0), torch.inf, above / below))
        start = torch.where(torch.isposinf(u), 0.0, u.clamp(min=0.0))
        if len(self.parts) >= MANY:
            start = self._search(self.parts[:: len(self.parts) // FEW], start, scale)
        newton = self._search(self.parts, start, scale)
        count = sum(alive).clamp(min=1)
        kls = self.each(partial(_kl_sums, several=(u, newton), scale=scale), self.parts)
        kl_closed, kl_newton = (sum(part) / count for part in zip(*kls, strict=True))
        kl_closed = torch.where(torch.isposinf(u[:, 0, 0]), torch.inf, kl_closed)
        better = kl_newton <= kl_closed
        return Solution(
            scale,
            u,
            torch.where(better[:, None, None], newton, u),
            kl_closed,
            torch.where(better, kl_newton, kl_closed),
        )

    def _search(self, parts: Sequence[Callable[[], Rows]], u: Tensor, scale: Tensor) -> Tensor:
        """u of the least KL on some of the parts, [pools, 1, 1].

        The slopes are negative, and -E_q[slope] falls about exponentially in u. Newton's method therefore works on its
        logarithm: on log(E_q[slope] / E_p[slope]), whose derivative is Var_q(slope) / E_q[slope].
        """
        low, high = torch.zeros_like(u), torch.full_like(u, torch.inf)
        done = scale == 0
        for _ in range(STEPS):
            sums = sum(self.each(partial(_newton_sums, u=u, scale=scale), parts))
            excess, mean_p, mean_q, variance = sums[..., None, None]
            move = -torch.log1p(excess / mean_p) * mean_q / variance
            low = torch.where(excess < 0, u, low)
            high = torch.where(excess > 0, u, high)
            step = u + move
            # A thousandth of a rounding unit of tau is enough: the KL depends on its square.
            enough = 2.0 * torch.finfo(u.dtype).eps * torch.maximum(u.abs(), 1e-3 * scale)
            done = done | (excess == 0) | (move.abs() <= enough)
            fallback = torch.where(torch.isposinf(high), 2.0 * u + 1.0, 0.5 * (low + high))
            step = torch.where((step > low) & (step < high), step, fallback)
            settled = (step - u).abs() <= enough
            u = torch.where(done, u, step)
            done = done | settled
            if bool(done.all()):
                break
        return u


def _first_look(make: Callable[[], Rows]) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], Tensor]:
    """Scale, whether the closed form is infinite, its sums in units of the scale, and how many rows have an entry."""
    made = make()
    above, below = (terms.sum((1, 2), keepdim=True) for terms in made.least_squares(made.scale))
    return made.scale, made.infinite, (above, below), made.alive.sum(1)


def _newton_sums(make: Callable[[], Rows], u: Tensor, scale: Tensor) -> Tensor:
    return make().newton(u, scale).sum(-1)


def _kl_sums(make: Callable[[], Rows], several: Sequence[Tensor], scale: Tensor) -> list[Tensor]:
    made = make()
    return [made.kl(u, scale).sum(1) for u in several]


def _divergence(tail: Tensor, log_q: Tensor) -> Tensor:
    """KL of every row from what `log_ratio` gives, with size 1 along the entries."""
    total = tail.sum(-1, keepdim=True)
    if everywhere(total < 1e300):
        return torch.log1p(total)
    return torch.where(total < 1e300, torch.log1p(total), log_q.logsumexp(-1, keepdim=True))


def _gap_below(scores: Tensor, eps: float) -> Tensor:
    """s - log(softplus(s) + eps) for s far below 0, relatively accurate."""
    z = scores.clamp(max=SERIES_BELOW).exp()
    total = torch.zeros_like(z)
    for coefficient in reversed(SERIES):
        total = z * (total + coefficient)
    if eps == 0:
        return total
    excess = torch.as_tensor(eps, dtype=scores.dtype, device=scores.device).log() - log_softplus(scores)
    return total - torch.logaddexp(torch.zeros_like(excess), excess)


def _exp_remainder(x: Tensor) -> Tensor:
    """exp(-x) - 1 + x, relatively accurate near 0 too."""
    small = x.abs() < 0.1
    near = torch.where(small, x, 0.0)
    total = torch.zeros_like(near)
    for order in range(12, 1, -1):
        total = (1.0 - total * near) / order
    far = torch.where(small, 1.0, x)
    return torch.where(small, near * near * total, torch.expm1(-far) + far)
