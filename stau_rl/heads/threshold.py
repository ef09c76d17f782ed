"""The entmax family: weights max((alpha - 1) s - theta, 0)^(1 / (alpha - 1)), theta such that they sum to 1."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stau_rl.heads.normalise import count_entries, representable

LogMap = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(s, alpha, count) -> log weights of rows s [..., entries] whose largest entry is 0, -inf outside the support; they
may be off by a constant per row. Masked entries are -inf; count is the number of the others."""


class _LogEntmax(torch.autograd.Function):
    """Log-weights, with derivatives in closed form: with y = (alpha - 1) s - theta, w^(1 - alpha) = 1 / y."""

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, alpha: Tensor, log_map: LogMap, mask: Tensor | None) -> Tensor:
        counted, peak = _counted(scores, mask)
        dead = torch.isneginf(peak)
        count = count_entries(scores, -1, mask)
        log_w = log_map(counted - torch.where(dead, 0.0, peak), alpha, count)
        log_w = torch.where(counted.isneginf(), -torch.inf, log_w)
        log_w = log_w - torch.where(dead, 0.0, log_w.exp().sum(-1, keepdim=True).log())
        flat = -count.clamp(min=1.0).log()
        return torch.where(dead, flat if mask is None else torch.where(mask, flat, -torch.inf), log_w)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scores, alpha, _, mask = inputs
        ctx.save_for_backward(scores, alpha, mask, output)
        ctx.save_for_forward(scores, alpha, mask, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, alpha, mask, out = ctx.saved_tensors
        alive, log_w, log_share, inverse = _slopes(scores, alpha, mask, out)
        grad = torch.where(alive, grad, 0.0)
        pulled = grad * inverse
        grad_scores = (pulled - log_share.exp() * pulled.sum(-1, keepdim=True)).sum_to_size(scores.shape)
        grad_alpha = None
        if ctx.needs_input_grad[1]:
            grad_alpha = (grad * _rate(alpha, alive, log_w, log_share)).sum_to_size(alpha.shape)
        return grad_scores, grad_alpha, None, None


class _LogEntmaxBothWays(_LogEntmax):
    """With the forward mode, which `torch.compile` does not trace."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, alpha_tangent: Tensor | None, *_: Any) -> Tensor:
        scores, alpha, mask, out = ctx.saved_tensors
        alive, log_w, log_share, inverse = _slopes(scores, alpha, mask, out)
        change = torch.zeros_like(out)
        if tangent is not None:
            change = inverse * (tangent - (log_share.exp() * tangent).sum(-1, keepdim=True))
        if alpha_tangent is not None:
            change = change + _rate(alpha, alive, log_w, log_share) * alpha_tangent
        return torch.where(alive, change, 0.0)


def _counted(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Scores with -inf under the mask, and the largest of each row."""
    counted = scores if mask is None else torch.where(mask, scores, -torch.inf)
    return counted, counted.amax(-1, keepdim=True)


def _slopes(scores: Tensor, alpha: Tensor, mask: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the derivatives are made of, from the log-weights alone, so that they have derivatives themselves.

    Returns:
        Which entries have a derivative: those of the support, in rows that are not dead; their log-weights, else 0;
        the logs of (w / y) / sum(w / y), with w / y = w^(2 - alpha), else -inf; 1 / y, 0 where it might overflow.
    """
    alive = ~out.isneginf() & ~torch.isneginf(_counted(scores, mask)[1])
    limits = torch.finfo(out.dtype)
    log_w = torch.where(alive, out, 0.0)
    power = torch.where(alive, ((2.0 - alpha) * log_w).clamp(max=limits.max / 8), -torch.inf)
    top = power.detach().amax(-1, keepdim=True)
    power = power - torch.where(torch.isneginf(top), 0.0, top)
    total = power.exp().sum(-1, keepdim=True)
    log_share = power - torch.where(total > 0, total, 1.0).log()
    log_y = (alpha - 1.0) * log_w
    steep = alive & (log_y > math.log(limits.tiny / limits.eps))
    return alive, log_w, log_share, torch.where(steep, torch.where(steep, -log_y, 0.0).exp(), 0.0)


def _rate(alpha: Tensor, alive: Tensor, log_w: Tensor, log_share: Tensor) -> Tensor:
    """Change of the log-weights with alpha, (1 - q) / (alpha - 1)^2 - (log w + q H) / (alpha - 1).

    q = (1 / y) / sum(w / y), H the entropy of the row (Correia, Niculae, Martins 2019, section 3).
    """
    q = torch.where(alive, torch.where(alive, log_share, 0.0) - log_w, 0.0).exp()
    entropy = -(torch.where(alive, log_w.exp(), 0.0) * log_w).sum(-1, keepdim=True)
    return torch.where(alive, ((1.0 - q) / (alpha - 1.0) - (log_w + q * entropy)) / (alpha - 1.0), 0.0)


def log_entmax(scores: Tensor, alpha: Any, log_map: LogMap, dim: int, mask: Tensor | None) -> Tensor:
    """Log-weights of the entmax family, differentiable in the scores and in alpha any number of times, both ways.

    Args:
        scores: float32 or float64 tensor of any shape, -inf where an entry has no weight.
        alpha: > 1; a number, or a tensor that broadcasts against `scores` with size 1 along `dim`.
        log_map: finds the log-weights.
        dim: the axis of the entries.
        mask: boolean tensor of the shape of `scores`, True where an entry counts.

    Returns:
        Log-weights. A row of -inf alone is uniform; a fully masked row is -inf throughout.
    """
    if scores.shape[dim] == 0:
        return scores
    if not isinstance(alpha, Tensor):
        least = 1.0 + torch.finfo(scores.dtype).eps
        alpha = torch.tensor(max(representable(alpha, scores.dtype), least), dtype=scores.dtype)
    alpha = alpha.to(scores.device, scores.dtype)
    shape = torch.broadcast_shapes(alpha.shape, scores.shape)
    alpha = alpha.reshape((1,) * (len(shape) - alpha.ndim) + alpha.shape).movedim(dim, -1)
    scores = scores.expand(shape).movedim(dim, -1)
    mask = None if mask is None else mask.expand(shape).movedim(dim, -1)
    run = _LogEntmax if torch.compiler.is_compiling() else _LogEntmaxBothWays
    out: Tensor = run.apply(scores, alpha, log_map, mask)
    return out.movedim(-1, dim)


def within_one(s: Tensor, alpha: Tensor) -> Tensor:
    """x = (alpha - 1) s, no lower than -1: theta >= max x - 1, so that lower entries have no weight."""
    return ((alpha - 1.0) * s).clamp(min=-1.0)


def log_above(y: Tensor, alpha: Tensor) -> Tensor:
    """Log of max(y, 0)^(1 / (alpha - 1))."""
    keep = y > 0.0
    return torch.where(keep, torch.where(keep, y, 1.0).log() / (alpha - 1.0), -torch.inf)


def largest_first(x: Tensor) -> tuple[Tensor, Tensor]:
    """Entries in falling order, and the numbers 1, 2, ... along the last axis."""
    ordered = x.sort(-1, descending=True).values
    return ordered, torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
