"""Correlations of pairs that come in clusters, such as the heads of several models, and what a narrow range does.

A bootstrap that draws whole clusters is honest about pairs that are alike within one; Fisher's interval takes every
pair for an independent one and stands beside it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from stau_rl.statistics.bootstrap import RESAMPLES, least_units, resample_counts
from stau_rl.statistics.robust import Estimate

Statistic = Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


def pearson(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pearson's correlation of weighted pairs; nan where one of the two does not vary.

    Args:
        x: float64 [n].
        y: float64 [n].
        weights: float64 [b, n], each row one weighting of the pairs.

    Returns:
        float64 [b].
    """
    return _correlation(np.broadcast_to(x, weights.shape), np.broadcast_to(y, weights.shape), weights)


def spearman(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spearman's rank correlation of weighted pairs; equal values share their middle rank. Shapes as in `pearson`."""
    return _correlation(_ranks(x, weights), _ranks(y, weights), weights)


def slope(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least-squares slope of y on x of weighted pairs; nan where x does not vary. Shapes as in `pearson`."""
    a, b = (_centred(np.broadcast_to(part, weights.shape), weights) for part in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((weights * a * b).sum(1) / (weights * a * a).sum(1))


def clustered_interval(
    statistic: Statistic,
    x: ArrayLike,
    y: ArrayLike,
    clusters: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Estimate:
    """A statistic of pairs with a percentile bootstrap interval that draws whole clusters.

    Args:
        statistic: `pearson`, `spearman`, `slope` or another of their form.
        x: float64 [n].
        y: float64 [n].
        clusters: label of the cluster of each pair, [n].
        seed: non-negative seed of the generator owned by this call.
        resamples: number of resamples, >= 1.
        confidence: coverage, in (0, 1).

    Returns:
        The statistic; its interval is nan for fewer clusters than `stau_rl.statistics.bootstrap.least_units`, 6 at
        95 %, and leaves out resamples of which there is none.

    Raises:
        ValueError: the three differ in length, or there are no pairs.

    Source: Efron and Tibshirani, "An introduction to the bootstrap", 1993; Field and Welsh, "Bootstrapping clustered
        data", JRSS B 2007.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    labels: NDArray[Any] = np.asarray(clusters)
    if first.ndim != 1 or not first.size or first.shape != second.shape or first.shape != labels.shape:
        raise ValueError(
            f"x, y and clusters must be vectors of one length >= 1, got {first.shape}, {second.shape}, {labels.shape}"
        )
    names, place = np.unique(labels, return_inverse=True)
    value = float(statistic(first, second, np.ones((1, first.size)))[0])
    if names.size < least_units(confidence):
        return Estimate(value, np.nan, np.nan)
    drawn = np.concatenate(
        [statistic(first, second, counts[:, place]) for counts in resample_counts(names.size, resamples, seed)]
    )
    if not np.isfinite(drawn).any():
        return Estimate(value, np.nan, np.nan)
    low, high = np.nanquantile(drawn, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Estimate(value, float(low), float(high))


def fisher_interval(r: float, n: int, confidence: float = 0.95) -> Estimate:
    """Fisher's interval of a correlation of n independent pairs: tanh(artanh r -/+ z / sqrt(n - 3)); nan for n < 4.

    Raises:
        ValueError: r is outside [-1, 1].

    Source: Fisher, "On the probable error of a coefficient of correlation", Metron 1921.
    """
    if not -1 <= r <= 1:
        raise ValueError(f"r must lie in [-1, 1], got {r}")
    if n < 4:
        return Estimate(r, np.nan, np.nan)
    with np.errstate(divide="ignore"):
        middle, half = np.arctanh(r), special.ndtri(0.5 + confidence / 2) / np.sqrt(n - 3)
    return Estimate(r, float(np.tanh(middle - half)), float(np.tanh(middle + half)))


def restricted(r: float, ratio: float) -> float:
    """What a correlation r becomes where the first variable has `ratio` times its standard deviation.

    r u / sqrt(1 - r^2 + r^2 u^2), for a straight regression with an even spread around it.

    Source: Thorndike, "Personnel selection", 1949, case II.
    """
    return float(r * ratio / np.sqrt(1 - r * r + r * r * ratio * ratio))


def _centred(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(values - (weights * values).sum(1, keepdims=True) / weights.sum(1, keepdims=True))


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    a, b = _centred(x, weights), _centred(y, weights)
    across, own, other = ((weights * part).sum(1) for part in (a * b, a * a, b * b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.clip(across / np.sqrt(own * other), -1.0, 1.0))


def _ranks(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Middle ranks, less 1/2, of values that stand there `weights` times, [b, n]."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=np.nan) != 0)
    each = np.add.reduceat(weights[:, order], starts, axis=1)
    middle = each.cumsum(1) - each / 2
    found = np.empty_like(weights)
    found[:, order] = np.repeat(middle, np.diff(starts, append=values.size), axis=1)
    return found
