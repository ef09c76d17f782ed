"""Summaries that a few extreme runs do not sway: interquartile mean and probability of improvement.

Regret is the outcome throughout, so less is better: `a` improves on `b` where its value is smaller.

Source: Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS 2021.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from stau_rl.statistics.bootstrap import GROUPS, RESAMPLES, least_units, resample_counts
from stau_rl.statistics.means import require_finite_values

MOST_RANKED = 100
"""Up to so many values together the rank sum test is exact."""
# The interquartile mean keeps the values between these shares.
LOWER, UPPER = 0.25, 0.75


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval; `low` and `high` are nan where the data cannot give one."""

    value: float
    low: float
    high: float


def interquartile_mean(values: ArrayLike) -> float:
    """Mean of the middle half: (2/n) times the sum of the sorted values, each weighted by its share of [n/4, 3n/4].

    Where n is no multiple of 4 the two values at the ends count in part, so that it varies smoothly with n.

    Args:
        values: float64 [n], n >= 1.

    Raises:
        ValueError: `values` is empty, not a vector or not finite.
    """
    x = np.sort(_vector("values", values))
    return float(_middle_means(x, np.ones((1, x.size)))[0])


def interquartile_interval(
    values: ArrayLike, *, seed: int, resamples: int = RESAMPLES, confidence: float = 0.95
) -> Estimate:
    """Interquartile mean with a percentile bootstrap interval, or with a Student interval for large samples.

    Above 16 384 values the standard error of a trimmed mean, s_w / ((1 - 2/4) sqrt(n)) with s_w the standard deviation
    of the winsorised sample, gives the same interval without drawing anything.

    Args:
        values: float64 [n], n >= 1, independent replicates.
        seed: non-negative seed of the generator owned by this call.
        resamples: number of resamples, >= 1.
        confidence: coverage, in (0, 1).

    Returns:
        The mean; its interval is nan for fewer values than `stau_rl.statistics.bootstrap.least_units`, 6 at 95 %.

    Raises:
        ValueError: an argument is out of range.

    Source: Tukey and McLaughlin, "Less vulnerable confidence and significance procedures", Sankhya A 1963.
    """
    x = np.sort(_vector("values", values))
    _check_confidence(confidence)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    centre = float(_middle_means(x, np.ones((1, x.size)))[0])
    if x.size < least_units(confidence):
        return Estimate(centre, np.nan, np.nan)
    if x.size > GROUPS:
        cut = int(LOWER * x.size)
        spread = float(np.clip(x, x[cut], x[-1 - cut]).std(ddof=1)) / (UPPER - LOWER)
        half = float(special.stdtrit(x.size - 2 * cut - 1, 0.5 + confidence / 2)) * spread / math.sqrt(x.size)
        return Estimate(centre, centre - half, centre + half)
    # Which value is drawn how often does not depend on the order, so the sorted values can be resampled.
    drawn = np.concatenate([_middle_means(x, counts) for counts in resample_counts(x.size, resamples, seed)])
    low, high = np.quantile(drawn, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Estimate(centre, float(low), float(high))


def stratified_interval(
    groups: Sequence[ArrayLike], *, seed: int, resamples: int = RESAMPLES, confidence: float = 0.95
) -> Estimate:
    """Interquartile mean of several groups pooled, with a bootstrap that resamples within each group.

    The groups are tasks and the values runs: every resample has as many runs of each task as there are, so the
    interval does not count that other tasks might have been chosen.

    Args:
        groups: G vectors float64 [n_g], on one scale.
        seed: non-negative seed of the generator owned by this call.
        resamples: number of resamples, >= 1.
        confidence: coverage, in (0, 1).

    Returns:
        The mean; its interval is nan where there are fewer values in all than
        `stau_rl.statistics.bootstrap.least_units`, or a group of one value, whose spread no resample shows.

    Raises:
        ValueError: a group is empty or not a vector, there are none, or an argument is out of range.

    Source: Agarwal et al. 2021, section 4.
    """
    parts = [_vector(f"groups[{g}]", group) for g, group in enumerate(groups)]
    if not parts:
        raise ValueError("groups must hold at least one vector, got none")
    _check_confidence(confidence)
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    pooled = np.concatenate(parts)
    order = np.argsort(pooled, kind="stable")
    seeds = np.random.SeedSequence(seed).generate_state(len(parts), np.uint64)
    counts = np.concatenate(
        [
            np.concatenate(list(resample_counts(part.size, resamples, int(own))))
            for part, own in zip(parts, seeds, strict=True)
        ],
        axis=1,
    )
    centre = float(_middle_means(pooled[order], np.ones((1, pooled.size)))[0])
    if pooled.size < least_units(confidence) or min(part.size for part in parts) == 1:
        return Estimate(centre, np.nan, np.nan)
    drawn = _middle_means(pooled[order], counts[:, order])
    low, high = np.quantile(drawn, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Estimate(centre, float(low), float(high))


def paired_improvement(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Probability that `a` has less regret than `b` on one instance: P(a_i < b_i) + P(a_i = b_i) / 2.

    The interval is Wilson's. A tie counts as half a win and varies less than a win or a loss, so with v the variance of
    the scores 0, 1/2 and 1 it is that of n p (1 - p) / v instances; without ties v = p (1 - p).

    Args:
        a: float64 [n].
        b: float64 [n], paired with `a` instance by instance.
        confidence: coverage, in (0, 1).

    Raises:
        ValueError: the two are not finite vectors of one length, or `confidence` is outside (0, 1).
    """
    x, y = _vector("a", a), _vector("b", b)
    if x.shape != y.shape:
        raise ValueError(f"paired samples need one length, got {x.size} and {y.size}")
    _check_confidence(confidence)
    score = (x < y) + 0.5 * (x == y)
    p = float(np.mean(score))
    z = float(special.ndtri(0.5 + confidence / 2))
    variance = float(np.mean((score - p) ** 2))
    n = x.size * (p * (1 - p) / variance if variance > 0 else 1.0)
    centre, scale = p + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return Estimate(p, max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def unpaired_improvement(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Probability that a run of `a` has less regret than an independent run of `b`: P(A < B) + P(A = B) / 2.

    The estimate is the Mann-Whitney statistic over all n m pairs. Its variance is DeLong's, from the placements
    p_i = P(a_i < B) and q_j = P(A < b_j); the interval is symmetric on the logit scale, so it stays inside (0, 1).

    Args:
        a: float64 [n].
        b: float64 [m].
        confidence: coverage, in (0, 1).

    Returns:
        The estimate; its interval is nan where n or m is 1, or where all pairs agree (every run of `a` less, every one
        more, or all values equal), as then no variance shows.

    Raises:
        ValueError: an argument is empty, not a vector or not finite, or `confidence` is outside (0, 1).

    Source: DeLong, DeLong, Clarke-Pearson, Biometrics 44, 1988.
    """
    x, y = _vector("a", a), _vector("b", b)
    _check_confidence(confidence)
    rank_x, rank_y = stats.rankdata(x), stats.rankdata(y)
    both = stats.rankdata(np.concatenate([x, y]))
    beaten_by_x = 1 - (both[: x.size] - rank_x) / y.size
    beaten = (both[x.size :] - rank_y) / x.size
    p = float(beaten_by_x.mean())
    if min(x.size, y.size) == 1:
        return Estimate(p, np.nan, np.nan)
    variance = beaten_by_x.var(ddof=1) / x.size + beaten.var(ddof=1) / y.size
    if variance == 0:
        return Estimate(p, np.nan, np.nan)
    half = float(special.ndtri(0.5 + confidence / 2)) * math.sqrt(variance) / (p * (1 - p))
    low, high = special.expit(special.logit(p) + np.array([-half, half]))
    return Estimate(p, float(low), float(high))


def rank_sum_test(a: ArrayLike, b: ArrayLike) -> float:
    """Two-sided p-value that `a` and `b` come from one distribution, by the sum of the ranks of `a`, ties shared.

    Up to 100 values together it is exact: the sums of all C(n + m, n) choices of n ranks are counted, so ties need no
    correction, p = min(1, 2 min(P(W <= w), P(W >= w))). Above, it is the normal approximation with ties corrected.

    Args:
        a: float64 [n].
        b: float64 [m].

    Raises:
        ValueError: an argument is empty, not a vector or not finite.

    Source: Wilcoxon, Biometrics Bulletin 1, 1945; with ties Lehmann, Nonparametrics, 1975, section 1.4.
    """
    x, y = _vector("a", a), _vector("b", b)
    if x.size + y.size > MOST_RANKED:
        p = float(stats.mannwhitneyu(x, y, method="asymptotic").pvalue)
        return 1.0 if math.isnan(p) else p
    ranks = np.rint(2 * stats.rankdata(np.concatenate([x, y]))).astype(np.int64)
    # ways[k, s]: share of ways, as these overflow, in which k of the ranks so far have the sum s.
    ways = np.zeros((x.size + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1.0
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
        ways /= 2
    of_size = ways[-1] / ways[-1].sum()
    sum_of_a = int(ranks[: x.size].sum())
    return min(1.0, 2 * float(min(of_size[: sum_of_a + 1].sum(), of_size[sum_of_a:].sum())))


def _middle_means(ascending: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the middle half of each resample, given how often each of the sorted values is in it: [b, n] to [b]."""
    n = ascending.size
    through = np.cumsum(counts, axis=1)
    inside = np.clip(through, LOWER * n, UPPER * n)
    weight = np.diff(inside, axis=1, prepend=LOWER * n)
    # Measured from the first value, so that the mean of a constant sample is exact.
    return ascending[0] + weight @ (ascending - ascending[0]) / ((UPPER - LOWER) * n)


def _vector(name: str, values: ArrayLike) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name} must be a non-empty vector, got shape {x.shape}")
    require_finite_values(name, x)
    return x


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence!r}")
