"""The normalisations that heads share, in log space, with exact masks: to mass 1, or to a mass that may be less."""

import math
from typing import Any

import torch
from torch import Tensor


def check_scores(scores: Tensor, mask: Tensor | None, *, what: str = "scores", finite: bool = False) -> None:
    """Refuse NaN and +inf scores outside the mask, and -inf too if they must be finite.

    Skipped inside `torch.compile`, where a data-dependent error would break the graph.

    Args:
        scores: floating-point tensor of any shape.
        mask: boolean tensor that broadcasts against `scores`, True where a score counts; or None.
        what: the argument's name, for messages.
        finite: refuse -inf as well.

    Raises:
        ValueError: naming the argument and the share of bad entries, or a wrong dtype.
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"{what} must be a floating-point torch tensor, got {kind}")
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool):
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask must be a boolean torch tensor (True: the entry counts), got {kind}")
    if torch.compiler.is_compiling():
        return
    # False for NaN too.
    good = (scores.abs() if finite else scores) < math.inf
    if mask is not None:
        try:
            good = good | ~mask
        except RuntimeError:
            if mask.device != scores.device:
                raise
            raise ValueError(
                f"mask must broadcast against {what} {tuple(scores.shape)}, got shape {tuple(mask.shape)}"
            ) from None
    if not bool(good.all()):
        share = float((~good).float().mean())
        refused = "NaN or infinite" if finite else "NaN or +inf"
        raise ValueError(f"{what} must not be {refused} where unmasked: {share:.3g} of the entries are")


def prepare(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Bring scores to float32 or float64 and put zeros under the mask, so that nothing there can leak.

    Args:
        scores: floating-point tensor.
        mask: boolean tensor that broadcasts against `scores`, or None.

    Returns:
        The working scores (float64 stays, every other dtype becomes float32) and the mask in their shape.
    """
    working = scores if scores.dtype == torch.float64 else scores.float()
    if mask is None:
        return working, None
    working, mask = torch.broadcast_tensors(working, mask)
    return torch.where(mask, working, 0.0), mask


class _NormaliseLog(torch.autograd.Function):
    """log f - logsumexp(log f) over the unmasked entries of a row."""

    @staticmethod
    def forward(ctx: Any, log_f: Tensor, dim: int, mask: Tensor | None) -> Tensor:
        out, dead = normalise_log_forward(log_f, dim, mask)
        ctx.dim, ctx.mask, ctx.dead = dim, mask, dead
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        return normalise_log_backward(grad, out, ctx.dim, ctx.mask, ctx.dead), None, None


def normalise_log_forward(log_f: Tensor, dim: int, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Log-weights of each row, and which rows are dead (no unmasked entry with f > 0); None for no row, if known.

    A dead row is uniform over its unmasked entries; a row without any is -inf throughout (all weights 0).
    """
    if mask is not None:
        log_f = torch.where(mask, log_f, -torch.inf)
    peak, where = log_f.max(dim, keepdim=True)
    # Looking costs nothing on a CPU and saves half the calls, which are most of the time of a small batch; the numbers
    # are those of what follows. A device would have to be waited for.
    if log_f.device.type == "cpu" and not torch.compiler.is_compiling() and bool((peak > -torch.inf).all()):
        log_f = log_f - peak
        return log_f - torch.log1p(log_f.exp().scatter(dim, where, 0.0).sum(dim, keepdim=True)), None
    zero = log_f.new_zeros(())
    dead = torch.isneginf(peak)
    flat = zero if mask is None else torch.where(mask, zero, -torch.inf)
    log_f = torch.where(dead, flat, log_f - torch.where(dead, zero, peak))
    # One peak is left out of the sum: log1p of the rest keeps log w of a dominant entry relatively accurate.
    rest = log_f.exp().scatter(dim, where, 0.0).sum(dim, keepdim=True)
    at_peak = log_f.gather(dim, where)
    log_sum = torch.where(torch.isneginf(at_peak), rest.log(), torch.log1p(rest))
    return log_f - torch.where(torch.isneginf(log_sum), zero, log_sum), dead


def normalise_log_backward(grad: Tensor, out: Tensor, dim: int, mask: Tensor | None, dead: Tensor | None) -> Tensor:
    """Gradient with respect to log f: g - w sum(g), exactly 0 under the mask and on dead rows.

    Where w > 1/2 it is written (g - sum(g)) + (1 - w) sum(g), with 1 - w = -expm1(log w): the log-likelihood of an
    entry whose weight is nearly 1 has a gradient of order 1 - w, which the plain form rounds away.
    """
    if mask is not None:
        grad = torch.where(mask, grad, 0.0)
    total = grad.sum(dim, keepdim=True)
    weight = out.exp()
    grad = torch.where(weight > 0.5, (grad - total) - total * torch.expm1(out), grad - weight * total)
    return grad if dead is None else torch.where(dead, 0.0, grad)


def normalise_log(log_f: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """Log-weights log f - logsumexp(log f) along `dim`.

    Args:
        log_f: logarithms of the non-negative map, float32 or float64, any shape; -inf is f = 0.
        dim: the axis of the entries.
        mask: boolean tensor of the same shape, True where an entry counts.

    Returns:
        A tensor of the same shape: -inf under the mask and where f = 0. A row without f > 0 is uniform over its
        unmasked entries; a fully masked row is -inf throughout. Gradients are finite everywhere.
    """
    if log_f.shape[dim] == 0:
        return log_f
    return _NormaliseLog.apply(log_f, dim, mask)


def share_log(
    log_f: Tensor, dim: int = -1, mask: Tensor | None = None, log_slack: Tensor | float | None = None
) -> Tensor:
    """Log of f / (slack + sum f), for rows whose mass may be less than 1.

    Args:
        log_f: logarithms of the non-negative map, float32 or float64, any shape; -inf is f = 0.
        dim: the axis of the entries.
        mask: boolean tensor that broadcasts against `log_f`, True where an entry counts.
        log_slack: log of what is added to the sum, with size 1 along `dim`; None adds nothing.

    Returns:
        Log-shares: -inf under the mask, where f = 0, and throughout a row that is 0 / 0. Gradients are finite.
    """
    if log_f.shape[dim] == 0:
        return log_f
    if mask is not None:
        log_f = torch.where(mask, log_f, -torch.inf)
    pivot = log_f.detach().amax(dim, keepdim=True)
    if log_slack is not None:
        log_slack = torch.as_tensor(log_slack, dtype=log_f.dtype, device=log_f.device)
        pivot = torch.maximum(pivot, log_slack.detach())
    pivot = torch.where(torch.isneginf(pivot), 0.0, pivot)
    log_f = log_f - pivot
    total = log_f.exp().sum(dim, keepdim=True)
    if log_slack is not None:
        total = total + (log_slack - pivot).exp()
    return log_f - torch.where(total > 0, total, 1.0).log()


def log_relu(x: Tensor) -> Tensor:
    """Log of max(x, 0): -inf with gradient 0 where x is not positive, or so small that 1 / x might overflow."""
    limits = torch.finfo(x.dtype)
    positive = x > limits.tiny / limits.eps
    return torch.where(positive, torch.where(positive, x, 1.0).log(), -torch.inf)


def scaled_log(exponent: Any, log_x: Tensor) -> Tensor:
    """exponent * log x, where x = 0 stays 0 and gives the exponent no gradient."""
    zero = torch.isneginf(log_x)
    return torch.where(zero, -torch.inf, exponent * torch.where(zero, 0.0, log_x))


def count_entries(scores: Tensor, dim: int, mask: Tensor | None) -> Tensor:
    """How many entries of each row count, in the dtype of `scores`, with size 1 along `dim`."""
    if mask is None:
        mask = torch.ones((), dtype=torch.bool, device=scores.device).expand(scores.shape)
    return mask.sum(dim, keepdim=True).to(scores.dtype)
