"""Means, intervals, quantiles, tail means and tests that a regret table is made of.

Every function takes plain float64 arrays, draws nothing at random and warns about nothing: a number that the
data cannot give (an interval from one instance) is nan, and one that they give exactly (zero variance) is
exact. Values that are NaN or infinite are refused. The resampling intervals are in `stau_rl.statistics.bootstrap`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

TAIL = 0.05
# Means that differ by less, relative to their size, differ by rounding.
ROUNDING = 1e-13


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """A mean with its standard error and interval; `se`, `low` and `high` are nan for a single value."""

    mean: float
    se: float
    low: float
    high: float


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> MeanInterval:
    """Mean, standard error s / sqrt(n) and Student interval mean -/+ t_{n-1} s / sqrt(n).

    Args:
        values: float64 [n], n >= 1, independent replicates.
        confidence: coverage, in (0, 1).

    Returns:
        The interval. With n = 1 all but the mean is nan; equal values give se = 0, low = high = mean,
        exactly.

    Raises:
        ValueError: `values` is empty, not a vector or not finite, or `confidence` is outside (0, 1).
    """
    x = _vector(values)
    _check_probability("confidence", confidence)
    # Measured from the first value, so that the spread of a constant sample is 0 and not a rounding error.
    deviation = x - x[0]
    shift = float(deviation.mean())
    mean = float(x[0]) + shift
    if x.size == 1:
        return MeanInterval(mean, np.nan, np.nan, np.nan)
    deviation -= shift
    se = float(np.sqrt(np.square(deviation, out=deviation).sum() / (x.size - 1) / x.size))
    half = float(special.stdtrit(x.size - 1, 0.5 + confidence / 2)) * se
    return MeanInterval(mean, se, mean - half, mean + half)


def quantiles(values: ArrayLike, probabilities: Sequence[float], *, is_sorted: bool = False) -> NDArray[np.float64]:
    """Sample quantiles with linear interpolation between order statistics (Hyndman and Fan, type 7).

    Args:
        values: float64 [n], n >= 1.
        probabilities: levels in [0, 1], [q].
        is_sorted: `values` ascend already, so nothing is copied.

    Returns:
        float64 [q].

    Raises:
        ValueError: `values` is empty, not a vector or not finite, or a level is outside [0, 1].
    """
    x = _vector(values)
    levels = np.asarray(probabilities, dtype=np.float64)
    if not np.all((levels >= 0) & (levels <= 1)):
        raise ValueError(f"probabilities must lie in [0, 1], got {probabilities!r}")
    x = x if is_sorted else np.sort(x)
    position = levels * (x.size - 1)
    below = np.floor(position).astype(np.int64)
    low, high = x[below], x[np.minimum(below + 1, x.size - 1)]
    return low + (position - below) * (high - low)


def cvar(values: ArrayLike, tail: float = TAIL, *, is_sorted: bool = False) -> float:
    """Mean of the worst (largest) share `tail` of the values: conditional value at risk.

    With r = tail n: (the sum of the floor(r) largest + (r - floor(r)) times the next one) / r, which is the
    maximum for r <= 1.

    Args:
        values: regrets, float64 [n], n >= 1.
        tail: share of the values, in (0, 1].
        is_sorted: `values` ascend already, so nothing is copied.

    Returns:
        The tail mean.

    Raises:
        ValueError: `values` is empty, not a vector or not finite, or `tail` is outside (0, 1].

    Source: Rockafellar and Uryasev, "Conditional value-at-risk for general loss distributions", 2002.
    """
    x = _vector(values)
    if not 0 < tail <= 1:
        raise ValueError(f"tail must lie in (0, 1], got {tail!r}")
    x = x if is_sorted else np.sort(x)
    # A product such as 0.05 * 20 must count as the whole number that it means.
    rows = round(tail * x.size, 9)
    whole = min(int(rows), x.size)
    if whole == 0:
        return float(x[-1])
    worst = float(x[-1])
    excess = float(np.sum(x[x.size - whole :] - worst))
    if rows > whole:
        excess += (rows - whole) * float(x[x.size - whole - 1] - worst)
    return worst + excess / rows


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a proportion.

    (p + z^2/2n -/+ z sqrt(p (1 - p)/n + z^2/4n^2)) / (1 + z^2/n), p = successes / trials.

    Args:
        successes: count in [0, trials].
        trials: number of independent trials n; 0 gives (nan, nan).
        confidence: coverage, in (0, 1).

    Returns:
        (low, high), inside [0, 1]; low is exactly 0 without a success and high exactly 1 without a failure.

    Raises:
        ValueError: `successes` is not in [0, trials], or `confidence` is outside (0, 1).

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
    """
    _check_probability("confidence", confidence)
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must lie in [0, trials = {trials}], got {successes}")
    if trials == 0:
        return np.nan, np.nan
    z = float(special.ndtri(0.5 + confidence / 2))
    p = successes / trials
    centre = p + z * z / (2 * trials)
    half = z * np.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == trials else (centre + half) / scale
    return float(low), float(high)


def paired_test(values: ArrayLike, baseline: ArrayLike) -> float:
    """Two-sided p-value of the paired t test of equal means.

    Args:
        values: float64 [n].
        baseline: float64 [n], paired with `values` instance by instance.

    Returns:
        The p-value; nan with n = 1. Where all differences are equal but for rounding no variance shows: then 1 if they
        are 0, else that of the sign test, 2^(1 - n).

    Raises:
        ValueError: the two are not finite vectors of one length n >= 1.
    """
    x, y = _vector(values), _vector(baseline, "baseline")
    if x.shape != y.shape:
        raise ValueError(f"paired samples need one length, got {x.size} and {y.size}")
    difference = mean_interval(x - y)
    if np.isnan(difference.se):
        return np.nan
    rounding = ROUNDING * float(max(np.abs(x).mean(), np.abs(y).mean()))
    if difference.se <= rounding:
        return 1.0 if abs(difference.mean) <= rounding else 2.0 ** (1 - x.size)
    return float(2 * special.stdtr(x.size - 1, -abs(difference.mean) / difference.se))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values.

    In ascending order, adjusted_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    Args:
        p_values: float64 [m], each in [0, 1] or nan; nan stays nan and is not counted in m.

    Returns:
        float64 [m], in the order given; reject those <= alpha for a family-wise error rate of alpha.

    Raises:
        ValueError: a value is outside [0, 1].

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 1979.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if np.any((p < 0) | (p > 1)):
        raise ValueError(f"p_values must lie in [0, 1], got {p_values!r}")
    adjusted = np.full(p.shape, np.nan)
    # nan sorts to the end.
    order = np.argsort(p, kind="stable")[: int(np.sum(~np.isnan(p)))]
    factors = np.arange(order.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def require_finite_values(name: str, values: NDArray[np.float64]) -> None:
    """Raise a ValueError that names the argument and the first place that is NaN or infinite."""
    finite = np.isfinite(values)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), values.shape)
        where = ", ".join(str(int(index)) for index in place)
        raise ValueError(f"{name} must be finite, got {values[place]} at [{where}]")


def _vector(values: ArrayLike, name: str = "values") -> NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name} must be a non-empty vector, got shape {x.shape}")
    require_finite_values(name, x)
    return x


def _check_probability(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {value!r}")
