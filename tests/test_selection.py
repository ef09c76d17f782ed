"""Tuned comparisons: the bootstrap of choice and evaluation against a loop by index, limits, and coverage."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stau_rl.statistics.bootstrap import expanded_levels, paired_bootstrap
from stau_rl.statistics.means import paired_test
from stau_rl.statistics.selection import selected_bootstrap


def _draw(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).gamma(2.0, 10.0, shape)


def test_it_is_the_bootstrap_by_index() -> None:
    """Every resample chosen and compared one by one."""
    tuned, played, base_tuned, base_played = _draw((3, 40), 1), _draw((3, 30), 2), _draw((2, 40), 3), _draw((2, 30), 4)
    found = selected_bootstrap((tuned, played), (base_tuned, base_played), seed=5, resamples=300)
    choose = np.random.Generator(np.random.PCG64(np.random.SeedSequence([5, 1]))).integers(40, size=(300, 40))
    judge = np.random.Generator(np.random.PCG64(5)).integers(30, size=(300, 30))
    pairs = []
    for some, others in zip(choose, judge, strict=True):
        mine, theirs = tuned[:, some].mean(axis=1).argmin(), base_tuned[:, some].mean(axis=1).argmin()
        pairs.append((played[mine, others].mean(), base_played[theirs, others].mean()))
    a, b = np.array(pairs).T
    levels = expanded_levels(30, 0.95)
    assert_allclose([found.difference_low, found.difference_high], np.quantile(a - b, levels), rtol=1e-10)
    assert_allclose([found.percent_low, found.percent_high], np.quantile(100 * (a / b - 1), levels), rtol=1e-10)
    best, base = played[tuned.mean(axis=1).argmin()], base_played[base_tuned.mean(axis=1).argmin()]
    assert found.difference == pytest.approx((best - base).mean())
    assert found.percent == pytest.approx(100 * (best.mean() / base.mean() - 1))


def test_without_a_choice_it_is_the_paired_bootstrap() -> None:
    """One member each, or one far better than the rest."""
    x, y = _draw((1, 80), 1), _draw((1, 80), 2)
    plain = paired_bootstrap([x], y, seed=3, resamples=400)
    clear = np.concatenate([x, x + 500])
    for mine in (x, clear):
        found = selected_bootstrap((mine, mine), (np.zeros((1, 1)), y), seed=3, resamples=400)
        for name in ("difference", "difference_low", "difference_high", "percent", "percent_low", "percent_high"):
            assert getattr(found, name) == pytest.approx(float(getattr(plain, name)[0, 0]), rel=1e-9)
        # Bootstrap against analytic standard error: 400 resamples know it to 4 %.
        assert found.p_value == pytest.approx(paired_test(x[0], y[0]), abs=0.1)
    same = selected_bootstrap((x, x), (x, x), seed=3)
    assert (same.difference, same.percent, same.p_value) == (0.0, 0.0, 1.0)


def test_percentages_do_not_depend_on_the_unit() -> None:
    x, y = _draw((2, 80), 1), _draw((2, 80), 2)
    first, second = (selected_bootstrap((u * x, u * x), (u * y, u * y), seed=3, resamples=100) for u in (1.0, 2.0**-20))
    for name in ("percent", "percent_low", "percent_high", "p_value"):
        assert getattr(first, name) == getattr(second, name)
    assert second.difference_low == 2.0**-20 * first.difference_low


def test_a_choice_among_equals_widens_the_interval() -> None:
    """Two members that tuning cannot tell apart and evaluation can: the interval holds what lies between them."""
    noise = _draw((1, 200), 1)
    tuned = np.concatenate([noise, noise[:, ::-1]])
    played = np.concatenate([np.full((1, 200), 50.0), np.full((1, 200), 60.0)])
    played += _draw((2, 200), 2) / 100
    base = np.full((1, 200), 40.0)
    found = selected_bootstrap((tuned, played), (tuned[:1], base), seed=0)
    assert found.percent_low == pytest.approx(25, abs=1)
    assert found.percent_high == pytest.approx(50, abs=1)


@pytest.mark.parametrize("gap", [0.0, 0.5, 2.0])
def test_it_covers_the_best_members_whatever_lies_between_them(gap: float) -> None:
    """Members of means 20, 20 + gap, 20 + 2 gap on skewed values, against 20 and 20 + gap: truth 0."""
    generator = np.random.Generator(np.random.PCG64(int(10 * gap)))
    hits, narrow = 0, 0
    for study in range(400):
        families = []
        for members in (3, 2):
            level = 20 + gap * np.arange(members)[:, None]
            families.append(tuple(level * generator.exponential(size=(members, 100)) for _ in range(2)))
        found = selected_bootstrap(families[0], families[1], seed=study, resamples=300)
        hits += found.percent_low <= 0 <= found.percent_high
        chosen = [played[tuned.mean(axis=1).argmin()] for tuned, played in families]
        plain = paired_bootstrap([chosen[0][None]], chosen[1][None], seed=study, resamples=300)
        narrow += plain.percent_low[0, 0] <= 0 <= plain.percent_high[0, 0]
    # 95 % has a standard error of 1.1 %; wider is allowed, as the choice comes in on top.
    assert hits / 400 >= 0.92
    assert hits >= narrow - 4


def test_two_resamples_are_little_and_legal() -> None:
    x, y = _draw((1, 20), 1), _draw((1, 20), 2)
    found = selected_bootstrap((x, x), (y, y), seed=0, resamples=2)
    assert found.difference_low < found.difference_high


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_few_instances_have_no_interval(n: int) -> None:
    x, y = _draw((2, 40), 1), _draw((1, 40), 2)
    found = selected_bootstrap((x, x[:, :n]), (y, y[:, :n]), seed=0, resamples=100)
    ends = [found.difference_low, found.difference_high, found.percent_low, found.percent_high]
    assert np.isnan(ends).all() if n < 6 else np.isfinite(ends).all()
    assert np.isfinite([found.difference, found.percent]).all()
    # Student's test knows what two values do not tell.
    assert np.isnan(found.p_value) == (n == 1)


def test_constant_families_and_baselines_that_are_not_above_0() -> None:
    x, zero = _draw((1, 30), 1), np.zeros((1, 30))
    for base in (zero, -x):
        found = selected_bootstrap((x, x), (base, base), seed=0, resamples=100)
        assert np.isnan([found.percent, found.percent_low, found.percent_high]).all()
        assert found.difference_low < found.difference < found.difference_high
    across = x - x.mean() + 1
    found = selected_bootstrap((x, x), (across, across), seed=0, resamples=400)
    assert np.isfinite(found.percent)
    assert np.isnan([found.percent_low, found.percent_high]).all()
    # No spread: the limit of the test, whatever rounding the resampled means have, and whatever the baseline.
    flat = np.full((1, 30), 0.1)
    for one, other, p_value in ((flat, flat, 1.0), (flat, zero, 2.0**-29), (zero, flat, 2.0**-29), (zero, zero, 1.0)):
        found = selected_bootstrap((one, one), (other, other), seed=0, resamples=100)
        assert found.p_value == p_value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": ([[1.0, np.nan]], [[1.0, 2.0]])}, "tuning values must be finite"),
        ({"candidates": ([[1.0, 2.0]], [[1.0, np.inf]])}, "evaluation values must be finite"),
        ({"candidates": ([[1.0, 2.0]], [[1.0]])}, "evaluations must be paired, got 1 and 2"),
        ({"candidates": ([[1.0, 2.0]], [1.0])}, "of equal members"),
        ({"resamples": 1}, "resamples must be >= 2"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 0.0}, "confidence"),
    ],
)
def test_errors_name_the_argument(changes: dict, message: str) -> None:
    good = {"candidates": ([[1.0, 2.0]], [[1.0, 2.0]]), "baseline": ([[1.0, 2.0]], [[1.0, 2.0]]), "seed": 0}
    with pytest.raises(ValueError, match=message):
        selected_bootstrap(**(good | changes))
