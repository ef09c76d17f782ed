"""log(softplus(s) + eps): stable in value, analytic in slope."""

import math
from typing import Any

import torch
from torch import Tensor

SMALL = -15.0


def softplus(scores: Tensor) -> Tensor:
    """Softplus max(s, 0) + log1p(exp(-|s|)), relatively accurate on both sides; not for autograd."""
    return scores.clamp(min=0.0) + torch.log1p(torch.exp(-scores.abs()))


def log_softplus(scores: Tensor) -> Tensor:
    """Log of softplus, float32 or float64: s - exp(s)/2 below -15, log(max(s, 0) + log1p(exp(-|s|))) above.

    The first form's error is exp(2 s) / 24, below 1e-14 where it is used. -inf gives -inf.
    """
    low = scores - 0.5 * scores.clamp(max=SMALL).exp()
    return torch.where(scores < SMALL, low, softplus(scores).log())


def log_phi_forward(scores: Tensor, eps: float) -> Tensor:
    """log(softplus(s) + eps) = logaddexp(log softplus(s), log eps)."""
    value = log_softplus(scores)
    if eps == 0.0:
        return value
    return torch.logaddexp(value, value.new_full((), math.log(eps)))


def log_phi_slope(scores: Tensor, log_phi: Tensor) -> Tensor:
    """d log(softplus(s) + eps) / ds = sigmoid(s) / (softplus(s) + eps), in log space; 0 at -inf."""
    slope = (torch.nn.functional.logsigmoid(scores) - log_phi).exp()
    return torch.where(torch.isneginf(scores), 0.0, slope)


class _LogPhi(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, eps: float) -> Tensor:
        ctx.eps = eps
        ctx.save_for_backward(scores)
        return log_phi_forward(scores, eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        return grad * log_phi_slope(scores, log_phi(scores, ctx.eps)), None


def log_phi(scores: Tensor, eps: float = 1e-8) -> Tensor:
    """log(softplus(s) + eps), elementwise, differentiable twice.

    Args:
        scores: float32 or float64 tensor; -inf is legal (log eps, or -inf where eps = 0).
        eps: the floor of the map, >= 0.

    Returns:
        A tensor of the same shape and dtype.
    """
    return _LogPhi.apply(scores, eps)
