"""The normalisations that heads share, in log space, with exact masks: to mass 1, or to a mass that may be less."""

import math
from typing import Any

import torch
from torch import Tensor

from stau_rl.heads.look import everywhere, seen_finite, share_of


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
    if not everywhere(good):
        share = share_of(~good)
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
    """log f - logsumexp(log f) over the unmasked entries of a row, and which rows are dead."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_f: Tensor, dim: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return normalise_log_forward(log_f, dim, mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, ctx.dim, mask = inputs
        out, dead = output
        ctx.mark_non_differentiable(dead)
        ctx.save_for_backward(out, mask, dead)
        ctx.save_for_forward(out, mask, dead)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        out, mask, dead = ctx.saved_tensors
        return normalise_log_backward(grad, out, ctx.dim, mask, dead), None, None


class _NormaliseLogBothWays(_NormaliseLog):
    """With the forward mode, which `torch.compile` does not trace."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> tuple[Tensor, None]:
        out, mask, dead = ctx.saved_tensors
        return normalise_log_tangent(tangent, out, ctx.dim, mask, dead), None


def normalise_log_forward(log_f: Tensor, dim: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-weights of each row, and which rows are dead (no unmasked entry with f > 0); empty for no row, if known.

    A dead row is uniform over its unmasked entries; a row without any is -inf throughout (all weights 0).
    """
    if mask is not None:
        log_f = torch.where(mask, log_f, -torch.inf)
    peak, where = log_f.max(dim, keepdim=True)
    # Looking costs nothing on a CPU and saves half the calls, which are most of the time of a small batch; the numbers
    # are those of what follows. A device would have to be waited for.
    if log_f.device.type == "cpu" and not torch.compiler.is_compiling() and everywhere(peak > -torch.inf):
        log_f = log_f - peak
        none = torch.empty(0, dtype=torch.bool, device=log_f.device)
        return log_f - torch.log1p(log_f.exp().scatter(dim, where, 0.0).sum(dim, keepdim=True)), none
    zero = log_f.new_zeros(())
    dead = torch.isneginf(peak)
    flat = zero if mask is None else torch.where(mask, zero, -torch.inf)
    log_f = torch.where(dead, flat, log_f - torch.where(dead, zero, peak))
    # One peak is left out of the sum: log1p of the rest keeps log w of a dominant entry relatively accurate.
    rest = log_f.exp().scatter(dim, where, 0.0).sum(dim, keepdim=True)
    at_peak = log_f.gather(dim, where)
    log_sum = torch.where(torch.isneginf(at_peak), rest.log(), torch.log1p(rest))
    return log_f - torch.where(torch.isneginf(log_sum), zero, log_sum), dead


def normalise_log_backward(grad: Tensor, out: Tensor, dim: int, mask: Tensor | None, dead: Tensor) -> Tensor:
    """Gradient with respect to log f: g - w sum(g), exactly 0 under the mask and on dead rows.

    Where w > 1/2 it is written (g - sum(g)) + (1 - w) sum(g), with 1 - w = -expm1(log w): the log-likelihood of an
    entry whose weight is nearly 1 has a gradient of order 1 - w, which the plain form rounds away.
    """
    if mask is not None:
        grad = torch.where(mask, grad, 0.0)
    total = grad.sum(dim, keepdim=True)
    weight = out.exp()
    grad = torch.where(weight > 0.5, (grad - total) - total * torch.expm1(out), grad - weight * total)
    return torch.where(dead, 0.0, grad) if dead.numel() else grad


def normalise_log_tangent(tangent: Tensor, out: Tensor, dim: int, mask: Tensor | None, dead: Tensor) -> Tensor:
    """Change of the log-weights with log f: t - sum(w t), exactly 0 under the mask, where f = 0 and on dead rows."""
    tangent = torch.where(out.isneginf() if mask is None else out.isneginf() | ~mask, 0.0, tangent)
    tangent = torch.where(out.isneginf(), 0.0, tangent - (out.exp() * tangent).sum(dim, keepdim=True))
    return torch.where(dead, 0.0, tangent) if dead.numel() else tangent


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
    run = _NormaliseLog if torch.compiler.is_compiling() else _NormaliseLogBothWays
    out: Tensor = run.apply(log_f, dim - log_f.ndim if dim >= 0 else dim, mask)[0]
    return out


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


def representable(value: Any, dtype: torch.dtype) -> Any:
    """A number, brought into the range that the dtype holds; a bound tensor as it is."""
    largest = torch.finfo(dtype).max
    return value if isinstance(value, Tensor) else min(max(value, -largest), largest)


def log_parameter(value: Any, like: Tensor) -> Tensor:
    """Log of a parameter >= 0, a number or a bound tensor, in the dtype of `like`; -inf without a gradient at 0."""
    if not isinstance(value, Tensor):
        # In float64, as float32 would round the number itself to 0 or inf.
        value = torch.tensor(math.log(value) if value > 0 else -math.inf, dtype=torch.float64)
        return value.to(like.device, like.dtype)
    return log_relu(value.to(like.device, like.dtype))


def scaled_log(exponent: Any, log_x: Tensor) -> Tensor:
    """exponent * log x, where x = 0 stays 0 (at any exponent) and gives the exponent no gradient."""
    exponent = representable(exponent, log_x.dtype)
    if not isinstance(exponent, Tensor) and exponent > 0:
        return exponent * log_x
    zero = torch.isneginf(log_x)
    return torch.where(zero, -torch.inf, exponent * torch.where(zero, 0.0, log_x))


def power_log(
    exponent: Any, log_x: Tensor, dim: int, mask: Tensor | None, *, above: float = -math.inf
) -> tuple[Tensor, Tensor | float]:
    """exponent * (log x - shift), and the shift: a constant per row that keeps the largest product from overflowing.

    It is 0 wherever that product is finite.

    Args:
        exponent: > 0; a number, or a tensor of size 1 along `dim`.
        log_x: logarithms, float32 or float64; -inf is x = 0.
        dim: the axis of the entries.
        mask: boolean tensor of the shape of `log_x`, True where an entry counts; or None.
        above: smallest shift of a row that has one.

    Returns:
        The products, and the shift with size 1 along `dim`, or 0.0.
    """
    log_f = scaled_log(exponent, log_x)
    if seen_finite(log_f) or log_x.shape[dim] == 0:
        return log_f, 0.0
    with torch.no_grad():
        hidden = -torch.inf
        peak_f, peak = (
            (one if mask is None else torch.where(mask, one, hidden)).amax(dim, keepdim=True) for one in (log_f, log_x)
        )
        shift = torch.where(peak_f.isinf() & ~peak.isinf(), peak.clamp(min=above), 0.0)
    return scaled_log(exponent, log_x - shift), shift


def count_entries(scores: Tensor, dim: int, mask: Tensor | None) -> Tensor:
    """How many entries of each row count, in the dtype of `scores`, with size 1 along `dim`."""
    if mask is None:
        mask = torch.ones((), dtype=torch.bool, device=scores.device).expand(scores.shape)
    return mask.sum(dim, keepdim=True).to(scores.dtype)
