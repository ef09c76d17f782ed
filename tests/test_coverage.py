"""The intervals cover at their rate in simulated studies: a smaller run of `python -m stau_rl.checks.coverage`."""

from dataclasses import replace

import pytest

from stau_rl.checks import coverage
from stau_rl.checks.coverage import CASES, Rate, false_rejections, simulate, table


def test_intervals_cover_and_holm_holds_its_level() -> None:
    # 1 000 studies of 120 instances, fixed seed; the truth from 300 000 instances adds 2 % of a study's error. A rate
    # of 95 % then has a standard error of 0.69 %: one outside [93, 97] % happens by chance 4 times in 1 000.
    # Holm's rate is at most 5 %, with a standard error of 0.7 %; a procedure at 9 % would pass 3 times in 1 000.
    case = replace(CASES[0], slopes=(10.0, 100.0, 300.0))
    rates = simulate(case, studies=1_000, instances=120, seed=1, truth=300_000, resamples=300)
    assert [rate.studies for rate in rates] == [1_000] * 8
    for rate in rates:
        assert rate.acceptable, table(rates)
    rejections = false_rejections(CASES[0], studies=1_000, instances=120, seed=1)
    assert 0.02 <= rejections.rate <= 0.065, table([rejections])


def test_skewed_regrets_are_covered_by_what_is_studentised() -> None:
    # 300 studies: 95 % has a standard error of 1.3 %. A band of the plain bootstrap has about 85 % here.
    case = replace(CASES[1], horizon=200, slopes=(4.0, 8.0, 32.0))
    rates = {
        rate.name.split("of the ")[1]: rate.rate
        for rate in simulate(case, studies=300, instances=150, seed=2, truth=200_000, resamples=300)
    }
    for name in ("mean, studentised", "whole curve", "interquartile mean", "probability of improvement"):
        assert 0.91 <= rates[name] <= 0.985, rates
    assert rates["tuned percentage"] >= 0.91, rates


def test_an_interval_that_is_too_narrow_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 80 % intervals in the place of 95 % ones, the check fails: it is able to."""
    names = ("mean_interval", "paired_bootstrap", "curve_band", "interquartile_interval", "paired_improvement")
    for name in (*names, "selected_bootstrap"):
        real = getattr(coverage, name)
        monkeypatch.setattr(
            coverage, name, lambda *values, real=real, **given: real(*values, **(given | {"confidence": 0.8}))
        )
    case = replace(CASES[0], slopes=(1.0, 300.0))
    rates = simulate(case, studies=200, instances=50, seed=2, truth=50_000, resamples=200)
    assert not any(rate.acceptable for rate in rates)


def test_the_table_marks_what_is_out_of_range() -> None:
    text = table([Rate("a covers", 95, 100, 0.93, 0.97), Rate("b covers", 80, 100, 0.93, 0.97)])
    first, second = text.splitlines()[2:]
    assert "95.00 %" in first
    assert "does not" not in first
    assert "80.00 %" in second
    assert "it does not" in second
    assert table([Rate("c covers", 80, 100, 0.0, 1.0)]).endswith("| - |")
