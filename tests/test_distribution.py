"""Bands of the cdf and intervals of quantiles against exact coverage."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from stau_rl.statistics.distribution import ecdf, quantile_band, quantile_interval


def test_ecdf_by_hand() -> None:
    found = ecdf([3.0, 1.0, 3.0, 2.0], confidence=0.9)
    assert_array_equal(found.values, [1, 2, 3])
    assert_array_equal(found.share, [0.25, 0.5, 1.0])
    half = math.sqrt(math.log(20) / 8)
    assert_allclose(found.low, np.maximum(found.share - half, 0))
    assert_allclose(found.high, np.minimum(found.share + half, 1))


def test_ecdf_is_scipys() -> None:
    x = np.random.Generator(np.random.PCG64(0)).normal(size=50).round(1)
    expected = stats.ecdf(x).cdf
    found = ecdf(x)
    assert_array_equal(found.values, expected.quantiles)
    assert_allclose(found.share, expected.probabilities)


def test_the_whole_cdf_lies_in_the_band_as_often_as_kolmogorov_says() -> None:
    # The band misses where the Kolmogorov-Smirnov statistic exceeds its half-width: exact law from scipy.
    n, half = 60, math.sqrt(math.log(2 / 0.05) / 120)
    miss = stats.kstwo.sf(half, n)
    assert 0.03 < miss <= 0.05
    generator = np.random.Generator(np.random.PCG64(1))
    missed = 0
    for _ in range(2000):
        x = generator.uniform(size=n)
        found = ecdf(x)
        before = np.append(0.0, found.high[:-1])
        # Between two values the cdf is constant; the truth at a jump is checked from both sides.
        first = math.sqrt(math.log(40) / (2 * n))
        below = np.append(min(1.0, first), before[1:])
        missed += bool(np.any((found.values > below) | (found.values < found.low)))
    # Standard error 0.45 %.
    assert abs(missed / 2000 - miss) < 0.015


def test_median_interval_of_a_hundred_values_is_the_textbooks() -> None:
    # David and Nagaraja's construction: P(40 <= Bin(100, 1/2) < 61) = 0.9648.
    x = np.arange(1.0, 101.0)
    assert quantile_interval(x, 0.5) == (40.0, 61.0)


@pytest.mark.parametrize("n", [5, 20, 137])
@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_coverage_is_enough_and_no_order_statistic_is_wasted(n: int, p: float, confidence: float) -> None:
    low, high = quantile_interval(np.arange(1.0, n + 1), p, confidence)
    l = 0 if low == -math.inf else int(low)
    u = n + 1 if high == math.inf else int(high)
    tail = (1 - confidence) / 2
    binomial = stats.binom(n, p)
    assert binomial.cdf(l - 1) <= tail + 1e-12
    assert binomial.sf(u - 1) <= tail + 1e-12
    assert binomial.cdf(l) > tail
    assert u == 1 or binomial.sf(u - 2) > tail


def test_small_samples_bound_no_extreme_quantile() -> None:
    assert quantile_interval([1.0], 0.5) == (-math.inf, math.inf)
    # Both of two values lie below the 99 % quantile with probability 0.98, so the larger bounds it from below.
    assert quantile_interval([1.0, 2.0], 0.99) == (2.0, math.inf)


def test_band_is_the_interval_of_each_row() -> None:
    x = np.random.Generator(np.random.PCG64(4)).normal(size=(3, 40))
    low, high = quantile_band(x, 0.25)
    assert [(low[i], high[i]) for i in range(3)] == [quantile_interval(row, 0.25) for row in x]


def test_errors_name_the_argument() -> None:
    with pytest.raises(ValueError, match="probability"):
        quantile_interval([1.0], 0.0)
    with pytest.raises(ValueError, match="confidence"):
        ecdf([1.0], 0.0)
    with pytest.raises(ValueError, match="non-empty"):
        ecdf([])
    with pytest.raises(ValueError, match="checkpoints"):
        quantile_band([1.0], 0.5)


def test_a_tail_that_is_exactly_as_large_as_it_may_be_is_taken() -> None:
    """Two values: the median lies below both with probability 1/4, and above both; so between them with 1/2."""
    assert quantile_interval([1.0, 2.0], 0.5, 0.5) == (1.0, 2.0)
    assert quantile_interval([1.0, 2.0], 0.5, 0.51) == (-math.inf, math.inf)
