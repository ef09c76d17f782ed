"""Bands that hold for a whole curve at once, by the studentised bootstrap of the largest deviation.

A band made of pointwise 95 % intervals misses a curve of twenty points somewhere far more often than one time in
twenty. Here two critical values serve all points, one for each side: quantiles of the largest and of the least of
(resampled mean - mean) / resampled standard error over the points. Dividing by the standard error of the resample
itself, and not by the sample's, is what lets the band reach further up than down where values are skewed, as regrets
are: a sample without its share of bad runs has a mean that is too low and a spread that is too small. Points that share
their instances are strongly correlated, and the band is then hardly wider than pointwise.

A resample in which a point hardly varies says nothing of how far its mean may lie from the truth: divided by next to
nothing, its deviation has no size. Such a point is left out of the resample. Where it would be left out more often than
the band may miss on one side, the quantile is not known, and the point has no band: three instances are too few, and
so are three that differ from all others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stau_rl.statistics.bootstrap import RESAMPLES, group_starts, group_sums, resample_counts
from stau_rl.statistics.means import require_finite_values

LEAST_SPREAD = 0.01
"""A resample whose standard error is below this share of the sample's has no spread."""


@dataclass(frozen=True, slots=True)
class CurveBand:
    """Means of a curve with a simultaneous band; `mean`, `low`, `high` are float64 [C].

    Attributes:
        mean: mean at each point.
        low: lower edge; nan where the instances do not give one.
        high: upper edge; nan in the same places.
        below: distance of the lower edge from the mean in standard errors, the same at every point that has a band.
        above: distance of the upper edge.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    below: float
    above: float


def curve_band(values: ArrayLike, *, seed: int, resamples: int = RESAMPLES, confidence: float = 0.95) -> CurveBand:
    """Means of C points on the same n instances, with a band that covers all C true means at once.

    Args:
        values: float64 [C, n], n >= 1, finite; a column is one instance at every point.
        seed: non-negative seed of the generator owned by this call.
        resamples: number of resamples, >= 1.
        confidence: probability that the band covers every point, in (0, 1); half of the rest is left on either side.

    Returns:
        The band of the points that have one. A point has none, and its edges are nan, if it has no spread in more than
        `(1 - confidence) / 2` of the resamples: if it is constant or nearly so, or if there are fewer than four
        instances. Without any point left, the critical values are nan too.

    Raises:
        ValueError: an argument is out of range, or a value is NaN or infinite.

    Source: Montiel Olea and Plagborg-Moller, "Simultaneous confidence bands", J. Appl. Econometrics 2019; the
        studentised form: Hall, "The Bootstrap and Edgeworth Expansion", 1992, section 3.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"values must be [points, instances], neither of them 0, got shape {x.shape}")
    require_finite_values("values", x)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    n = x.shape[1]
    mean = x.mean(axis=1)
    low, high = np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    if n == 1:
        return CurveBand(mean, low, high, np.nan, np.nan)
    deviation = x - mean[:, None]
    se = np.sqrt((deviation**2).sum(axis=1) / (n - 1) / n)
    starts = group_starts(n)
    sizes = np.diff(starts, append=n).astype(np.float64)
    # A constant point has only rounding noise to deviate by.
    places = np.flatnonzero(se > 1e-13 * np.abs(mean))
    sums = group_sums(deviation[places], starts)
    t = np.concatenate([_studentised(counts, sums, sizes) for counts in resample_counts(starts.size, resamples, seed)])
    tail = (1 - confidence) / 2
    known = np.isnan(t).mean(axis=0) <= tail
    t, places = np.nan_to_num(t[:, known]), places[known]
    if places.size == 0:
        return CurveBand(mean, low, high, np.nan, np.nan)
    below = float(np.quantile(t.max(axis=1, initial=0.0), 1 - tail))
    above = -float(np.quantile(t.min(axis=1, initial=0.0), tail))
    low[places], high[places] = mean[places] - below * se[places], mean[places] + above * se[places]
    return CurveBand(mean, low, high, below, above)


def _studentised(
    counts: NDArray[np.float64], sums: NDArray[np.float64], sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Resampled mean over its own standard error, [b, C]: units drawn `counts` times, of sums [C, m] and sizes [m].

    The mean is a ratio of sums, as units differ in size by one; its standard error is that of the residuals. nan where
    the resample has no spread.
    """
    m = sizes.size
    total = (counts @ sizes)[:, None]
    mean = counts @ sums.T / total
    # sum c (s - mean size)^2, written out so that it is three matrix products.
    squares = counts @ (sums**2).T - 2 * mean * (counts @ (sums * sizes).T) + mean**2 * (counts @ sizes**2)[:, None]
    se = np.sqrt(np.maximum(squares, 0.0) * (m / (m - 1))) / total
    whole = np.sqrt((sums**2).sum(axis=1) * (m / (m - 1))) / sizes.sum()
    return np.divide(mean, se, out=np.full_like(mean, np.nan), where=se > LEAST_SPREAD * whole)
