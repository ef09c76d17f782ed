"""Paired bootstrap of regret differences and percentages against a baseline.

A resample draws instances with replacement and keeps each instance's pair (policy, baseline) together. The
same resamples serve all policies and checkpoints: a resample is a row of counts, and the resampled means
are matrix products. Above `GROUPS` instances, runs of consecutive instances are added up first and the runs
are resampled. A run of independent instances is itself an independent replicate, and since sums and sizes
are drawn together the weights stay right where sizes differ by one.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from stau_rl.machine.threads import on_all_cores
from stau_rl.statistics.means import require_finite_values

GROUPS = 16_384
RESAMPLES = 2_000
_BLOCK_COUNTS = 1 << 21


@dataclass(frozen=True, slots=True)
class PairedBootstrap:
    """Paired comparison of P policies with a baseline at C checkpoints; every field is float64 [P, C].

    Attributes:
        difference: mean of the paired differences, in the units of the values.
        difference_low: lower end of its interval.
        difference_high: upper end of its interval.
        percent: 100 (mean / baseline mean - 1), the ratio of means; of a baseline above 0 alone.
        percent_low: lower end of its interval.
        percent_high: upper end of its interval.
    """

    difference: NDArray[np.float64]
    difference_low: NDArray[np.float64]
    difference_high: NDArray[np.float64]
    percent: NDArray[np.float64]
    percent_low: NDArray[np.float64]
    percent_high: NDArray[np.float64]


def paired_bootstrap(
    values: Iterable[ArrayLike],
    baseline: ArrayLike,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> PairedBootstrap:
    """Bootstrap intervals of the mean paired difference and of the percentage against a baseline.

    The interval is the expanded percentile interval: the quantiles alpha' and 1 - alpha' of the resampled
    statistic, with alpha' = Phi(-sqrt(m / (m - 1)) t_{m-1}) for m resampled units instead of alpha / 2. It
    carries over unchanged from a ratio to its percentage, needs no constant estimated from the data (as BCa's
    acceleration), varies continuously with the data where resampled means tie (BCa's bias correction
    jumps), and mends the plain percentile interval's known fault of being too narrow at small m. At the
    thousands of instances of a usual run all three coincide.

    Args:
        values: P arrays, each float64 [C, n]: C checkpoints, n paired instances. An array [P, C, n] serves
            too.
        baseline: float64 [C, n], paired with `values` instance by instance.
        seed: non-negative seed of the generator owned by this call. A policy's result depends on (seed, its
            values, the baseline) and not on which other policies are compared.
        resamples: number of resamples B >= 1.
        confidence: coverage, in (0, 1).

    Returns:
        Estimates and intervals, [P, C]. With fewer than `least_units(confidence)` instances, 6 at 95 %, intervals are
        nan. Where the baseline mean is 0 or less, the percentage and its interval are nan; where it is so in some
        resamples only, the interval alone is nan.

    Raises:
        ValueError: shapes do not pair up, n = 0, a value is NaN or infinite, `resamples` < 1 or `confidence` outside
            (0, 1).

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13; the expansion:
        Hesterberg, "What teachers should know about the bootstrap", The American Statistician 2015.
    """
    y = np.asarray(baseline, dtype=np.float64)
    x = [np.asarray(policy, dtype=np.float64) for policy in values]
    if y.ndim != 2 or y.shape[1] == 0 or any(policy.shape != y.shape for policy in x):
        shapes = [policy.shape for policy in x]
        raise ValueError(f"each of values and baseline must be [C, n], n >= 1, got {shapes} and {y.shape}")
    require_finite_values("baseline", y)
    for number, policy in enumerate(x):
        require_finite_values(f"values[{number}]", policy)
    sample = resampled_means([*x, y], seed=seed, resamples=resamples)
    return paired_intervals(sample, range(len(x)), len(x), confidence)


@dataclass(frozen=True, slots=True)
class Resampled:
    """Means over the instances and over bootstrap resamples of them, P policies, B resamples, C checkpoints.

    Attributes:
        means: float64 [P, C].
        drawn: float64 [P, B, C]; row b of every policy is of the same resample.
        units: number of resampled units m, instances or runs of them.
    """

    means: NDArray[np.float64]
    drawn: NDArray[np.float64]
    units: int


def resampled_means(values: Iterable[ArrayLike], *, seed: int, resamples: int = RESAMPLES) -> Resampled:
    """Means of every policy in each of the resamples, which are those of `paired_bootstrap`.

    Args:
        values: P arrays, each float64 [C, n], paired instance by instance.
        seed: non-negative seed of the generator owned by this call.
        resamples: number of resamples B >= 1.

    Raises:
        ValueError: `resamples` < 1.
    """
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    x = [np.asarray(policy, dtype=np.float64) for policy in values]
    policies, (checkpoints, n) = len(x), x[0].shape
    starts = group_starts(n)
    sizes = np.diff(starts, append=n).astype(np.float64)
    sums = on_all_cores(lambda policy: group_sums(policy, starts), x)
    drawn = np.empty((policies, resamples, checkpoints))
    row = 0
    for counts in resample_counts(starts.size, resamples, seed):
        rows = slice(row, row + counts.shape[0])
        size = (counts @ sizes)[:, None]
        # A product per policy: one over all of them could round differently when their number changes.
        for p in range(policies):
            drawn[p, rows] = (counts @ sums[p].T) / size
        row = rows.stop
    means = np.array([s.sum(axis=1) / n for s in sums]).reshape(policies, checkpoints)
    return Resampled(means, drawn, starts.size)


def paired_intervals(
    sample: Resampled, policies: Sequence[int], baseline: int, confidence: float = 0.95
) -> PairedBootstrap:
    """Intervals of `paired_bootstrap` from means that are drawn already.

    Args:
        sample: the resampled means.
        policies: positions in the sample to compare.
        baseline: position of the baseline.
        confidence: coverage, in (0, 1).

    Raises:
        ValueError: `confidence` outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
    others = list(policies)
    means, drawn = sample.means[others], sample.drawn[others]
    mean_base, drawn_base = sample.means[baseline], sample.drawn[baseline]
    low, high = expanded_levels(sample.units, confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(mean_base > 0, 100 * (means / mean_base - 1), np.nan)
        drawn_percent = np.where(drawn_base > 0, 100 * (drawn / drawn_base - 1), np.nan)
    drawn -= drawn_base
    difference_low, difference_high = _ends(drawn, low, high)
    percent_low, percent_high = _ends(drawn_percent, low, high)
    return PairedBootstrap(means - mean_base, difference_low, difference_high, percent, percent_low, percent_high)


def group_starts(n: int, groups: int = GROUPS) -> NDArray[np.int64]:
    """First instances of min(n, groups) consecutive runs whose sizes differ by at most one, int64 [m]."""
    m = min(n, groups)
    return np.arange(m, dtype=np.int64) * n // m


def group_sums(values: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums over consecutive runs of the last axis: [C, n] and starts [m] to [C, m]."""
    return np.add.reduceat(values, starts, axis=-1)


def resample_counts(units: int, resamples: int, seed: int | np.random.SeedSequence) -> Iterator[NDArray[np.float64]]:
    """How often each unit is drawn in each resample, in blocks float64 [b, units] that add up to `resamples`.

    A row is one multinomial draw of `units` out of `units`, made by counting uniform indices.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    block = max(1, _BLOCK_COUNTS // units)
    for first in range(0, resamples, block):
        b = min(block, resamples - first)
        drawn = generator.integers(units, size=(b, units))
        drawn += (np.arange(b) * units)[:, None]
        yield np.bincount(drawn.ravel(), minlength=b * units).reshape(b, units).astype(np.float64)


def least_units(confidence: float) -> int:
    """How many instances a percentile interval needs: the least n with 1 - 2^(1 - n) >= confidence.

    No resampled mean lies outside the values themselves, and between the least and the largest of n values lies the
    median of their distribution with probability 1 - 2^(1 - n). So with fewer no quantiles of resamples cover at their
    rate: two values would have 50 % in the place of 95 %.

    Args:
        confidence: coverage, in (0, 1).
    """
    return next(n for n in itertools.count(2) if 1 - 2.0 ** (1 - n) >= confidence)


def expanded_levels(units: int, confidence: float) -> tuple[float, float]:
    """Levels of the two quantiles of the expanded percentile interval; nan for fewer than `least_units`."""
    if units < least_units(confidence):
        return np.nan, np.nan
    t = special.stdtrit(units - 1, 0.5 + confidence / 2)
    low = float(special.ndtr(-np.sqrt(units / (units - 1)) * t))
    return low, 1 - low


def _ends(drawn: NDArray[np.float64], low: float, high: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Quantiles over the resamples: [P, B, C] to two of [P, C]; nan where a resample is nan."""
    policies, _, checkpoints = drawn.shape
    if np.isnan(low) or drawn.size == 0:
        return np.full((policies, checkpoints), np.nan), np.full((policies, checkpoints), np.nan)
    with np.errstate(invalid="ignore"):
        ends = np.quantile(drawn, [low, high], axis=1)
    return ends[0], ends[1]
