"""Correlations of clustered pairs: scipy's numbers on repeated pairs, Fisher's table, coverage, and a narrow range."""

import numpy as np
import pytest
from scipy import stats

from stau_rl.statistics.correlation import clustered_interval, fisher_interval, pearson, restricted, slope, spearman

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=12), 1)  # With ties.
Y = np.round(X + RNG.normal(size=12), 1)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(pearson, stats.pearsonr), (spearman, stats.spearmanr), (slope, lambda x, y: [stats.linregress(x, y).slope])],
)
def test_a_weight_is_a_number_of_copies(ours, theirs) -> None:
    """Whole weights are pairs that stand there so often, weight 0 leaves one out."""
    weights = RNG.integers(0, 4, size=(5, 12)).astype(float)
    expected = [theirs(np.repeat(X, row.astype(int)), np.repeat(Y, row.astype(int)))[0] for row in weights]
    np.testing.assert_allclose(ours(X, Y, weights), expected, rtol=1e-12)


def test_what_does_not_vary_has_no_correlation() -> None:
    one = np.ones((1, 3))
    for statistic in (pearson, spearman, slope):
        assert np.isnan(statistic(np.ones(3), np.array([1.0, 2.0, 4.0]), one)).all()


def test_fishers_interval() -> None:
    """artanh(1/2) = ln(3) / 2, and n = 28 has a standard error of 1/5."""
    found = fisher_interval(0.5, 28)
    np.testing.assert_allclose(
        np.arctanh([found.low, found.high]), np.log(3) / 2 + 1.959963985 / 5 * np.array([-1, 1]), rtol=1e-8
    )
    assert np.isnan(fisher_interval(0.5, 3).low)
    with pytest.raises(ValueError, match=r"r must lie in \[-1, 1\], got 1\.5"):
        fisher_interval(1.5, 9)


def test_whole_clusters_are_drawn() -> None:
    """Copies of a cluster's pairs add nothing to what its clusters say, where Fisher's interval shrinks."""
    clusters = np.arange(12)
    once = clustered_interval(pearson, X, Y, clusters, seed=1)
    often = clustered_interval(pearson, np.tile(X, 30), np.tile(Y, 30), np.tile(clusters, 30), seed=1)
    np.testing.assert_allclose([often.value, often.low, often.high], [once.value, once.low, once.high], rtol=1e-12)
    assert once.low < once.value < once.high
    assert fisher_interval(once.value, 360).high - fisher_interval(once.value, 360).low < (once.high - once.low) / 3


def test_few_clusters_have_no_interval_and_lengths_must_match() -> None:
    assert np.isnan(clustered_interval(pearson, X, Y, np.arange(12) % 5, seed=1).low)
    with pytest.raises(ValueError, match=r"vectors of one length >= 1, got \(12,\), \(12,\), \(3,\)"):
        clustered_interval(pearson, X, Y, [1, 2, 3], seed=1)


def test_coverage_over_clusters() -> None:
    """30 clusters of 4 pairs, whose common part has correlation 0.6: covers about 95 % of 200 times, 88 % at least."""
    rng = np.random.default_rng(3)
    held = 0
    for number in range(200):
        x = np.repeat(rng.normal(size=30), 4)
        y = 0.6 * x + 0.8 * np.repeat(rng.normal(size=30), 4)
        found = clustered_interval(pearson, x, y, np.repeat(np.arange(30), 4), seed=number, resamples=400)
        held += found.low <= 0.6 <= found.high
    # Of Binomial(200, 0.92), what a percentile interval of 30 clusters reaches, less than 176 has probability 2 %.
    assert 176 <= held <= 199


def test_a_narrow_range_has_a_lower_correlation() -> None:
    """Pairs of correlation 0.9 whose x lies within a narrow window, against the formula."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=400_000)
    y = 0.9 * x + np.sqrt(1 - 0.81) * rng.normal(size=x.size)
    inside = np.abs(x) < 0.2
    seen = np.corrcoef(x[inside], y[inside])[0, 1]
    assert restricted(0.9, x[inside].std() / x.std()) == pytest.approx(seen, abs=0.01)
    assert restricted(0.9, 1.0) == pytest.approx(0.9, rel=1e-12)
