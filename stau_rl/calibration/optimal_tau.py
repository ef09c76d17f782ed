"""The tau whose s^tau is nearest to softmax on given scores: by least squares, and by Newton on the KL divergence."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stau_rl.heads.base import require_finite
from stau_rl.heads.log_softplus import log_phi_forward, log_softplus
from stau_rl.heads.normalise import check_scores, normalise_log_forward
from stau_rl.heads.s_tau import EPS, centred_log_phi

STEPS = 200
LARGEST_SCORE = 1e300
# Where all scores of a row lie below this, s - log softplus(s) comes from its series in z = exp(s).
SERIES_BELOW = -5.0
# -log(log1p(z) / z) = z/2 - 5 z^2/24 + z^3/8 - ...; the next term is below 1e-17 relative at z = exp(-5).
SERIES = (1 / 2, -5 / 24, 1 / 8, -251 / 2880, 19 / 288, -19087 / 362880, 751 / 17280)


@dataclass(frozen=True, slots=True)
class TauStar:
    """Two answers to "which tau?", in float64, one entry per row or pool.

    Attributes:
        closed_form: Cov(s, log phi) / Var(log phi), the least-squares tau of s = tau log phi + C.
        kl_closed_form: mean KL(softmax(s) || s_tau(s; closed_form)) over the rows.
        newton: the tau of least mean KL(softmax(s) || s_tau(s; tau)).
        kl_newton: the KL it reaches, never above `kl_closed_form`.
    """

    closed_form: Tensor
    kl_closed_form: Tensor
    newton: Tensor
    kl_newton: Tensor


def tau_star(
    scores: Tensor,
    dim: int = -1,
    mask: Tensor | None = None,
    eps: float = EPS,
    pool: Literal["row", "head", "all"] | tuple[int, ...] = "row",
    clamp: bool = False,
) -> TauStar:
    """The tau that brings s_tau(s; tau) nearest to softmax(s), in closed form and by minimal KL divergence.

    With phi = softplus(s) + eps, the closed form is Cov(s, log phi) / Var(log phi), each unmasked entry of a row
    weighing the same. The other minimises, by Newton's method inside a bracket, the divergence

        KL(softmax(s) || s_tau(s; tau)) = E_softmax[s - tau log phi] - log sum exp(s) + log sum phi^tau,

    which is convex in tau. Where rows are pooled they share one tau, each with its own constant C: covariances and
    variances within the rows add up, and the KL is its mean over the rows. As d log phi / ds <= 1, both answers are at
    least 1 but for rounding.

    Args:
        scores: floating-point tensor of any shape; computed in float64, without a gradient.
        dim: the axis of the arms, actions or keys.
        mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.
        eps: floor of the map, >= 0. An entry of -inf is left out where eps = 0, as its weight is 0 in both; where
            eps > 0 the closed form and its KL are inf, and Newton's stay finite.
        pool: which rows share a tau: `row`, none; `head`, all with the same index on axis 1, as in
            [batch, heads, queries, keys]; `all`; or the axes to pool over.
        clamp: never return a tau below 1, which `s_tau` would refuse.

    Returns:
        A `TauStar` with tensors of the shape of `scores` less `dim` and the pooled axes. Where tau makes no difference
        (one unmasked entry, equal scores, or all below the floor eps) both are NaN, with the KL that any tau has: 0 for
        one entry, equal scores or none at all.

    Raises:
        ValueError: for NaN, +inf or finite scores beyond +-1e300 where unmasked, eps < 0, or axes that do not fit.

    Examples:
        >>> import torch
        >>> import stau_rl
        >>> found = stau_rl.tau_star(torch.tensor([0.3, -1.2, 2.0, 0.0]))
        >>> round(found.closed_form.item(), 3), round(found.newton.item(), 3)
        (1.527, 1.721)
    """
    check_scores(scores, mask)
    require_finite("tau_star", "eps", eps, low=0.0)
    with torch.no_grad():
        keep = torch.ones((), dtype=torch.bool, device=scores.device) if mask is None else mask
        values, keep = torch.broadcast_tensors(scores.detach().double(), keep)
        kept_axes, pooled_axes, dim = _axes(values.ndim, dim, pool)
        shape = [values.shape[axis] for axis in kept_axes]
        if values.numel() and float(torch.where(keep & values.isfinite(), values, 0.0).abs().max()) > LARGEST_SCORE:
            raise ValueError(f"scores must lie within +-{LARGEST_SCORE:g} where finite, or their covariance overflows")
        order = [*kept_axes, *pooled_axes, dim]
        sizes = [torch.Size(values.shape[axis] for axis in axes).numel() for axes in (kept_axes, pooled_axes, (dim,))]
        if values.numel() == 0:
            nothing = values.new_zeros(shape)
            return TauStar(nothing / 0.0, nothing, nothing / 0.0, nothing.clone())
        problem = _Problem(values.permute(order).reshape(sizes), keep.permute(order).reshape(sizes), float(eps))
        closed, newton = problem.solve()
        results = [part.reshape(shape) for u in (closed, newton) for part in (problem.tau(u, clamp), problem.kl(u))]
    return TauStar(*results)


def _axes(
    ndim: int, dim: int, pool: Literal["row", "head", "all"] | tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Axes that keep their tau, axes that are pooled, and the axis of the entries, all non-negative."""
    if not -ndim <= dim < ndim:
        raise ValueError(f"dim must be an axis of scores with {ndim} axes, got {dim}")
    dim %= ndim
    others = tuple(axis for axis in range(ndim) if axis != dim)
    if pool == "row":
        return others, (), dim
    if pool == "all":
        return (), others, dim
    if pool == "head":
        if ndim < 3 or dim == 1:
            raise ValueError(f"pool='head' keeps axis 1 of scores [batch, heads, ...], got {ndim} axes and dim={dim}")
        return (1,), tuple(axis for axis in others if axis != 1), dim
    if isinstance(pool, str) or not all(-ndim <= axis < ndim and axis % ndim != dim for axis in pool):
        raise ValueError(f"pool must be 'row', 'head', 'all' or axes of scores other than dim={dim}, got {pool!r}")
    pooled = tuple(sorted({axis % ndim for axis in pool}))
    return tuple(axis for axis in others if axis not in pooled), pooled, dim


class _Problem:
    """Scores [pools, rows, entries] with everything taken relative to the largest score of its row.

    The unknown is u = (tau - 1) scale, with scale the largest |log phi - max log phi| of the pool: a tau that exceeds 1
    by 1e-9 keeps its digits, and so does the log-ratio of softmax and s^tau, gap - u slope, which cancels otherwise.
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
        slow = _gap_below(scores, eps)
        gap = torch.where(peak < SERIES_BELOW, slow - slow.gather(-1, top), scores - peak - fall)
        # A score of -inf has p = 0, whatever the gap; its log-weight under s^tau is all that matters.
        self.floored = torch.isneginf(scores)
        self.infinite = (self.floored & ~torch.isneginf(peak)).any(2, keepdim=True).any(1, keepdim=True)
        self.gap = torch.where(keep & ~self.floored, gap, 0.0)
        self.scale = fall.abs().amax((1, 2), keepdim=True)
        self.flat = self.scale == 0
        self.slope = fall / torch.where(self.flat, 1.0, self.scale)
        self.fall = fall
        self.log_top = self.log_p.gather(-1, top)

    def tau(self, u: Tensor, clamp: bool) -> Tensor:
        tau = torch.where(self.flat, torch.nan, 1.0 + u / self.scale)[:, 0, 0]
        return tau.clamp(min=1.0) if clamp else tau

    def closed_form(self) -> Tensor:
        """u of Cov(s, log phi) / Var(log phi) - 1 = Cov(s - log phi, log phi) / Var(log phi)."""
        count = self.keep.sum(-1, keepdim=True).clamp(min=1)
        slope, gap = (
            torch.where(self.keep, part - part.sum(-1, keepdim=True) / count, 0.0) for part in (self.slope, self.gap)
        )
        u = (slope * gap).sum((1, 2), keepdim=True) / (slope * slope).sum((1, 2), keepdim=True)
        return torch.where(self.flat, 0.0, torch.where(self.infinite, torch.inf, u))

    def log_ratio(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log p - log q up to a constant that makes its mean under p vanish; p h of it; log(q / that constant).

        h(x) = exp(-x) - 1 + x >= 0, so that KL = log(1 + sum p h): no term cancels another.
        """
        delta = torch.where(self.floored, 0.0, self.gap - u * self.slope)
        mean = (self.p * delta).sum(-1, keepdim=True)
        delta = delta - mean
        # log p - delta, also for a score of -inf.
        log_q = self.log_top + self.fall + u * self.slope + mean
        far = self.floored | (delta < -1.0)
        tail = torch.where(far, log_q.exp() - self.p * (1.0 - delta), self.p * _exp_remainder(delta))
        return delta, torch.where(self.keep, tail, 0.0), torch.where(self.keep, log_q, -torch.inf)

    def row_kl(self, u: Tensor) -> Tensor:
        _, tail, log_q = self.log_ratio(u)
        total = tail.sum(-1, keepdim=True)
        return torch.where(total < 1e300, torch.log1p(total), log_q.logsumexp(-1, keepdim=True))

    def kl(self, u: Tensor) -> Tensor:
        """Mean KL(softmax || s^tau) over the rows of each pool, [pools]."""
        rows = torch.where(self.alive[..., None], self.row_kl(u.nan_to_num(posinf=0.0)), 0.0).sum((1, 2))
        kl = rows / self.alive.sum(1).clamp(min=1)
        return torch.where(torch.isposinf(u[:, 0, 0]), torch.inf, kl)

    def newton_step(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Derivative of the summed KL in u, E_q[slope] - E_p[slope], and Newton's step towards its root.

        The slopes are negative, and -E_q[slope] falls about exponentially in u. Newton's method therefore works on its
        logarithm: on log(E_q[slope] / E_p[slope]), whose derivative is Var_q(slope) / E_q[slope].
        """
        delta, _, log_q = self.log_ratio(u)
        log_ratio = delta + self.row_kl(u)
        q = (log_q - log_q.logsumexp(-1, keepdim=True)).exp().nan_to_num()
        near = ~self.floored & (log_ratio > -1.0)
        change = torch.where(near, self.p * torch.expm1(-log_ratio), q - self.p)
        row_mean = (q * self.slope).sum(-1, keepdim=True)
        variance = (q * (self.slope - row_mean) ** 2).sum((1, 2), keepdim=True)
        excess = torch.where(self.keep, change * self.slope, 0.0).sum((1, 2), keepdim=True)
        mean_p = (self.p * self.slope).sum((1, 2), keepdim=True)
        return excess, -torch.log1p(excess / mean_p) * row_mean.sum(1, keepdim=True) / variance

    def solve(self) -> tuple[Tensor, Tensor]:
        """u of the closed form and of the least KL, [pools, 1, 1]."""
        closed = self.closed_form()
        u = torch.where(torch.isposinf(closed), 0.0, closed.clamp(min=0.0))
        low, high = torch.zeros_like(u), torch.full_like(u, torch.inf)
        done = self.flat
        for _ in range(STEPS):
            excess, move = self.newton_step(u)
            low = torch.where(excess < 0, u, low)
            high = torch.where(excess > 0, u, high)
            step = u + move
            fallback = torch.where(torch.isposinf(high), 2.0 * u + 1.0, 0.5 * (low + high))
            step = torch.where((step > low) & (step < high), step, fallback)
            done = done | (excess == 0)
            # A thousandth of a rounding unit of tau is enough: the KL depends on its square.
            settled = (step - u).abs() <= 2.0 * torch.finfo(u.dtype).eps * torch.maximum(u.abs(), 1e-3 * self.scale)
            u = torch.where(done, u, step)
            done = done | settled
            if bool(done.all()):
                break
        better = (self.kl(u) <= self.kl(closed))[:, None, None]
        return closed, torch.where(better, u, closed)


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
