"""The power-law head s^tau: f(s) = (softplus(s) + eps)^tau."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import Head, require_finite
from stau_rl.heads.log_softplus import SMALLEST_SUM, log_phi, log_phi_forward, log_phi_slope, softplus
from stau_rl.heads.normalise import (
    check_scores,
    normalise_log,
    normalise_log_backward,
    normalise_log_forward,
    prepare,
)
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule

EPS = 1e-8


class _LogSTau(torch.autograd.Function):
    """log w = tau log phi - logsumexp(tau log phi), with the gradients of scores and tau in closed form."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, tau: Tensor, eps: float, dim: int, mask: Tensor | None) -> Tensor:
        out, dead = normalise_log_forward(tau * log_phi_forward(scores, eps), dim, mask)
        ctx.eps, ctx.dim, ctx.mask, ctx.dead = eps, dim, mask, dead
        ctx.save_for_backward(scores, tau, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, tau, out = ctx.saved_tensors
        log_f_grad = normalise_log_backward(grad, out, ctx.dim, ctx.mask, ctx.dead)
        value = log_phi(scores, ctx.eps)
        grad_scores = log_f_grad * tau * log_phi_slope(scores, value)
        grad_tau = None
        if ctx.needs_input_grad[1]:
            grad_tau = log_f_grad * centred_log_phi(scores, value, ctx.eps, ctx.dim, ctx.mask)
            grad_tau = grad_tau.sum_to_size(tau.shape)
        return grad_scores.sum_to_size(scores.shape), grad_tau, None, None, None


def centred_log_phi(scores: Tensor, value: Tensor, eps: float, dim: int, mask: Tensor | None) -> Tensor:
    """log phi - max over the row of log phi; a gradient that sums to 0 over the row does not see the shift.

    Where phi is within a factor 2 of the largest it is log1p((softplus_j - softplus_max) / phi_max): the differences
    of close scores, and of scores far below log eps, would be rounded away in log phi itself.
    """
    if mask is None and eps >= SMALLEST_SUM:
        # Every log phi is finite, so that what follows needs half its calls.
        plus = softplus(scores)
        top = plus.amax(dim, keepdim=True)
        ratio = (plus - top) / (top + eps)
        plain = value - value.amax(dim, keepdim=True)
        return torch.where(ratio > -0.5, torch.log1p(ratio.clamp(min=-0.5)), plain)
    counted = value if mask is None else torch.where(mask, value, -torch.inf)
    peak, where = counted.max(dim, keepdim=True)
    plain = torch.where(torch.isneginf(value), 0.0, value - torch.where(torch.isneginf(peak), 0.0, peak))
    plus = softplus(scores)
    top = plus.gather(dim, where)
    limits = torch.finfo(scores.dtype)
    ratio = (plus - top) / (top + eps).clamp(min=limits.tiny)
    close = (ratio > -0.5) & (top + eps > limits.tiny / limits.eps)
    return torch.where(close, torch.log1p(torch.where(close, ratio, 0.0)), plain)


def log_s_tau(
    scores: Tensor, tau: float | Tensor, eps: float = EPS, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
    """Log-weights of s^tau, differentiable in the scores and in tau.

    Args:
        scores: floating-point tensor of any shape; computed in float64 if float64, else in float32.
        tau: exponent >= 1; a number, or a tensor that broadcasts against `scores` with size 1 along `dim`.
        eps: floor of the map, >= 0; with eps > 0 an unmasked score of -inf is legal.
        dim: the axis of the arms, actions or keys.
        mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.

    Returns:
        Log-weights in the dtype of `scores`; -inf under the mask.

    Raises:
        ValueError: for tau < 1, eps < 0, a tau that varies along `dim`, NaN or +inf scores where unmasked.
    """
    check_scores(scores, mask)
    require_finite("s_tau", "eps", eps, low=0.0)
    if not isinstance(tau, Tensor):
        require_finite("s_tau", "tau", tau, low=1.0)
    elif not torch.compiler.is_compiling() and not bool(((tau >= 1) & tau.isfinite()).all()):
        raise ValueError(f"s_tau: tau must be finite and >= 1, got a tensor with minimum {float(tau.detach().min())!r}")
    working, mask = prepare(scores, mask)
    return unchecked_log_s_tau(working, tau, eps, dim, mask).to(scores.dtype)


def unchecked_log_s_tau(working: Tensor, tau: float | Tensor, eps: float, dim: int, mask: Tensor | None) -> Tensor:
    """`log_s_tau` in the working dtype, on what `prepare` made, without looking at the values."""
    exponent = torch.as_tensor(tau, dtype=working.dtype, device=working.device)
    shape = torch.broadcast_shapes(exponent.shape, working.shape)
    own_axis = dim % len(shape) - (len(shape) - exponent.ndim) if exponent.ndim else -1
    if own_axis >= 0 and exponent.shape[own_axis] != 1:
        raise ValueError(f"s_tau: tau must have size 1 along dim {dim}, got shape {tuple(exponent.shape)}")
    if working.shape[dim] == 0:
        return working
    mask = None if mask is None else mask.expand(shape)
    return _LogSTau.apply(working.expand(shape), exponent, eps, dim, mask)


def s_tau(scores: Tensor, tau: float | Tensor, eps: float = EPS, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """Weights of s^tau; arguments and errors as in `log_s_tau`. Exactly 0 under the mask."""
    return log_s_tau(scores, tau, eps, dim, mask).exp()


@dataclass(frozen=True, slots=True)
class STau(Head):
    """s^tau: weights proportional to (softplus(s) + eps)^tau.

    Behaves as softmax(beta=tau) for scores far below 0 and as escort(p=tau) far above; not shift-invariant.

    Attributes:
        tau: exponent, >= 1.
        eps: floor of the map, >= 0.
    """

    name: ClassVar[str] = "s_tau"
    formula: ClassVar[str] = "(softplus(s) + eps)^tau"
    sharpness: ClassVar[str | None] = "tau"

    tau: float | Schedule = parameter(2.0, low=1.0)
    eps: float | Schedule = parameter(EPS, low=0.0, show=False)

    def log_f(self, scores: Tensor) -> Tensor:
        """Return tau log(softplus(s) + eps)."""
        return self.fixed(self.tau) * log_phi(scores, self.fixed(self.eps))

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype; the plain form where tau is a number, as it needs no gradient there."""
        scores, mask = prepare(scores, mask)
        if isinstance(self.tau, Tensor):
            return unchecked_log_s_tau(scores, self.tau, self.fixed(self.eps), dim, mask)
        return normalise_log(self.log_f(scores), dim, mask)
