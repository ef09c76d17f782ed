"""Learned parameters of normalisers: unconstrained numbers and the legal values they stand for."""

import math

from torch import Tensor
from torch.nn.functional import softplus

from stau_rl.heads.parameter import Range


def to_legal(raw: Tensor, limits: Range) -> Tensor:
    """Legal values of unconstrained ones: low + softplus(raw) (as tau = 1 + softplus(log_tau)), above + exp(raw), raw.

    Args:
        raw: tensor of any shape.
        limits: the parameter's range, without an upper bound.
    """
    if limits.low is not None:
        return limits.low + softplus(raw)
    return raw if limits.above is None else limits.above + raw.exp()


def to_raw(name: str, value: float, limits: Range) -> float:
    """The unconstrained number that stands for a value; inverse of `to_legal`.

    Raises:
        ValueError: the value lies on its bound, where it could not be learned, or the parameter has an upper bound.
    """
    if limits.high is not None or limits.below is not None:
        raise ValueError(
            f"cannot learn {name}, which must be {limits}: only parameters without upper bound are learned"
        )
    bound = limits.above if limits.low is None else limits.low
    if bound is None:
        return value
    if value <= bound:
        raise ValueError(f"to be learned, {name} must start above {bound:g}, got {value:g}")
    gap = value - bound
    if limits.low is None:
        return math.log(gap)
    return gap + math.log(-math.expm1(-gap))
