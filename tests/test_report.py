"""What a regret benchmark prints: which softmax is a head's control, and numbers that the data cannot give."""

import math

import numpy as np
import pytest

from result_cases import make_result
from stau_rl.regret.report import SAME_SLOPE, final_rows, matched_controls, render, sentences

S_TAU = "centred_ucb | s_tau(tau=5)"
# d log f / ds at 0 of (softplus(s) + eps)^tau: tau sigmoid(0) / (softplus(0) + eps).
SLOPE = 5 * 0.5 / (math.log(2) + 1e-8)


def _softmax(share: float) -> str:
    return f"centred_ucb | softmax(beta={SLOPE * share!r})"


def test_a_control_is_as_steep_to_half_a_percent() -> None:
    assert SAME_SLOPE == 0.005
    for share, near in ((0.9951, True), (1.0049, True), (0.9949, False), (1.0051, False)):
        assert matched_controls([S_TAU, _softmax(share)]) == ({S_TAU: _softmax(share)} if near else {}), share
    # Of several the nearest, wherever it stands.
    assert matched_controls([_softmax(1.003), S_TAU, _softmax(0.999)]) == {S_TAU: _softmax(0.999)}


@pytest.mark.parametrize(("ratio", "sharper"), [(1.0049, False), (1.0051, True), (2.0, True)])
def test_a_gain_is_that_of_a_sharper_temperature_from_half_a_percent_on(ratio: float, sharper: bool) -> None:
    baseline, twin = _softmax(1 / ratio), _softmax(1.0)
    result = make_result(60, [baseline, twin, S_TAU])
    # As good as its twin, with half the baseline's regret.
    result.regret[1] = 0.5 * result.regret[0]
    result.regret[2] = result.regret[1]
    said = list(sentences(result, final_rows(result)))
    assert ("  So its gain over the baseline is that of a sharper temperature, not of its shape." in said) is sharper


@pytest.mark.parametrize(("instances", "told"), [(5, False), (6, True)])
def test_few_instances_have_percentages_without_intervals(instances: int, told: bool) -> None:
    result = make_result(instances, ["ucb | argmax", _softmax(1.0)])
    row = final_rows(result).iloc[1]
    assert np.isfinite([row["percent"], row["difference"], row["regret_low"]]).all()
    ends = [row[f"{name}_{end}"] for name in ("percent", "difference") for end in ("low", "high")]
    assert np.isfinite(ends).all() == told
    assert np.isnan(ends).all() != told
    assert render(result) is not None


@pytest.mark.parametrize(("regret", "text"), [(0.0, "whose regret is 0."), (-1.0, "whose regret is 0 or less.")])
def test_no_percentage_of_a_regret_that_is_not_above_0(regret: float, text: str) -> None:
    result = make_result(20, ["ucb | argmax", _softmax(1.0)])
    result.regret[0] = regret
    rows = final_rows(result)
    assert np.isnan(rows.loc[1, ["percent", "percent_low", "percent_high"]].astype(float)).all()
    assert np.isfinite(rows.loc[1, ["difference", "difference_low", "difference_high"]].astype(float)).all()
    said = list(sentences(result, rows))
    assert f"Without a percentage are comparisons with ucb | argmax, {text}" in said
