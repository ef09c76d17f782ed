"""The tau whose s^tau is nearest to softmax on given scores: by least squares, and by Newton on the KL divergence."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stau_rl.calibration.tau_problem import Problem, Rows
from stau_rl.heads.base import require_finite
from stau_rl.heads.normalise import check_scores
from stau_rl.heads.s_tau import EPS

LARGEST_SCORE = 1e300


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
        rows = Rows(values.permute(order).reshape(sizes), keep.permute(order).reshape(sizes), float(eps))
        found = Problem([lambda: rows]).solve()
        closed, newton = (found.tau(u, clamp).reshape(shape) for u in (found.closed, found.newton))
    return TauStar(closed, found.kl_closed.reshape(shape), newton, found.kl_newton.reshape(shape))


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
