"""One attention step with any normaliser: scores, key smoothing, weights, mass and output."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stau_rl.agents.attention.key_smoothing import smooth_keys
from stau_rl.heads import Head

DEAD = 1e-6
"""A row of less mass is dead: it gives nothing, and learns nothing."""
_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Attended:
    """What attention gives.

    Attributes:
        output: mixed values [..., queries, dim].
        weights: [..., queries, keys].
        mass: what the weights of each row sum to, [..., queries].
        scores: what was normalised, [..., queries, keys].
        mask: True where a query may look at a key, broadcasting against the scores.
    """

    output: Tensor
    weights: Tensor
    mass: Tensor
    scores: Tensor
    mask: Tensor


def attention_scores(queries: Tensor, keys: Tensor, mask: Tensor, kind: str = "dot") -> Tensor:
    """Scores q.k / sqrt(d), or log d log n cos(q, k) with n keys in the row; [..., queries, keys]."""
    dim = queries.shape[-1]
    if kind == "dot":
        return (queries * dim**-0.5) @ keys.transpose(-1, -2)
    n = mask.sum(-1, keepdim=True).clamp(min=1).to(queries.dtype)
    unit = torch.nn.functional.normalize
    return math.log(dim) * n.log() * (unit(queries, dim=-1) @ unit(keys, dim=-1).transpose(-1, -2))


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    head: Head,
    mask: Tensor,
    *,
    fir: Tensor | None = None,
    scores: str = "dot",
    output: str = "plain",
) -> Attended:
    """One attention step with any normaliser.

    Args:
        queries: [..., queries, dim].
        keys: [..., keys, dim].
        values: [..., keys, dim].
        head: the normaliser; parameters may be bound tensors.
        mask: boolean, True where a query may look at a key; broadcasts against [..., queries, keys]. A key that no
            query may look at is a zero to the smoothing and leaks nothing, whatever it holds; nor does a query that
            may look at no key.
        fir: weights of the key smoothing, as in `smooth_keys`; or None.
        scores: `dot` or `cosine`.
        output: `plain` or `rms`.

    Returns:
        Output, weights, mass and scores; a row without a key has output, weights and mass 0.
    """
    seen = mask.any(-2)
    keys, values = (torch.where(seen[..., None], part, 0.0) for part in (keys, values))
    # The gradient of a key is a sum over queries: 0 times a NaN in a query that may look nowhere would spoil it.
    queries = torch.where(mask.any(-1)[..., None], queries, 0.0)
    # Dot products are linear in the keys: with few queries it is less work to smooth the scores along the keys.
    late = fir is not None and scores == "dot" and queries.shape[-2] < queries.shape[-1]
    if fir is not None and not late:
        keys = smooth_keys(keys, fir)
    found = attention_scores(queries, keys, mask, scores)
    if fir is not None and late:
        found = smooth_keys(found.transpose(-1, -2), fir).transpose(-1, -2)
    weights = head.unchecked_log_weights(found, -1, mask).exp().to(values.dtype)
    mixed = weights @ values
    if output == "rms":
        mixed = root_mean_square_one(mixed)
    return Attended(mixed, weights, weights.sum(-1), found, mask)


def root_mean_square_one(x: Tensor) -> Tensor:
    """RMSNorm without a gain: x / sqrt(mean x^2 + 1e-6) along the last axis, in the shape of `x`.

    Source: Zhang and Sennrich, "Root mean square layer normalization", 2019.
    """
    return x * (x.square().mean(-1, keepdim=True) + _NORM_EPS).rsqrt()
