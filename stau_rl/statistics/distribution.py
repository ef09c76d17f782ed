"""The distribution of a run's regret: its empirical cdf with a band, and intervals of its quantiles.

Both are free of any assumption about the shape of the distribution and hold at every sample size.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from stau_rl.statistics.means import require_finite_values


@dataclass(frozen=True, slots=True)
class Ecdf:
    """Empirical distribution function with a simultaneous band; all arrays float64 [distinct values].

    Attributes:
        values: the distinct values, ascending.
        share: share of the sample at or below each value.
        low: lower edge of the band, at least 0.
        high: upper edge of the band, at most 1.
    """

    values: NDArray[np.float64]
    share: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def ecdf(values: ArrayLike, confidence: float = 0.95) -> Ecdf:
    """Empirical cdf with the band of Dvoretzky, Kiefer and Wolfowitz, F_n -/+ sqrt(ln(2 / alpha) / (2 n)).

    The whole cdf lies inside the band with probability `confidence` or more.

    Args:
        values: float64 [n], n >= 1, independent replicates.
        confidence: coverage, in (0, 1).

    Raises:
        ValueError: `values` is empty, not a vector or not finite, or `confidence` is outside (0, 1).

    Source: Massart, "The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality", Ann. Probab. 1990.
    """
    x = _vector(values, confidence)
    distinct, counts = np.unique(x, return_counts=True)
    share = np.cumsum(counts) / x.size
    half = math.sqrt(math.log(2 / (1 - confidence)) / (2 * x.size))
    return Ecdf(distinct, share, np.maximum(share - half, 0.0), np.minimum(share + half, 1.0))


def quantile_interval(values: ArrayLike, probability: float, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of a quantile from two order statistics, x_(l) and x_(u).

    The number of values below the quantile is binomial, so x_(l) <= q <= x_(u) has probability
    P(l <= Bin(n, p) < u) or more, whatever the distribution. Each tail gets at most (1 - confidence) / 2.

    Args:
        values: float64 [n], n >= 1, independent replicates; infinite ones count as the largest or smallest.
        probability: level p of the quantile, in (0, 1).
        confidence: coverage, in (0, 1).

    Returns:
        (low, high); -inf or inf where the sample is too small to bound that side.

    Raises:
        ValueError: an argument is out of range.

    Source: David and Nagaraja, "Order Statistics", 3rd edition, section 7.1.
    """
    x = np.sort(_vector(values, confidence, censored=True))
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie in (0, 1), got {probability!r}")
    tail = (1 - confidence) / 2
    below = stats.binom(x.size, probability)
    # l: largest with P(Bin < l) <= tail. u: smallest with P(Bin >= u) <= tail.
    low = int(below.ppf(tail))
    low += int(below.cdf(low) <= tail)
    high = int(below.ppf(1 - tail)) + 1
    high += int(below.sf(high - 1) > tail)
    return (float(x[low - 1]) if low >= 1 else -math.inf), (float(x[high - 1]) if high <= x.size else math.inf)


def quantile_band(
    values: ArrayLike, probability: float, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`quantile_interval` at each checkpoint: values [C, n] to two arrays [C], each checkpoint by itself."""
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"values must be [checkpoints, instances], got shape {rows.shape}")
    ends = np.array([quantile_interval(row, probability, confidence) for row in rows]).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def _vector(values: ArrayLike, confidence: float, censored: bool = False) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"values must be a non-empty vector, got shape {x.shape}")
    if censored and np.isnan(x).any():
        raise ValueError(f"values must not be NaN, got it at [{int(np.argmax(np.isnan(x)))}]")
    if not censored:
        require_finite_values("values", x)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    return x
