"""Comparison of two families, each at its best member, with the uncertainty of which member is best in the interval.

The best member is found on tuning instances and judged on others, so its mean is not flattered by the choice. But
another tuning sample would have chosen another member, and an interval from the evaluation alone does not know that.
Here each resample draws tuning and evaluation instances, chooses again, and compares what it chose.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from stau_rl.statistics.bootstrap import RESAMPLES, expanded_levels, group_starts, group_sums, resample_counts
from stau_rl.statistics.means import ROUNDING, require_finite_values


@dataclass(frozen=True, slots=True)
class SelectedComparison:
    """The chosen member of one family against that of another.

    Attributes:
        difference: mean of the paired differences of the two chosen members, on the evaluation instances.
        difference_low: lower end of its interval.
        difference_high: upper end of its interval.
        percent: 100 (mean / baseline mean - 1), of a baseline above 0 alone.
        percent_low: lower end of its interval.
        percent_high: upper end of its interval.
        p_value: two-sided, of equal means: Student's t of the difference over its bootstrap standard error; where that
            is 0, that of the sign test, 2^(1 - n), or 1 for equal means.
    """

    difference: float
    difference_low: float
    difference_high: float
    percent: float
    percent_low: float
    percent_high: float
    p_value: float


def selected_bootstrap(
    candidates: tuple[ArrayLike, ArrayLike],
    baseline: tuple[ArrayLike, ArrayLike],
    *,
    seed: int,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> SelectedComparison:
    """Bootstrap of tuning and evaluation together.

    In each resample the tuning instances are drawn with replacement, both families choose their member of least mean
    on them, the evaluation instances are drawn with replacement, and the chosen are compared. Members that are about
    as good in tuning are then chosen in turn, and what lies between them on the evaluation widens the interval.

    Args:
        candidates: a family's members on the tuning instances, float64 [m, n], and on the evaluation instances,
            float64 [m, e].
        baseline: likewise another family's, [k, n] and [k, e], on the same instances. A family of one member may
            have any number of tuning instances.
        seed: non-negative seed of the generators owned by this call.
        resamples: number of resamples, >= 2.
        confidence: coverage, in (0, 1).

    Returns:
        The comparison. Intervals are nan with fewer evaluation instances than
        `stau_rl.statistics.bootstrap.least_units`, the p-value with a single one. The percentage is nan where the
        baseline mean is 0 or less, its interval also where a resampled one is.

    Raises:
        ValueError: shapes do not pair up, a value is NaN or infinite, or an argument is out of range.
    """
    if resamples < 2 or not 0 < confidence < 1:
        raise ValueError(f"resamples must be >= 2 and confidence in (0, 1), got {resamples} and {confidence!r}")
    (tuned, played), (base_tuned, base_played) = (_pair(*family) for family in (candidates, baseline))
    if played.shape[1] != base_played.shape[1]:
        raise ValueError(f"evaluations must be paired, got {played.shape[1]} and {base_played.shape[1]} instances")
    mine, theirs = int(tuned.mean(axis=1).argmin()), int(base_tuned.mean(axis=1).argmin())
    mean, base_mean = float(played[mine].mean()), float(base_played[theirs].mean())
    chosen = _choices(tuned, base_tuned, seed, resamples)
    drawn, base_drawn = _drawn(played, base_played, chosen, seed, resamples)
    difference = float((played[mine] - base_played[theirs]).mean())
    percent = 100 * (mean / base_mean - 1) if base_mean > 0 else np.nan
    n = played.shape[1]
    if n == 1:
        return SelectedComparison(difference, np.nan, np.nan, percent, np.nan, np.nan, np.nan)
    levels = expanded_levels(group_starts(n).size, confidence)
    ends = percent_ends = np.full(2, np.nan)
    if not np.isnan(levels).any():
        ends = np.quantile(drawn - base_drawn, levels)
        if base_mean > 0 and (base_drawn > 0).all():
            percent_ends = np.quantile(100 * (drawn / base_drawn - 1), levels)
    se = float((drawn - base_drawn).std(ddof=1))
    # Resampled means of equal values differ by rounding alone.
    rounding = ROUNDING * max(abs(mean), abs(base_mean))
    if se <= rounding:
        p_value = 1.0 if abs(difference) <= rounding else 2.0 ** (1 - n)
    else:
        p_value = float(2 * stats.t.sf(abs(difference) / se, n - 1))
    return SelectedComparison(
        difference, float(ends[0]), float(ends[1]), percent, float(percent_ends[0]), float(percent_ends[1]), p_value
    )


def _choices(
    tuned: NDArray[np.float64], base_tuned: NDArray[np.float64], seed: int, resamples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which member each family chooses in each resample of the tuning instances, two int64 [B]."""
    # A sequence of its own: which tuning instances are drawn says nothing of the evaluation's.
    tuning_seed = np.random.SeedSequence([seed, 1])
    if tuned.shape[1] == base_tuned.shape[1]:
        together = _lowest(np.concatenate([tuned, base_tuned]), [len(tuned)], tuning_seed, resamples)
        return together[0], together[1]
    return tuple(_lowest(family, [], tuning_seed, resamples)[0] for family in (tuned, base_tuned))  # type: ignore[return-value]


def _lowest(
    regret: NDArray[np.float64], splits: list[int], seed: np.random.SeedSequence, resamples: int
) -> list[NDArray[np.int64]]:
    """The member of least resampled mean in each part of the rows."""
    starts = group_starts(regret.shape[1])
    sizes = np.diff(starts, append=regret.shape[1]).astype(np.float64)
    sums = group_sums(regret, starts)
    means = np.concatenate(
        [counts @ sums.T / (counts @ sizes)[:, None] for counts in resample_counts(starts.size, resamples, seed)]
    )
    return [part.argmin(axis=1) for part in np.split(means, splits, axis=1)]


def _drawn(
    played: NDArray[np.float64],
    base_played: NDArray[np.float64],
    chosen: tuple[NDArray[np.int64], NDArray[np.int64]],
    seed: int,
    resamples: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Resampled evaluation means of what was chosen, two float64 [B]."""
    n = played.shape[1]
    starts = group_starts(n)
    sizes = np.diff(starts, append=n).astype(np.float64)
    sums = group_sums(np.concatenate([played, base_played]), starts)
    found = []
    row = 0
    for counts in resample_counts(starts.size, resamples, seed):
        means = counts @ sums.T / (counts @ sizes)[:, None]
        rows, here = slice(row, row + len(counts)), np.arange(len(counts))
        found.append((means[here, chosen[0][rows]], means[here, len(played) + chosen[1][rows]]))
        row = rows.stop
    return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])


def _pair(tuned: ArrayLike, played: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = np.asarray(tuned, dtype=np.float64), np.asarray(played, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or 0 in a.shape or 0 in b.shape or len(a) != len(b):
        raise ValueError(f"a family must be [members, instances] twice, of equal members, got {a.shape} and {b.shape}")
    require_finite_values("tuning values", a)
    require_finite_values("evaluation values", b)
    return a, b
