"""Simultaneous bands against the two cases with a closed form: independent points, and one point many times."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

from stau_rl.statistics.bootstrap import group_starts
from stau_rl.statistics.simultaneous import curve_band


def _normal(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).normal(size=shape)


def test_independent_points_have_sidaks_critical_value() -> None:
    # P(max |Z_c| <= z) = (2 Phi(z) - 1)^C, so z = Phi^-1((1 + 0.95^(1/12)) / 2) = 2.85.
    found = curve_band(_normal((12, 4000)), seed=1, resamples=8000)
    sidak = special.ndtri((1 + 0.95 ** (1 / 12)) / 2)
    # The 95 % quantile of 8 000 maxima has a standard error of about 0.02.
    # Each side alone at 97.5 %: Phi^-1(0.975^(1/12)) = 2.86, nearly the same.
    assert found.below == pytest.approx(sidak, abs=0.1)
    assert found.above == pytest.approx(sidak, abs=0.1)


def test_one_point_repeated_needs_no_more_than_a_pointwise_interval() -> None:
    x = _normal((1, 4000)) * np.arange(1, 9)[:, None] + 5
    found = curve_band(x, seed=2, resamples=8000)
    assert found.below == pytest.approx(special.ndtri(0.975), abs=0.08)
    assert found.above == pytest.approx(special.ndtri(0.975), abs=0.08)
    se = x.std(axis=1, ddof=1) / np.sqrt(4000)
    assert_allclose(found.high - found.mean, found.above * se, rtol=1e-9)
    assert_allclose(found.mean - found.low, found.below * se, rtol=1e-9)


def test_band_covers_whole_curves() -> None:
    # 400 random walks of 15 steps and 60 instances with mean 0: standard error of the rate 1.1 %.
    hits = 0
    for study in range(400):
        walk = _normal((15, 60), seed=study + 10).cumsum(axis=0)
        band = curve_band(walk, seed=study, resamples=300)
        hits += bool(np.all((band.low <= 0) & (band.high >= 0)))
    assert 0.90 <= hits / 400 <= 0.98


def test_band_of_one_point_is_the_bootstrap_t_interval_by_index() -> None:
    """Resampled one by one with numpy's own mean and standard deviation."""
    x = np.random.Generator(np.random.PCG64(3)).exponential(size=50)
    found = curve_band(x[None], seed=7, resamples=500)
    drawn = x[np.random.Generator(np.random.PCG64(7)).integers(50, size=(500, 50))]
    t = (drawn.mean(axis=1) - x.mean()) / (drawn.std(axis=1, ddof=1) / np.sqrt(50))
    se = x.std(ddof=1) / np.sqrt(50)
    ends = x.mean() - np.quantile(t, [0.975, 0.025]) * se
    assert_allclose([found.low[0], found.high[0]], ends, rtol=1e-10)


@pytest.mark.parametrize("n", [100, 400])
def test_band_covers_whole_curves_of_skewed_values(n: int) -> None:
    """Log-normal with sigma = 1 (skewness 6), twelve correlated points; a band of fixed width has 80 % at n = 100."""
    generator = np.random.Generator(np.random.PCG64(n))
    hits = 0
    for study in range(400):
        common = 0.7 * generator.normal(size=(1, n)) + np.sqrt(0.51) * generator.normal(size=(12, n))
        band = curve_band(np.exp(common), seed=study, resamples=400)
        hits += bool(np.all((band.low <= np.exp(0.5)) & (np.exp(0.5) <= band.high)))
    # 95 % has a standard error of 1.1 %.
    assert 0.915 <= hits / 400 <= 0.98


def test_nan_and_infinite_values_are_refused() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"values must be finite, got .* at \[1, 0\]"):
            curve_band([[1.0, 2.0], [bad, 1.0]], seed=0)


def test_constant_points_have_no_band_and_do_not_widen_the_others() -> None:
    x = _normal((2, 500))
    flat = np.concatenate([x, np.full((1, 500), 0.1)])
    with_flat, without = curve_band(flat, seed=0), curve_band(x, seed=0)
    assert with_flat.below == pytest.approx(without.below, rel=1e-12)
    assert with_flat.above == pytest.approx(without.above, rel=1e-12)
    assert np.isnan([with_flat.low[2], with_flat.high[2]]).all()
    assert with_flat.mean[2] == pytest.approx(0.1)


def _coverage(draw: Callable[[np.random.Generator], np.ndarray], truth: np.ndarray) -> tuple[int, int]:
    """Of 400 studies, how many have a band, and in how many of these it covers wherever it is."""
    banded = hits = 0
    for study in range(400):
        band = curve_band(draw(np.random.Generator(np.random.PCG64(study))), seed=study, resamples=200)
        there = ~np.isnan(band.low)
        assert_array_equal(there, ~np.isnan(band.high))
        assert there.any() == (not np.isnan(band.below)) == (not np.isnan(band.above))
        banded += bool(there.any())
        hits += bool(there.any()) and bool(np.all(((band.low <= truth) & (truth <= band.high))[there]))
    return banded, hits


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_few_instances_have_no_band_or_one_that_covers(n: int) -> None:
    """A resample is one value n times with probability n^(1 - n): 1/2, 1/9, 1/64, ..., against 1/40 on a side."""
    for points in (1, 5):
        banded, hits = _coverage(lambda random, points=points: random.exponential(size=(points, n)), np.ones(points))
        assert banded == 0 if n < 4 else banded >= 320
        # Standard error 1.1 %; so few instances are covered more often than asked.
        assert hits >= 0.9 * banded


@pytest.mark.parametrize("n", [40, 400])
@pytest.mark.parametrize("jitter", [0.0, 1e-4])
def test_nearly_constant_points_have_no_band_or_one_that_covers(n: int, jitter: float) -> None:
    """Three instances of n differ from the rest on average: seldom enough for a band, and then it covers."""

    def draw(random: np.random.Generator) -> np.ndarray:
        return (random.random((1, n)) < 3 / n) + jitter * random.normal(size=(1, n))

    banded, hits = _coverage(draw, np.array([3 / n]))
    # P(Poisson(3) >= 4) = 0.35. Where the jitter alone is seen, 5 %, nothing tells that there is more.
    assert 0.3 * 400 <= banded <= 0.45 * 400
    assert banded - hits <= (0.05 + 0.08 * bool(jitter)) * 400


def test_one_odd_instance_gives_no_band_and_five_give_one() -> None:
    """Of 1 000 resamples 37 % lack a single odd instance, 0.7 % lack five."""
    x = np.full((2, 1000), 0.1)
    x[0, 0] += 1
    one = curve_band(x, seed=0)
    assert np.isnan([*one.low, *one.high, one.below, one.above]).all()
    x[0, :5] = 1.1
    five = curve_band(x, seed=0)
    # Exact limits of a Poisson mean with 5 seen are 1.6 and 11.7.
    assert 0.1 + 1e-3 < five.low[0] < 0.105
    assert 0.108 < five.high[0] < 0.12
    assert np.isnan([five.low[1], five.high[1]]).all()


def test_one_instance_has_no_band_and_errors_name_the_argument() -> None:
    assert np.isnan(curve_band([[1.0], [2.0]], seed=0).low).all()
    with pytest.raises(ValueError, match="points"):
        curve_band([1.0], seed=0)
    with pytest.raises(ValueError, match="resamples"):
        curve_band([[1.0]], seed=0, resamples=0)
    for bad in (0.0, 1.0):
        with pytest.raises(ValueError, match="confidence"):
            curve_band([[1.0]], seed=0, confidence=bad)
    # A single resample is little, and legal.
    one = curve_band(_normal((1, 50)), seed=0, resamples=1)
    assert max(one.below, one.above) > min(one.below, one.above) == 0.0


def test_runs_of_instances_are_resampled_with_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 instances in 30 runs of 3 or 4: means are ratios of sums, and the standard error is that of residuals."""
    monkeypatch.setattr("stau_rl.statistics.simultaneous.group_starts", lambda n: group_starts(n, 30))
    x = np.random.Generator(np.random.PCG64(5)).exponential(size=100)
    found = curve_band(x[None], seed=7, resamples=400)
    deviations = np.split(x - x.mean(), group_starts(100, 30)[1:])
    sums, sizes = np.array([run.sum() for run in deviations]), np.array([run.size for run in deviations])
    assert set(sizes) == {3, 4}
    t = []
    for drawn in np.random.Generator(np.random.PCG64(7)).integers(30, size=(400, 30)):
        total = sizes[drawn].sum()
        mean = sums[drawn].sum() / total
        residuals = sums[drawn] - mean * sizes[drawn]
        t.append(mean / (np.sqrt(30 / 29 * (residuals**2).sum()) / total))
    assert found.below == pytest.approx(np.quantile(np.maximum(t, 0), 0.975), rel=1e-9)
    assert found.above == pytest.approx(-np.quantile(np.minimum(t, 0), 0.025), rel=1e-9)
