"""Bands that hold for a whole curve at once, by the bootstrap of the largest deviation.

A band made of pointwise 95 % intervals misses a curve of twenty points somewhere far more often than one time in
twenty. Here one critical value serves all points: the 95 % quantile of max over the points of |resampled mean -
mean| / se. Where the data are skewed, as regrets are, a few hundred instances are too few for the stated level. Points
that share their instances are strongly correlated, and the band is then hardly wider than pointwise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stau_rl.bootstrap import RESAMPLES, group_starts, group_sums, resample_counts


@dataclass(frozen=True, slots=True)
class CurveBand:
    """Means of a curve with a simultaneous band; `mean`, `low`, `high` are float64 [C].

    Attributes:
        mean: mean at each point.
        low: lower edge.
        high: upper edge.
        critical: half-width in standard errors, the same at every point.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    critical: float


def curve_band(values: ArrayLike, *, seed: int, resamples: int = RESAMPLES, confidence: float = 0.95) -> CurveBand:
    """Means of C points on the same n instances, with a band that covers all C true means at once.

    Args:
        values: float64 [C, n], n >= 1; a column is one instance at every point.
        seed: non-negative seed of the generator owned by this call.
        resamples: number of resamples, >= 1.
        confidence: probability that the band covers every point, in (0, 1).

    Returns:
        The band; its edges and critical value are nan for a single instance. A point without variance has no width.

    Raises:
        ValueError: an argument is out of range.

    Source: Montiel Olea and Plagborg-Moller, "Simultaneous confidence bands", J. Appl. Econometrics 2019.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"values must be [points, instances], neither of them 0, got shape {x.shape}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    n = x.shape[1]
    mean = x.mean(axis=1)
    if n == 1:
        nothing = np.full(mean.shape, np.nan)
        return CurveBand(mean, nothing, nothing.copy(), np.nan)
    deviation = x - mean[:, None]
    se = np.sqrt((deviation**2).sum(axis=1) / (n - 1) / n)
    starts = group_starts(n)
    sizes = np.diff(starts, append=n).astype(np.float64)
    # A constant point has only rounding noise to deviate by.
    varies = se > 1e-13 * np.abs(mean)
    sums = group_sums(deviation[varies], starts)
    largest = [
        np.max(np.abs(counts @ sums.T / (counts @ sizes)[:, None]) / se[varies], axis=1, initial=0.0)
        for counts in resample_counts(starts.size, resamples, seed)
    ]
    critical = float(np.quantile(np.concatenate(largest), confidence))
    half = np.where(varies, critical * se, 0.0)
    return CurveBand(mean, mean - half, mean + half, critical)
