"""The power-law head s^tau: f(s) = (softplus(s) + eps)^tau."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import PowerHead, require_finite
from stau_rl.heads.log_softplus import SMALLEST_SUM, log_phi, log_phi_forward, log_phi_slope, softplus
from stau_rl.heads.look import everywhere
from stau_rl.heads.normalise import (
    check_scores,
    normalise_log_backward,
    normalise_log_forward,
    normalise_log_tangent,
    power_log,
    prepare,
)
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule

EPS = 1e-8


class _LogSTau(torch.autograd.Function):
    """log w = tau log phi - logsumexp(tau log phi), with the gradients of scores and tau in closed form."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, tau: Tensor, eps: float, dim: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        log_f, _ = power_log(tau, log_phi_forward(scores, eps), dim, mask)
        return normalise_log_forward(log_f, dim, mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        scores, tau, ctx.eps, ctx.dim, mask = inputs
        out, dead = output
        ctx.mark_non_differentiable(dead)
        ctx.save_for_backward(scores, tau, mask, out, dead)
        ctx.save_for_forward(scores, tau, mask, out, dead)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        scores, tau, mask, out, dead = ctx.saved_tensors
        grads = log_s_tau_backward(grad, scores, tau, ctx.eps, ctx.dim, mask, out, dead, ctx.needs_input_grad[1])
        return *grads, None, None, None


class _LogSTauBothWays(_LogSTau):
    """With the forward mode, which `torch.compile` does not trace."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, tau_tangent: Tensor | None, *_: Any) -> tuple[Tensor, None]:
        scores, tau, mask, out, dead = ctx.saved_tensors
        return log_s_tau_tangent(tangent, tau_tangent, scores, tau, ctx.eps, ctx.dim, mask, out, dead), None


def log_s_tau_backward(
    grad: Tensor,
    scores: Tensor,
    tau: Tensor,
    eps: float,
    dim: int,
    mask: Tensor | None,
    out: Tensor,
    dead: Tensor,
    needs_tau: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the scores and of tau (None unless needed), from the gradient of the log-weights `out`.

    The tensors are as in `unchecked_log_s_tau`; the result is differentiable in all of them.
    """
    log_f_grad = normalise_log_backward(grad, out, dim, mask, dead)
    value = log_phi(scores, eps)
    grad_scores = log_f_grad * tau * log_phi_slope(scores, value)
    grad_tau = None
    if needs_tau:
        grad_tau = (log_f_grad * centred_log_phi(scores, value, eps, dim, mask)).sum_to_size(tau.shape)
    return grad_scores.sum_to_size(scores.shape), grad_tau


def log_s_tau_tangent(
    tangent: Tensor | None,
    tau_tangent: Tensor | None,
    scores: Tensor,
    tau: Tensor,
    eps: float,
    dim: int,
    mask: Tensor | None,
    out: Tensor,
    dead: Tensor,
) -> Tensor:
    """Change of the log-weights `out` with the scores and with tau; None is no change. Tensors as in the backward."""
    value = log_phi(scores, eps)
    change = torch.zeros_like(out)
    if tangent is not None:
        change = change + tau * log_phi_slope(scores, value) * tangent
    if tau_tangent is not None:
        change = change + centred_log_phi(scores, value, eps, dim, mask) * tau_tangent
    return normalise_log_tangent(change, out, dim, mask, dead)


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
    elif not torch.compiler.is_compiling() and not everywhere((tau >= 1) & tau.isfinite()):
        least = float(torch.func.debug_unwrap(tau).detach().min())
        raise ValueError(f"s_tau: tau must be finite and >= 1, got a tensor with minimum {least!r}")
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
    run = _LogSTau if torch.compiler.is_compiling() else _LogSTauBothWays
    out: Tensor = run.apply(working.expand(shape), exponent, eps, dim % len(shape) - len(shape), mask)[0]
    return out


def s_tau(scores: Tensor, tau: float | Tensor, eps: float = EPS, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """Weights of s^tau; arguments and errors as in `log_s_tau`. Exactly 0 under the mask."""
    return log_s_tau(scores, tau, eps, dim, mask).exp()


@dataclass(frozen=True, slots=True)
class STau(PowerHead):
    """s^tau: weights proportional to (softplus(s) + eps)^tau.

    Behaves as softmax(beta=tau) for scores far below 0 and as escort(p=tau) far above; not shift-invariant.

    Attributes:
        tau: exponent, >= 1.
        eps: floor of the map, >= 0.
    """

    name: ClassVar[str] = "s_tau"
    formula: ClassVar[str] = "(softplus(s) + eps)^tau"
    sharpness: ClassVar[str] = "tau"

    tau: float | Schedule = parameter(2.0, low=1.0)
    eps: float | Schedule = parameter(EPS, low=0.0, show=False)

    def log_x(self, scores: Tensor) -> Tensor:
        """Return log(softplus(s) + eps)."""
        return log_phi(scores, self.fixed(self.eps))

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype; the plain form where tau is a number or eps has a gradient."""
        if not isinstance(self.tau, Tensor) or isinstance(self.eps, Tensor):
            return PowerHead.unchecked_log_weights(self, scores, dim, mask)
        scores, mask = prepare(scores, mask)
        return unchecked_log_s_tau(scores, self.tau, self.fixed(self.eps), dim, mask)
