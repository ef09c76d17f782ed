"""The intervals cover at their rate in simulated studies: a smaller run of `python -m stau_rl.coverage`."""

import pytest

from stau_rl import coverage
from stau_rl.coverage import Rate, simulate, table


def test_intervals_cover_and_holm_holds_its_level() -> None:
    # 1 000 studies of 120 instances, fixed seed; the truth from 300 000 instances adds 2 % of a study's error. A rate
    # of 95 % then has a standard error of 0.69 %: one outside [93, 97] % happens by chance 4 times in 1 000.
    # Holm's rate is at most 5 %, with a standard error of 0.7 %; a procedure at 9 % would pass 3 times in 1 000.
    rates = simulate(studies=1_000, instances=120, seed=1, truth=300_000, resamples=300)
    assert [rate.studies for rate in rates] == [1_000] * 4
    for rate in rates[:3]:
        assert rate.acceptable, table(rates)
    assert rates[3].rate <= 0.065, table(rates)
    assert rates[3].rate >= 0.02, table(rates)


def test_an_interval_that_is_too_narrow_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 80 % intervals in the place of 95 % ones, the check fails: it is able to."""
    real_mean, real_bootstrap = coverage.mean_interval, coverage.paired_bootstrap
    monkeypatch.setattr(coverage, "mean_interval", lambda values: real_mean(values, 0.8))
    monkeypatch.setattr(
        coverage, "paired_bootstrap", lambda x, y, **given: real_bootstrap(x, y, **(given | {"confidence": 0.8}))
    )
    rates = simulate(studies=200, instances=50, seed=2, truth=50_000, resamples=200)
    assert not any(rate.acceptable for rate in rates[:3])


def test_the_table_marks_what_is_out_of_range() -> None:
    text = table([Rate("a covers", 95, 100, 0.93, 0.97), Rate("b covers", 80, 100, 0.93, 0.97)])
    first, second = text.splitlines()[2:]
    assert "95.00 %" in first
    assert "does not" not in first
    assert "80.00 %" in second
    assert "it does not" in second
