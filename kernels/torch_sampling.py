"""Draws on torch tensors that the reference loop and its policies share."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stau_rl.kernels.philox import open_uniform


def inverse_cdf(weights: Tensor, uniforms: Tensor) -> Tensor:
    """First arm k with cdf_k > u total.

    Args:
        weights: non-negative, [arms, instances].
        uniforms: in [0, 1), [instances].

    Returns:
        int64 [instances]; never an arm of weight 0.
    """
    cdf = weights.cumsum(0)
    return (cdf <= uniforms.to(cdf.dtype) * cdf[-1]).sum(0)


def beta_draws(a: Tensor, b: Tensor, words: Callable[[int, Tensor], tuple[Any, ...]]) -> Tensor:
    """Draws from Beta(a, b) by rejection from a log-logistic envelope.

    Source: Cheng, "Generating beta variates with nonintegral shape parameters", CACM 21, 1978, algorithm BB, whose
    envelope also holds where the smaller shape is 1.

    Args:
        a: first shape, >= 1, float64 of any shape.
        b: second shape, >= 1, likewise.
        words: gives the random words of attempt j for the entries at flat positions `where`, int64 [len(where)].

    Returns:
        float64 draws in (0, 1), in the shape of `a`.
    """
    draws = torch.empty_like(a).flatten()
    where = torch.arange(draws.numel(), device=a.device)
    first, second = a.flatten(), b.flatten()
    attempt = 0
    while where.numel():
        value, accepted = _beta_attempt(first, second, words(attempt, where))
        draws[where[accepted]] = value[accepted]
        where, first, second = where[~accepted], first[~accepted], second[~accepted]
        attempt += 1
    return draws.view_as(a)


def _beta_attempt(a: Tensor, b: Tensor, words: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    small, large, total = torch.minimum(a, b), torch.maximum(a, b), a + b
    rate = torch.where(small == 1.0, 1.0, ((total - 2.0) / (2.0 * a * b - total).clamp(min=1e-300)).sqrt())
    u1, u2 = open_uniform(words[0]), open_uniform(words[1])
    v = rate * (u1.log() - torch.log1p(-u1))
    w = small * v.exp()
    r = (small + 1.0 / rate) * v - math.log(4.0)
    accepted = r + total * (total / (large + w)).log() >= (u1 * u1 * u2).log()
    return torch.where(small == a, w, large) / (large + w), accepted
