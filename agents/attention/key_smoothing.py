"""Key smoothing: a short causal filter (FIR) along the keys of a sequence."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad


def half_gaussian_taps(taps: int = 7, sigma: float = 2.0) -> Tensor:
    """Filter w_i ~ exp(-i^2 / (2 sigma^2)), i = 0, ..., taps - 1, summing to 1; float64 [taps].

    Raises:
        ValueError: taps < 1, or a sigma that is not finite and > 0.
    """
    if taps < 1:
        raise ValueError(f"fir: taps must be at least 1, got {taps}")
    if not 0.0 < sigma < math.inf:
        raise ValueError(f"fir: sigma must be finite and > 0, got {sigma}")
    i = torch.arange(taps, dtype=torch.float64)
    weights = (-i * i / (2.0 * sigma * sigma)).exp()
    return weights / weights.sum()


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
