"""Key smoothing: a short causal filter (FIR) along the keys of a sequence, given or learned."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

NORMS = ("l1", "l2")


def half_gaussian_taps(taps: int = 7, sigma: float = 2.0, norm: str = "l1") -> Tensor:
    """Filter w_i ~ exp(-i^2 / (2 sigma^2)), i = 0, ..., taps - 1, of norm 1; float64 [taps].

    Args:
        taps: how many.
        sigma: width in positions.
        norm: what is 1. `l1`: the sum, as published; a key that repeats keeps its length, and independent keys shrink
            by the root of the sum of squares. `l2`: the root of the sum of squares; independent keys keep their scale.

    Raises:
        ValueError: taps < 1, a sigma that is not finite and > 0, or another norm.
    """
    if taps < 1:
        raise ValueError(f"fir: taps must be at least 1, got {taps}")
    if not 0.0 < sigma < math.inf:
        raise ValueError(f"fir: sigma must be finite and > 0, got {sigma}")
    if norm not in NORMS:
        raise ValueError(f"fir: norm must be one of {', '.join(NORMS)}, got {norm!r}")
    i = torch.arange(taps, dtype=torch.float64)
    weights = (-i * i / (2.0 * sigma * sigma)).exp()
    return weights / (weights.sum() if norm == "l1" else weights.square().sum().sqrt())


def smooth_keys(keys: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Smoothed keys K~_j = sum_i w_i K_{j-i}, with zeros left of the sequence.

    Args:
        keys: [..., length, dim].
        weights: the filter, [taps], or [..., taps] with axes that broadcast against those of `keys` before the last
            two.
        mask: boolean [..., length], True where a key counts; others are zeros, whatever they hold. Or None.

    Returns:
        Keys in the shape and dtype of `keys`; a key that does not count may hold what lies left of it.
    """
    if mask is not None:
        keys = torch.where(mask[..., None], keys, 0.0)
    weights = weights.to(keys.dtype)
    length = keys.shape[-2]
    total = weights[..., 0, None, None] * keys
    for i in range(1, min(weights.shape[-1], length)):
        total = total + weights[..., i, None, None] * pad(keys[..., : length - i, :], (0, 0, i, 0))
    return total


def convolve_keys(keys: Tensor, weights: Tensor) -> Tensor:
    """Short causal convolution, a filter per channel: K~_jc = sum_i w_ic K_{j-i,c}, with zeros left of the sequence.

    Args:
        keys: [..., length, dim].
        weights: [..., taps, dim] with axes that broadcast against those of `keys` before the last two.

    Returns:
        Keys in the shape of `keys`.
    """
    length = keys.shape[-2]
    total = weights[..., 0, None, :] * keys
    for i in range(1, min(weights.shape[-2], length)):
        total = total + weights[..., i, None, :] * pad(keys[..., : length - i, :], (0, 0, i, 0))
    return total
