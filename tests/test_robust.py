"""Interquartile mean and probability of improvement against scipy, brute force and worked examples."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from stau_rl.statistics.means import wilson_interval
from stau_rl.statistics.robust import (
    interquartile_interval,
    interquartile_mean,
    paired_improvement,
    rank_sum_test,
    stratified_interval,
    unpaired_improvement,
)


def _draw(n: int, seed: int = 0) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).gamma(2.0, 50.0, n)


@pytest.mark.parametrize("n", [4, 8, 100, 1000])
def test_interquartile_mean_is_scipys_trimmed_mean_of_a_multiple_of_four(n: int) -> None:
    x = _draw(n)
    assert interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25), rel=1e-13)


def test_interquartile_mean_with_partial_ends_by_hand() -> None:
    # n = 5: [1.25, 3.75] holds 3/4 of the second value, all of the third, 3/4 of the fourth, of 2.5 in all.
    assert interquartile_mean([9.0, 1.0, 4.0, 2.0, 100.0]) == pytest.approx((0.75 * 2 + 4 + 0.75 * 9) / 2.5)
    assert interquartile_mean([3.0]) == 3.0
    assert interquartile_mean([0.1] * 7) == 0.1
    # n = 6: half of the second, the third and fourth, half of the fifth.
    assert interquartile_mean([1, 2, 3, 5, 7, 1000]) == pytest.approx((1 + 3 + 5 + 3.5) / 3)


def test_interquartile_bootstrap_agrees_with_resampling_by_index() -> None:
    x = _draw(40)
    found = interquartile_interval(x, seed=7, resamples=400)
    drawn = np.random.Generator(np.random.PCG64(7)).integers(40, size=(400, 40))
    # The counts belong to the sorted values.
    means = [stats.trim_mean(np.sort(x)[row], 0.25) for row in drawn]
    assert_allclose([found.low, found.high], np.quantile(means, [0.025, 0.975]), rtol=1e-12)
    assert found.value == interquartile_mean(x)


def test_interquartile_interval_covers() -> None:
    # 300 samples of 80 exponential values. The middle half of Exp(1) has mean
    # 2 int_{1/4}^{3/4} -ln(1-u) du = 2 [x - x ln x] from 1/4 to 3/4 of x = 1 - u, negated below.
    def primitive(x: float) -> float:
        return x * np.log(x) - x

    truth = -2 * (primitive(0.75) - primitive(0.25))
    generator = np.random.Generator(np.random.PCG64(5))
    hits = 0
    for study in range(300):
        found = interquartile_interval(generator.exponential(size=80), seed=study, resamples=300)
        hits += found.low <= truth <= found.high
    # Binomial with 0.94 or so: standard error 1.4 %.
    assert 0.895 <= hits / 300 <= 0.98


def test_interquartile_interval_of_many_values_is_that_of_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Student's interval with the winsorised spread, on one side of 16 384 values; the bootstrap on the other."""
    x = _draw(2_000)
    drawn = interquartile_interval(x, seed=0)
    monkeypatch.setattr("stau_rl.statistics.robust.GROUPS", 1_000)
    exact = interquartile_interval(x, seed=0)
    # 2 000 resamples know an end to 4 % of the half-width or so.
    assert_allclose([exact.low, exact.high], [drawn.low, drawn.high], atol=0.1 * (exact.high - exact.low) / 2)
    sample = np.clip(x, np.sort(x)[500], np.sort(x)[1499])
    se = sample.std(ddof=1) / (0.5 * np.sqrt(2_000))
    assert exact.high - exact.value == pytest.approx(stats.t.ppf(0.975, 999) * se, rel=1e-12)


def test_ties_narrow_the_interval_of_an_improvement() -> None:
    """30 wins, 30 losses and 60 ties vary half as much as 60 wins and 60 losses."""
    score = np.repeat([-1.0, 1.0, 0.0], [30, 30, 60])
    found, none = paired_improvement(score, np.zeros(120)), paired_improvement(np.tile([-1.0, 1.0], 120), np.zeros(240))
    assert found.value == 0.5
    assert_allclose((found.low, found.high), (none.low, none.high), rtol=1e-12)
    assert paired_improvement(np.zeros(9), np.zeros(9)).value == 0.5


def test_paired_improvement_without_ties_is_wilson_of_the_wins() -> None:
    x, y = _draw(60, 1), _draw(60, 2)
    wins = int(np.sum(x < y))
    found = paired_improvement(x, y)
    assert found.value == wins / 60
    assert_allclose((found.low, found.high), wilson_interval(wins, 60), rtol=1e-12)
    assert paired_improvement(y, x).value == pytest.approx(1 - found.value)


def test_a_tie_is_half_a_win() -> None:
    assert paired_improvement([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 3.0, 0.0]).value == 0.5
    assert unpaired_improvement([1.0, 2.0], [2.0, 3.0]).value == pytest.approx(3.5 / 4)


def test_unpaired_improvement_is_mann_whitney_over_all_pairs() -> None:
    x, y = np.round(_draw(31, 1), -1), np.round(_draw(50, 2), -1)
    brute = np.mean((x[:, None] < y) + 0.5 * (x[:, None] == y))
    found = unpaired_improvement(x, y)
    assert found.value == pytest.approx(brute, rel=1e-13)
    assert found.value == pytest.approx(stats.mannwhitneyu(y, x).statistic / (31 * 50), rel=1e-13)
    # DeLong's variance from placements found pair by pair.
    placements = [(np.mean((a < y) + 0.5 * (a == y))) for a in x], [(np.mean((x < b) + 0.5 * (x == b))) for b in y]
    se = np.sqrt(np.var(placements[0], ddof=1) / 31 + np.var(placements[1], ddof=1) / 50)
    logit = np.log(brute / (1 - brute)) + 1.959964 * np.array([-1, 1]) * se / (brute * (1 - brute))
    assert_allclose([found.low, found.high], 1 / (1 + np.exp(-logit)), rtol=1e-6)


def test_unpaired_improvement_covers_where_the_truth_is_known() -> None:
    # P(A < B) for exponentials of rates 2 and 1 is 2/3. 500 studies of 40 and 30 runs: standard error of the rate 1 %.
    generator = np.random.Generator(np.random.PCG64(3))
    hits = 0
    for _ in range(500):
        found = unpaired_improvement(generator.exponential(0.5, 40), generator.exponential(1.0, 30))
        hits += found.low <= 2 / 3 <= found.high
    assert 0.92 <= hits / 500 <= 0.98


def test_an_improvement_without_variance_has_no_interval() -> None:
    """All pairs agree: ties through and through, all wins, all losses; or one run alone, which shows no variance."""
    same = np.full(20, 0.1)
    for a, b, value in (
        (same, same, 0.5),
        (same, same + 1, 1.0),
        (same + 1, same, 0.0),
        ([1.0], [0.0, 2.0], 0.5),
        ([1.0, 3.0], [2.0], 0.5),
    ):
        found = unpaired_improvement(a, b)
        assert found.value == value
        assert np.isnan([found.low, found.high]).all()
    # One pair in 400 that differs shows some.
    found = unpaired_improvement(np.append(same[1:], 0.0), same)
    assert found.low < found.value == 0.525 < found.high


def test_every_stratum_is_resampled_by_itself() -> None:
    """Two equal strata of n runs know their mean as 2 n runs do; drawn alike, as n do, 1.41 times as wide."""
    x = _draw(60)
    alone, both = stratified_interval([x], seed=0), stratified_interval([x, x], seed=0)
    assert both.value == alone.value
    # 2 000 resamples know a width to 3 %.
    assert (both.high - both.low) / (alone.high - alone.low) == pytest.approx(np.sqrt(0.5), rel=0.1)
    # Strata of another order are other resamples of the same.
    turned = stratified_interval([x[::-1], x], seed=0)
    assert (turned.low, turned.high) != (both.low, both.high)
    assert turned.low == pytest.approx(both.low, rel=0.03)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_values_have_a_mean_without_an_interval(n: int) -> None:
    """Up to five, the least and the largest value are nearer to the mean than 95 % asks for: 1 - 2^(1 - n)."""
    x = _draw(6)
    for found in (interquartile_interval(x[:n], seed=0), stratified_interval([x[:n]], seed=0)):
        assert found.value == interquartile_mean(x[:n])
        assert np.isnan([found.low, found.high]).all()
    assert interquartile_interval(x, seed=0).low < interquartile_mean(x) < interquartile_interval(x, seed=0).high
    # Five are enough for 90 %, as 15/16 of the medians lie between their ends.
    assert np.isfinite(interquartile_interval(x[:5], seed=0, confidence=0.9).low)


def test_a_stratum_of_one_value_shows_no_spread() -> None:
    x = _draw(20)
    found = stratified_interval([x, x[:1]], seed=0)
    assert np.isnan([found.low, found.high]).all()
    assert found.value == interquartile_mean([*x, x[0]])
    assert np.isfinite(stratified_interval([x, x[:2]], seed=0).low)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interquartile_mean([]), "non-empty"),
        (lambda: interquartile_interval([1.0], seed=0, resamples=0), "resamples"),
        (lambda: paired_improvement([1.0], [1.0, 2.0]), "one length"),
        (lambda: unpaired_improvement([1.0], [2.0], 1.5), "confidence"),
    ],
)
def test_errors_name_the_argument(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("n", "m"), [(1, 5), (3, 4), (6, 6), (10, 10)])
def test_the_rank_sum_test_is_exact_with_and_without_ties(n: int, m: int) -> None:
    random = np.random.default_rng(n)
    a, b = random.normal(size=n) + 1, random.normal(size=m)
    assert rank_sum_test(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue, rel=1e-12)
    if n > 1:
        a, b = random.integers(0, 4, n), random.integers(0, 5, m)
        everything = stats.PermutationMethod(200_000)
        assert rank_sum_test(a, b) == pytest.approx(stats.mannwhitneyu(a, b, method=everything).pvalue, rel=1e-9)
    assert rank_sum_test([1.0] * n, [1.0] * m) == 1.0


def test_the_rank_sum_test_goes_over_to_the_normal_approximation() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=50) + 0.3, random.normal(size=51)
    assert rank_sum_test(a, b) == stats.mannwhitneyu(a, b, method="asymptotic").pvalue
    assert rank_sum_test(a, b[:50]) == pytest.approx(stats.mannwhitneyu(a, b[:50], method="exact").pvalue, rel=1e-9)
    assert rank_sum_test(np.ones(80), np.ones(80)) == 1.0
