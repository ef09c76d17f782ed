"""The result object: tables by hand and comparisons."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from result_cases import POLICIES, STEPS, assert_equal, make_block, make_result, make_spec
from stau_rl.kernels.contract import Block
from stau_rl.regret.result import RegretResult
from stau_rl.statistics.means import holm, wilson_interval


def test_summary_rows_are_their_definitions() -> None:
    result = make_result()
    table = result.summary()
    assert table["policy"].tolist() == [p for p in POLICIES for _ in STEPS]
    assert table["step"].tolist() == STEPS * 3
    for p in range(3):
        for c in range(3):
            row, x = table.iloc[3 * p + c], result.regret[p, c]
            assert_allclose(row["regret"], x.mean(), rtol=1e-13)
            assert_allclose(row["regret_se"], stats.sem(x), rtol=1e-12)
            low, high = stats.t.interval(0.95, 59, loc=x.mean(), scale=stats.sem(x))
            assert_allclose([row["regret_low"], row["regret_high"]], [low, high], rtol=1e-12)
            assert_allclose([row["q05"], row["q50"], row["q95"]], np.quantile(x, [0.05, 0.5, 0.95]), rtol=1e-13)
            assert_allclose(row["cvar95"], np.sort(x)[-3:].mean(), rtol=1e-13)
            hits = result.optimal[p, c].sum()
            assert row["best_arm_rate"] == hits / 60
            assert (row["best_arm_low"], row["best_arm_high"]) == wilson_interval(hits, 60)


def test_stuck_rate_stands_in_the_last_row_alone() -> None:
    # The last tenth of 1 000 steps has 100 pulls: stuck is fewer than one optimal pull.
    result = make_result(10)
    result.late_optimal[:] = [[0, 0, 0, 1, 1, 50, 99, 100, 100, 100]] * 3
    assert_array_equal(result.stuck.sum(axis=1), 3)
    assert_array_equal(result.summary()["stuck_rate"], [np.nan, np.nan, 0.3] * 3)


@pytest.mark.parametrize(("horizon", "late", "stuck"), [(5, 0, True), (5, 1, False), (2000, 1, True), (2000, 2, False)])
def test_stuck_is_below_one_percent_of_the_last_tenth(horizon: int, late: int, stuck: bool) -> None:
    result = make_result(2, horizon=horizon)
    result.late_optimal[:] = late
    assert_array_equal(result.stuck, stuck)


def test_compare_rows_are_their_definitions() -> None:
    result = make_result()
    table = result.compare()
    assert table["policy"].tolist() == [p for p in POLICIES[1:] for _ in STEPS]
    assert set(table["baseline"]) == {POLICIES[0]}
    for p in (1, 2):
        for c in range(3):
            row = table.iloc[3 * (p - 1) + c]
            x, y = result.regret[p, c], result.regret[0, c]
            assert_allclose(row["difference"], np.mean(x - y), rtol=1e-10)
            assert_allclose(row["percent"], 100 * (x.mean() / y.mean() - 1), rtol=1e-10)
            assert_allclose(row["p_value"], stats.ttest_rel(x, y).pvalue, rtol=1e-10)
            assert row["difference_low"] < row["difference"] < row["difference_high"]
            assert row["percent_low"] < row["percent"] < row["percent_high"]
    last = table[table["step"] == 100]
    assert_array_equal(last["p_holm"], holm(last["p_value"]))
    assert table.loc[table["step"] < 100, "p_holm"].isna().all()


def test_compare_with_a_named_baseline_turns_signs() -> None:
    result = make_result()
    there = result.compare(POLICIES[2]).query("step == 100").set_index("policy")
    here = result.compare(POLICIES[0]).query("step == 100").set_index("policy")
    a, b = there.loc[POLICIES[0]], here.loc[POLICIES[2]]
    assert a["difference"] == -b["difference"]
    # The same resamples, the other way round.
    assert_allclose([a["difference_low"], a["difference_high"]], [-b["difference_high"], -b["difference_low"]])
    assert a["p_value"] == b["p_value"]


def test_intervals_follow_the_seed_and_estimates_do_not() -> None:
    a, b = make_result().compare(), make_result(seed=8).compare()
    for name in ("difference", "percent"):
        assert_array_equal(a[name], b[name])
        assert (a[f"{name}_low"] != b[f"{name}_low"]).all()


def test_comparison_of_two_does_not_depend_on_a_third() -> None:
    two = make_result(policies=POLICIES[:2]).compare().drop(columns="p_holm")
    three = make_result().compare().drop(columns="p_holm")
    pd.testing.assert_frame_equal(two, three[three["policy"] == POLICIES[1]], check_exact=True)


def test_compare_without_a_baseline_in_the_spec_takes_the_first() -> None:
    assert set(make_result(baseline=None).compare()["baseline"]) == {POLICIES[0]}
    assert make_result(policies=POLICIES[:1]).compare().empty


def test_unknown_names_are_listed_with_the_known() -> None:
    for call in (make_result().compare, make_result().index):
        with pytest.raises(ValueError, match=r"'thompson' is not .* 'ucb \| argmax'"):
            call("thompson")
    with pytest.raises(ValueError, match="baseline 'thompson'"):
        make_result(baseline="thompson")


def test_tables_follow_the_arrays_and_are_copies() -> None:
    result = make_result()
    first = result.summary()
    first.loc[:, "regret"] = -1.0
    assert (result.summary()["regret"] > 0).all()
    result.put(POLICIES[1], 0, make_block(9, 60))
    assert result.summary()["regret"].iloc[3] == pytest.approx(result.regret[1, 0].mean())


def test_put_places_blocks_by_instance() -> None:
    whole, parts = make_result(60), RegretResult.allocate(make_spec(60), np.full(60, 0.9), 4, 2.25)
    for p, policy in enumerate(POLICIES):
        block = make_block(p, 60)
        for first, last in ((40, 60), (0, 25), (25, 40)):
            some = slice(first, last)
            parts.put(
                policy,
                first,
                Block(
                    block.regret[:, some],
                    block.optimal[:, some],
                    block.late_optimal[some],
                    block.pulls[:, some],
                    block.reward_sums[:, some],
                ),
            )
    assert_equal(whole, parts)


def test_blocks_and_arrays_that_do_not_fit_are_refused() -> None:
    result = make_result(10)
    with pytest.raises(ValueError, match="instances 5 to 14 do not fit"):
        result.put(POLICIES[0], 5, make_block(0, 10))
    with pytest.raises(ValueError, match="4 arms"):
        result.put(POLICIES[0], 0, make_block(0, 10, arms=3))
    with pytest.raises(ValueError, match=r"best_mean must be float64 \[10\]"):
        RegretResult.allocate(make_spec(10), np.zeros(9), 4)
    with pytest.raises(ValueError, match="lacks seed"):
        RegretResult.allocate({k: v for k, v in make_spec(10).items() if k != "seed"}, np.zeros(10), 4)
    with pytest.raises(ValueError, match="different texts"):
        RegretResult.allocate(make_spec(10, ["a", "a"]), np.zeros(10), 4)
    with pytest.raises(ValueError, match="ascend"):
        RegretResult.allocate(make_spec(10, checkpoints=[10, 1, 100]), np.zeros(10), 4)
