"""The map from an unbounded number, which an optimiser moves, to a legal value of a head's parameter.

low + softplus(raw)                 a lower bound, as in tau = 1 + softplus(log_tau)
high - softplus(raw)                an upper bound
low + (high - low) sigmoid(raw)     both
raw                                 none
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from stau_rl.heads.parameter import Range

# expm1 of more than this is exp, whose logarithm is the number itself; of more than 709 it overflows.
PLAIN_ABOVE = 40.0


def to_legal(raw: Tensor, limits: Range) -> Tensor:
    """Legal values of unbounded ones.

    A bound that is not legal itself is not reached, however small softplus(raw) is in the dtype.

    Args:
        raw: float32 or float64 tensor of any shape.
        limits: the parameter's range.

    Returns:
        Values in the shape and dtype of `raw`, differentiable in it.
    """
    low, high = limits.lower, limits.upper
    if low is not None and high is not None:
        value = low + (high - low) * raw.sigmoid()
    elif low is not None:
        value = low + softplus(raw)
    else:
        value = raw if high is None else high - softplus(raw)
    if limits.above is None and limits.below is None:
        return value
    least, most = (_beside(bound, way, raw.dtype) for bound, way in ((limits.above, 1.0), (limits.below, -1.0)))
    # The slope stays that of the map, so that the number can come back.
    return value + (value.clamp(least, most) - value).detach()


def legal_slope(raw: Tensor, limits: Range) -> Tensor:
    """Derivative of `to_legal` at `raw`, in its shape and dtype."""
    if limits.lower is not None and limits.upper is not None:
        share = raw.sigmoid()
        return (limits.upper - limits.lower) * share * (1.0 - share)
    if limits.lower is None and limits.upper is None:
        return torch.ones_like(raw)
    return raw.sigmoid() if limits.upper is None else -raw.sigmoid()


def to_raw(owner: str, name: str, value: float, limits: Range) -> float:
    """The unbounded number that stands for a value; inverse of `to_legal`.

    Args:
        owner: whose parameter it is, for messages.
        name: the parameter's name.
        value: where it starts, inside its range.
        limits: the parameter's range.

    Raises:
        ValueError: the value lies on or beyond a bound, where it could not be learned, or beyond float32.
    """
    low, high = limits.lower, limits.upper
    if (low is not None and value <= low) or (high is not None and value >= high):
        inside = " and ".join(f"{sign} {end:g}" for sign, end in ((">", low), ("<", high)) if end is not None)
        raise ValueError(f"{owner}: a learned {name} must start inside its range, {inside}, got {value!r}")
    if not abs(value) <= (largest := torch.finfo(torch.float32).max):
        raise ValueError(f"{owner}: a learned {name} must start within +-{largest:.3g}, got {value!r}")
    if low is not None and high is not None:
        share = (value - low) / (high - low)
        return math.log(share) - math.log1p(-share)
    if low is None and high is None:
        return float(value)
    excess = value - low if low is not None else high - value  # type: ignore[operator]
    return math.log(math.expm1(excess)) if excess < PLAIN_ABOVE else excess


def _beside(bound: float | None, way: float, dtype: torch.dtype) -> float | None:
    """The number next to a bound on one side, in a dtype; beside 0, one whose inverse and logarithm are finite."""
    if bound is None:
        return None
    limits = torch.finfo(dtype)
    next_one = torch.nextafter(torch.tensor(bound, dtype=dtype), torch.tensor(way * math.inf, dtype=dtype))
    step = max(abs(float(next_one) - bound), 2.0 * limits.tiny / limits.eps)
    return bound + way * step
