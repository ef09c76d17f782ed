"""Matched controls: the error of a matched parameter is known, and is in the interval of what is compared with it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose

from stau_rl.agents.bandit import parse_policy
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.study import match as study_match
from stau_rl.study import pilot as study_pilot
from stau_rl.study.compare import play_setting
from stau_rl.study.family import Family
from stau_rl.study.match import find_control, unmatched
from stau_rl.study.pilot import seen_scores, steps_unscored
from stau_rl.study.play import with_holm
from stau_rl.study.report import notes
from stau_rl.study.setting import Setting

SOFTMAX, S_TAU = "centred_ucb(c=0.25) | softmax(beta=1)", "centred_ucb(c=0.25) | s_tau(tau=5)"
SETTING = Setting(
    sweep="base",
    value="gaussian(k=5)",
    arms="gaussian(k=5)",
    families=(SOFTMAX, S_TAU),
    horizon=200,
    instances=1_000,
    tuning_instances=20,
    pilot_instances=100,
    seed=0,
    low=0.75,
    high=50.0,
    coarse=3,
    fine=0,
    finalists=1,
)


def _other_pilot(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Move the pilot's key and nothing else."""
    monkeypatch.setattr(study_match, "purpose_seed", lambda seed, purpose: purpose_seed(seed + 1000 * number, purpose))


def test_the_standard_error_is_the_spread_over_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    found, errors = [], []
    for number in range(30):
        _other_pilot(monkeypatch, number)
        control = find_control("entropy", Family(S_TAU), Family(SOFTMAX), SETTING)
        assert control is not None
        found.append(np.log(Family(SOFTMAX).slope(control.policy)))
        errors.append(control.log_se)
    # The standard deviation of 30 has a standard error of 13 %.
    assert np.std(found, ddof=1) == pytest.approx(np.mean(errors), rel=0.4)
    exact = find_control("slope", Family(S_TAU), Family(SOFTMAX), SETTING)
    assert exact is not None
    assert (exact.log_se, exact.beside) == (0.0, ())


def _entropy_row(setting: Setting) -> pd.Series:
    table = play_setting(setting)
    return table[table["comparison"] == "entropy"].iloc[0]


def test_two_pilots_agree_within_the_interval_that_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred pilot instances move the difference by percents; the interval holds them and shrinks with the pilot."""
    rows = []
    for number in range(4):
        _other_pilot(monkeypatch, number)
        rows.append(_entropy_row(SETTING))
    moved = [row["percent"] for row in rows]
    widths = [row["percent_high"] - row["percent_low"] for row in rows]
    # The spread of the pilots is in the width: 3.92 standard errors or more.
    assert np.mean(widths) > 3.92 * np.std(moved, ddof=1) * 0.7
    centre = np.mean(moved)
    assert sum(row["percent_low"] <= centre <= row["percent_high"] for row in rows) >= 3
    large = []
    for number in range(2):
        _other_pilot(monkeypatch, number)
        large.append(_entropy_row(replace(SETTING, pilot_instances=1_600)))
    assert large[0]["match_error"] == pytest.approx(rows[0]["match_error"] / 4, rel=0.4)
    assert abs(large[0]["percent"] - large[1]["percent"]) < 0.5 * (large[0]["percent_high"] - large[0]["percent_low"])


def test_a_blunt_pilot_widens_interval_and_p_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delta method by hand: the half-widths add in squares."""
    row = _entropy_row(SETTING)
    monkeypatch.setattr(study_match, "_log_error", lambda *_: 1e-12)
    sharp = _entropy_row(SETTING)
    assert sharp["percent"] == row["percent"]
    control = find_control("entropy", Family(S_TAU), Family(SOFTMAX), SETTING)
    assert control is not None
    from stau_rl.regret.run import run_regret

    beside = run_regret(SETTING.arms, [S_TAU, *control.beside], 200, 1_000, 0, checkpoints=[200]).regret[:, 0].mean(1)
    slope = 100 * (beside[0] / beside[2] - beside[0] / beside[1]) / control.apart
    extra = 1.959964 * slope * row["match_error"]
    for end in ("low", "high"):
        inner, outer = (abs(one[f"percent_{end}"] - one["percent"]) for one in (sharp, row))
        assert outer == pytest.approx(np.hypot(inner, extra), rel=0.02)
    assert row["p_value"] > sharp["p_value"]


def test_a_control_next_to_the_smallest_legal_parameter_has_a_neighbour_above() -> None:
    soft = "centred_ucb(c=0.25) | softmax(beta=0.659)"
    control = find_control("entropy", Family(soft), Family(S_TAU), replace(SETTING, pilot_instances=400))
    assert control is not None
    assert control.beside[0] == control.policy
    assert Family(S_TAU).slope(control.beside[1]) > Family(S_TAU).slope(control.policy)
    assert control.log_se > 0
    # Softer still, there is none.
    assert find_control("entropy", Family("centred_ucb(c=0.25) | softmax(beta=0.3)"), Family(S_TAU), SETTING) is None


def test_scores_of_a_pilot_do_not_depend_on_its_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = seen_scores(parse_policy(S_TAU), "gaussian(k=3)", 50, 20, 7)
    monkeypatch.setattr(study_pilot, "RECORDED", 50 * 6)
    assert_allclose(seen_scores(parse_policy(S_TAU), "gaussian(k=3)", 50, 20, 7).numpy(), whole.numpy(), rtol=0, atol=0)
    assert whole.dtype == torch.float64


@pytest.mark.parametrize(
    ("kind", "family", "reason"),
    [
        ("slope", "ucb | softmax(beta=4*log(t))", "softmax(beta=4*log(t)) changes with t"),
        ("entropy", "ucb | s_tau(tau={x})", "s_tau(tau={x}) is a template, whose {x} may be anything"),
        ("slope", "ucb | escort(p=2)", "escort(p=2) is not smooth at score 0"),
        ("entropy", "ucb | escort(p=2)", ""),
        ("slope", "thompson", "thompson has no head on scores"),
        ("entropy", "ucb | argmax", "argmax has no sharpness parameter"),
        ("slope", "ucb | s_tau(tau=5)", ""),
    ],
)
def test_what_cannot_be_matched_has_a_reason(kind: str, family: str, reason: str) -> None:
    assert unmatched(kind, Family(family), Family(SOFTMAX)) == reason


def test_a_run_that_ends_before_the_first_score_says_so() -> None:
    """Five arms are pulled once each without a score; four steps are no lack of a softmax as sharp."""
    short = play_setting(replace(SETTING, horizon=4, instances=4, tuning_instances=2, pilot_instances=2))
    said = list(notes(with_holm(short)))
    assert any("a run of 4 steps ends before" in sentence for sentence in said)
    assert not any("is as sharp as" in sentence for sentence in said)
    assert steps_unscored(parse_policy(S_TAU), SETTING.arms) == 5
    assert steps_unscored(parse_policy("mean | softmax"), SETTING.arms) == 1
    # A slope at 0 needs no scores.
    assert (short["comparison"] == "slope").any()
