"""log(softplus(s) + eps): stable in value, analytic in slope."""

import math
from typing import Any

import torch
from torch import Tensor

from stau_rl.heads.normalise import log_parameter

SMALL = -15.0
# log(softplus(s) + eps) is taken directly from this eps on: the sum is then relatively accurate in float32 too, though
# softplus underflows below -103.
SMALLEST_SUM = 1e-30


def softplus(scores: Tensor) -> Tensor:
    """Softplus log1p(exp(s)), s itself above 50, relatively accurate on both sides."""
    return torch.nn.functional.softplus(scores, 1.0, 50.0)


def log_softplus(scores: Tensor) -> Tensor:
    """Log of softplus, float32 or float64: s - exp(s)/2 below -15, its logarithm above; not for autograd.

    The first form's error is exp(2 s) / 24, below 1e-14 where it is used. -inf gives -inf.
    """
    low = scores - 0.5 * scores.clamp(max=SMALL).exp()
    return torch.where(scores < SMALL, low, softplus(scores).log())


def log_phi_forward(scores: Tensor, eps: float) -> Tensor:
    """log(softplus(s) + eps) = logaddexp(log softplus(s), log eps); not for autograd."""
    if eps >= SMALLEST_SUM:
        return softplus(scores).add(eps).log()
    value = log_softplus(scores)
    if eps == 0.0:
        return value
    return torch.logaddexp(value, value.new_full((), math.log(eps)))


def log_phi_slope(scores: Tensor, log_phi: Tensor) -> Tensor:
    """d log(softplus(s) + eps) / ds = sigmoid(s) / (softplus(s) + eps), in log space; 0 at -inf."""
    lowest = torch.isneginf(scores)
    # Zeros there first: -inf less -inf would be NaN, in the next derivative too.
    scores, log_phi = torch.where(lowest, 0.0, scores), torch.where(lowest, 0.0, log_phi)
    return torch.where(lowest, 0.0, (torch.nn.functional.logsigmoid(scores) - log_phi).exp())


class _LogPhi(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, eps: float) -> Tensor:
        return log_phi_forward(scores, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scores, ctx.eps = inputs
        ctx.save_for_backward(scores)
        ctx.save_for_forward(scores)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        return grad * log_phi_slope(scores, log_phi(scores, ctx.eps)), None


class _LogPhiBothWays(_LogPhi):
    """With the forward mode, which `torch.compile` does not trace."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        (scores,) = ctx.saved_tensors
        return tangent * log_phi_slope(scores, log_phi(scores, ctx.eps))


def _log_phi_of_tensor(scores: Tensor, eps: Tensor) -> Tensor:
    """The same for a bound eps, to which gradients go: 1 / (softplus(s) + eps)."""
    pair = torch.broadcast_tensors(log_phi(scores, 0.0), log_parameter(eps, scores))
    top = torch.maximum(*pair).detach()
    top = torch.where(top.isneginf(), 0.0, top)
    total = sum((one - top).exp() for one in pair)
    return top + torch.where(total > 0, torch.where(total > 0, total, 1.0).log(), -torch.inf)


def log_phi(scores: Tensor, eps: float | Tensor = 1e-8) -> Tensor:
    """log(softplus(s) + eps), elementwise, differentiable any number of times, both ways.

    Args:
        scores: float32 or float64 tensor; -inf is legal (log eps, or -inf where eps = 0).
        eps: the floor of the map, >= 0; a number, or a tensor that broadcasts against `scores`, which has a gradient.

    Returns:
        A tensor of the same shape and dtype.
    """
    if isinstance(eps, Tensor):
        return _log_phi_of_tensor(scores, eps)
    run = _LogPhi if torch.compiler.is_compiling() else _LogPhiBothWays
    out: Tensor = run.apply(scores, eps)
    return out
