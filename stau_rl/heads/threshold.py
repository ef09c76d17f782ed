"""The entmax family: weights max((alpha - 1) s - theta, 0)^(1 / (alpha - 1)), theta such that they sum to 1."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stau_rl.heads.normalise import count_entries

Threshold = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x, alpha, count) -> theta: x [..., entries] has its largest entry at 0 and none below -1."""


class _LogEntmax(torch.autograd.Function):
    """Log-weights, with gradients in closed form: with y = x - theta, w^(1 - alpha) = 1 / y."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: Tensor, threshold: Threshold, mask: Tensor | None) -> Tensor:
        counted = scores if mask is None else torch.where(mask, scores, -torch.inf)
        peak = counted.amax(-1, keepdim=True)
        dead = torch.isneginf(peak)
        # theta >= max x - 1, so that all of the support lies within 1 below the largest entry.
        x = ((alpha - 1.0) * (counted - torch.where(dead, 0.0, peak))).clamp(min=-1.0)
        count = count_entries(x, -1, mask)
        y = x - threshold(x, alpha, count)
        keep = y > 0.0
        if mask is not None:
            keep = keep & mask
        log_w = torch.where(keep, torch.where(keep, y, 1.0).log() / (alpha - 1.0), -torch.inf)
        log_w = log_w - torch.where(dead, 0.0, log_w.exp().sum(-1, keepdim=True).log())
        flat = -count.clamp(min=1.0).log()
        log_w = torch.where(dead, flat if mask is None else torch.where(mask, flat, -torch.inf), log_w)
        ctx.alive = keep & ~dead
        ctx.save_for_backward(alpha, torch.where(ctx.alive, y, 1.0), torch.where(ctx.alive, log_w, 0.0))
        return log_w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        alpha, y, log_w = ctx.saved_tensors
        grad = torch.where(ctx.alive, grad, 0.0)
        # Row sums of w^(2 - alpha) = w / y.
        slope = torch.where(ctx.alive, log_w.exp() / y, 0.0)
        total = slope.sum(-1, keepdim=True)
        total = torch.where(total > 0, total, 1.0)
        pulled = (grad / y).sum(-1, keepdim=True)
        grad_scores = grad / y - slope * (pulled / total)
        grad_alpha = None
        if ctx.needs_input_grad[1]:
            # d log w / d alpha = (1 - q) / (alpha - 1)^2 - (log w + q H) / (alpha - 1), with q = 1 / (y sum w / y) and
            # the entropy H (Correia, Niculae, Martins 2019, section 3).
            q = 1.0 / (y * total)
            entropy = -torch.where(ctx.alive, log_w.exp() * log_w, 0.0).sum(-1, keepdim=True)
            rate = (1.0 - q) / (alpha - 1.0) ** 2 - (log_w + q * entropy) / (alpha - 1.0)
            grad_alpha = (grad * rate).sum_to_size(alpha.shape)
        return grad_scores, grad_alpha, None, None


def log_entmax(scores: Tensor, alpha: Any, threshold: Threshold, dim: int, mask: Tensor | None) -> Tensor:
    """Log-weights of the entmax family, differentiable in the scores and in alpha.

    Args:
        scores: float32 or float64 tensor of any shape, -inf where an entry has no weight.
        alpha: > 1; a number, or a tensor that broadcasts against `scores` with size 1 along `dim`.
        threshold: finds theta.
        dim: the axis of the entries.
        mask: boolean tensor of the shape of `scores`, True where an entry counts.

    Returns:
        Log-weights. A row of -inf alone is uniform; a fully masked row is -inf throughout.
    """
    if scores.shape[dim] == 0:
        return scores
    alpha = torch.as_tensor(alpha, dtype=scores.dtype, device=scores.device)
    shape = torch.broadcast_shapes(alpha.shape, scores.shape)
    alpha = alpha.reshape((1,) * (len(shape) - alpha.ndim) + alpha.shape).movedim(dim, -1)
    scores = scores.expand(shape).movedim(dim, -1)
    mask = None if mask is None else mask.expand(shape).movedim(dim, -1)
    return _LogEntmax.apply(scores, alpha, threshold, mask).movedim(-1, dim)


def largest_first(x: Tensor) -> tuple[Tensor, Tensor]:
    """Entries in falling order, and the numbers 1, 2, ... along the last axis."""
    ordered = x.sort(-1, descending=True).values
    return ordered, torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
