"""Studies: disjoint seeds, equal grids, independence of the company, and files that survive an interruption."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from stau_rl.agents.bandit import Pipe, parse_policy
from stau_rl.calibration.matching import mean_entropy
from stau_rl.envs.arms import parse_arms
from stau_rl.heads import HEADS, Head, parse_head
from stau_rl.kernels.float32 import Float32Error
from stau_rl.kernels.philox import split_seed
from stau_rl.kernels.purposes import PURPOSES, SEED_BITS, purpose_seed
from stau_rl.kernels.torch_loop import simulate
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.run import run_regret
from stau_rl.study import compare as study_compare
from stau_rl.study.compare import play_setting
from stau_rl.study.family import Family, change_score
from stau_rl.study.folder import read_rows, rounded
from stau_rl.study.match import unmatched
from stau_rl.study.pilot import seen_scores
from stau_rl.study.play import play_settings, run_study, with_holm
from stau_rl.study.plot import draw_study
from stau_rl.study.report import TABLE_WIDTH, family_place, render
from stau_rl.study.setting import Setting
from stau_rl.study.tuning import tune

SOFTMAX, S_TAU, ESCORT = (
    f"centred_ucb(c=0.25) | {head}" for head in ("softmax(beta=1.5)", "s_tau(tau=5.5)", "escort(p=2.5)")
)
SETTING = Setting(
    sweep="base",
    value="three arms",
    arms="bernoulli(k=3)",
    families=(SOFTMAX, S_TAU),
    horizon=60,
    instances=200,
    tuning_instances=100,
    pilot_instances=16,
    seed=11,
    low=0.75,
    high=200.0,
    coarse=6,
    fine=3,
)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return play_setting(SETTING)


# Seeds


@given(st.integers(0, (1 << SEED_BITS) - 1), st.integers(0, (1 << SEED_BITS) - 1))
def test_keys_of_two_purposes_differ_whatever_the_studies(one: int, other: int) -> None:
    keys = [{split_seed(purpose_seed(seed, purpose)) for seed in (one, other)} for purpose in PURPOSES]
    assert not keys[0] & keys[1]
    assert not keys[0] & keys[2]
    assert not keys[1] & keys[2]
    assert purpose_seed(one, "evaluation") == one


@pytest.mark.parametrize("seed", [-1, 1 << SEED_BITS, 0.5, True])
def test_a_seed_that_would_spill_into_the_purpose_is_refused(seed) -> None:
    with pytest.raises(ValueError, match="seed"):
        purpose_seed(seed, "tuning")


def test_every_run_of_a_setting_uses_the_seed_of_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning members are never played on the evaluation key, nor the other way round."""
    import stau_rl.regret.run

    played: list[tuple[str, int, int]] = []
    real = stau_rl.regret.run.run_regret

    def spy(arms, policies, horizon, instances, seed, **rest):
        played.extend((str(policy), instances, seed) for policy in policies)
        return real(arms, policies, horizon, instances, seed, **rest)

    monkeypatch.setattr(stau_rl.regret.run, "run_regret", spy)
    table = play_setting(SETTING)
    tuning, evaluation = purpose_seed(11, "tuning"), purpose_seed(11, "evaluation")
    assert {seed for _, instances, seed in played} == {tuning, evaluation}
    curve = table[table["comparison"] == "curve"]
    first = [policy for policy, instances, seed in played if (instances, seed) == (100, tuning)]
    assert sorted(first) == sorted(curve["policy"])
    # Per family: all points, then nine on 141, then three on as many instances as the evaluation has.
    rounds = [sum(1 for _, n, seed in played if (n, seed) == (some, tuning)) for some in (100, 141, 200)]
    assert rounds == [2 * SETTING.budget, 2 * 9, 2 * 3]
    assert {n for _, n, seed in played if seed == evaluation} == {200}


# Families


def test_members_are_addressed_by_their_slope() -> None:
    for text in (SOFTMAX, S_TAU, "ucb | s_tau(tau=3, eps=0)", "mean | softmax(beta={x})", "ucb | s_tau(tau={x})"):
        family = Family(text)
        for slope in (0.8, 7.0, 300.0):
            assert family.slope(family.member(slope)) == pytest.approx(slope, rel=6e-6)
    # Far above 0 the slope of tau log s is tau / s; far below it is tau.
    assert str(Family("centred_ucb(offset=40) | s_tau(tau=2)").member(3.0)) == "centred_ucb(offset=40) | s_tau(tau=120)"
    far = parse_policy("centred_ucb(offset=-15) | s_tau(tau=7, eps=0)")
    assert Family("centred_ucb(offset=-15) | s_tau(tau=2, eps=0)").slope(far) == pytest.approx(7, rel=1e-6)
    # Escort is not smooth at 0 and is addressed by its exponent.
    assert str(Family(ESCORT).member(3.0)) == "centred_ucb(c=0.25) | escort(p=3)"


def test_grids_have_one_size_and_range_except_where_a_parameter_ends() -> None:
    softmax, s_tau = Family(SOFTMAX).grid(0.25, 512, 9), Family(S_TAU).grid(0.25, 512, 9)
    assert len(softmax) == len(s_tau) == 9
    assert_allclose([softmax[0], softmax[-1], s_tau[-1]], [0.25, 512, 512])
    # tau = 1 has the slope 1 / (2 ln 2).
    assert s_tau[0] == pytest.approx(0.5 / np.log(2), rel=1e-6)
    assert_allclose(Family(SOFTMAX).grid(0.75, 512, 9), Family(S_TAU).grid(0.75, 512, 9))


def test_families_without_a_number_take_part_as_they_are() -> None:
    for text in ("thompson", "ucb | argmax", "random"):
        assert not Family(text).tunable
        assert tune(Family(text), SETTING, lambda *_: pytest.fail("nothing to play")) is None
    with pytest.raises(ValueError, match="no parameter"):
        Family("thompson").member(1.0)
    with pytest.raises(ValueError, match="unknown head"):
        Family("ucb | softmux")


def test_change_score_leaves_the_head_alone() -> None:
    assert change_score("centred_ucb | softmax(beta={x}*2)", c=0.5, offset=-2) == (
        "centred_ucb(c=0.5, offset=-2) | softmax(beta={x}*2)"
    )
    assert change_score("centred_ucb(c=0.5) | argmax", name="ucb") == "ucb(c=0.5) | argmax"
    with pytest.raises(ValueError, match="no argument 'c'"):
        change_score("mean | argmax", c=1.0)


def test_tuning_finds_a_known_optimum_within_its_grid() -> None:
    """Regret (ln slope - ln 20)^2: the best of the two grids must be one of its two nearest points."""
    tried: list[float] = []

    def play(policies, instances, seed):
        slopes = [Family(SOFTMAX).slope(policy) for policy in policies]
        tried.extend(slopes)
        return {p: np.full(instances, (np.log(s) - np.log(20)) ** 2) for p, s in zip(policies, slopes, strict=True)}

    found = tune(Family(SOFTMAX), SETTING, play)
    assert found is not None
    assert len(tried) == SETTING.budget + 9 + 3
    assert len(set(tried)) == SETTING.budget
    assert found.finalists == [
        Family(SOFTMAX).member(s) for s in sorted(sorted(set(tried), key=lambda s: abs(np.log(s / 20)))[:3])
    ]
    assert Family(SOFTMAX).slope(found.best) == min(tried, key=lambda s: abs(np.log(s / 20)))
    assert found.edge == ""
    edge = tune(Family(SOFTMAX), replace(SETTING, high=10.0), play)
    assert edge is not None
    assert (edge.edge, Family(SOFTMAX).slope(edge.best)) == ("high", pytest.approx(10.0))


@dataclass(frozen=True, slots=True)
class Cubed(Head):
    """A head of one's own, with a parameter that is no sharpness and no compiled form."""

    name: ClassVar[str] = "cubed"
    formula: ClassVar[str] = "exp(a s^3)"

    a: float = 1.0

    def log_f(self, scores):
        return self.a * scores**3


def test_a_head_from_elsewhere_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, or tuned where {x} stands, on the engine that runs it."""
    monkeypatch.setitem(HEADS._members, "cubed", Cubed)
    families = (SOFTMAX, "centred_ucb(c=0.25) | cubed(a=30)", "centred_ucb(c=0.25) | cubed(a={x})")
    small = replace(SETTING, families=families, horizon=20, instances=16, tuning_instances=8, coarse=3, fine=2)
    table = play_setting(small)
    assert table.loc[table["comparison"] == "tuned", "tuning_points"].tolist() == [5, 0, 5]
    curve = table[(table["family"] == families[2]) & (table["comparison"] == "curve")]
    # It is flat at 0, so {x} itself runs over the grid.
    assert_allclose([float(text.split("a=")[1].rstrip(")")) for text in curve["policy"]], curve["slope"], rtol=6e-6)


def test_schedules_are_families_of_their_own() -> None:
    """As they are, or with {x} in the expression, whose values then run over the grid."""
    fixed, free = "centred_ucb(c=0.25) | softmax(beta=4*log(t+1))", "centred_ucb(c=0.25) | s_tau(tau=1+{x}*log(t))"
    assert not Family(fixed).tunable
    assert str(Family(free).member(2.5)) == "centred_ucb(c=0.25) | s_tau(tau=1+2.5*log(t))"
    small = replace(SETTING, families=(SOFTMAX, fixed, free), instances=16, tuning_instances=8, coarse=3, fine=2)
    table = play_setting(small)
    assert table.loc[table["comparison"] == "tuned", "tuning_points"].tolist() == [5, 0, 5]
    assert np.isfinite(table["regret"]).all()
    assert list(table.loc[(table["comparison"] == "slope"), "family"]) == []


def test_a_text_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two families, two policies of reference and the two units of the matches; members are made from objects."""
    read: list[str] = []

    def counted(text: str):
        read.append(text)
        return parse_policy(text)

    for module in ("family", "compare"):
        monkeypatch.setattr(f"stau_rl.study.{module}.parse_policy", counted)
    play_setting(replace(SETTING, horizon=20, instances=16, tuning_instances=8, coarse=3, fine=2))
    assert len(read) == len(SETTING.families) + len(SETTING.references) + 2


def test_every_policy_says_whether_it_has_a_score_and_a_head() -> None:
    for text in ("thompson", "random", "ucb1"):
        policy = parse_policy(text)
        assert (policy.score, policy.head) == (None, None)
    # It has preferences of its own in the place of a score, so there is nothing to tune or to match.
    gradient = parse_policy("gradient_bandit")
    assert (gradient.score, str(gradient.head)) == (None, "softmax(beta=1)")
    assert not Family("gradient_bandit").tunable
    assert unmatched("slope", Family("gradient_bandit"), Family(SOFTMAX)) == "gradient_bandit has no head on scores"
    pipe = parse_policy("mean | softmax(beta=2)")
    assert (str(pipe.score), str(pipe.head)) == ("mean", "softmax(beta=2)")
    with pytest.raises(TypeError, match="'score' and 'head'"):
        Pipe()  # type: ignore[call-arg]


# Scores of the pilot run


def test_seen_scores_are_those_of_the_reference_engine() -> None:
    """Spy on the score inside the torch loop and compare at the same steps."""
    import torch

    from stau_rl.agents.bandit.scores import CentredUcb

    text, horizon, n = "centred_ucb(c=0.25) | s_tau(tau=5.5)", 40, 8
    seen = {}

    class Spy(CentredUcb):
        __slots__ = ()

        def values(self, state, dtype):
            found = CentredUcb.values(self, state, dtype)
            seen[state.step] = found.double().clone()
            return found

    pipe = parse_policy(text)
    spied = replace(pipe, score=Spy(c=0.25))
    table = arm_table(parse_arms("bernoulli(k=3)"), 9, 0, n)
    simulate(spied, table, seed=9, first_instance=0, horizon=horizon, checkpoints=np.array([horizon]))
    steps = np.unique(np.rint(np.geomspace(3, horizon - 1, 6)).astype(int))
    expected = torch.cat([seen[step] for step in steps.tolist()], dim=1)
    found = seen_scores(pipe, "bernoulli(k=3)", horizon, n, 9, points=6)
    assert found.shape == expected.shape
    assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)


# Rows


def test_matched_controls_are_as_sharp_as_what_they_control(rows: pd.DataFrame) -> None:
    by_kind = {row["comparison"]: row for row in rows.to_dict("records") if row["comparison"] in ("slope", "entropy")}
    control = Family(SOFTMAX)
    assert control.slope(parse_policy(by_kind["slope"]["baseline"])) == pytest.approx(
        Family(S_TAU).slope(parse_policy(S_TAU)), rel=1e-5
    )
    scores = seen_scores(parse_policy(S_TAU), SETTING.arms, SETTING.horizon, 16, purpose_seed(11, "pilot"))
    heads = [parse_head(text.split("|")[1]) for text in (S_TAU, by_kind["entropy"]["baseline"])]
    assert mean_entropy(heads[0], scores, 0) == pytest.approx(mean_entropy(heads[1], scores, 0), rel=1e-5)


def test_rows_are_what_run_regret_gives(rows: pd.DataFrame) -> None:
    raw = rows[(rows["comparison"] == "raw") & (rows["family"] == S_TAU)].iloc[0]
    result = run_regret(SETTING.arms, [SOFTMAX, S_TAU], 60, 200, seed=11, checkpoints=[60])
    compared = result.compare().iloc[0]
    assert raw["regret"] == pytest.approx(result.regret[1, 0].mean(), rel=1e-12)
    for name in ("difference", "percent", "percent_low", "percent_high", "p_value"):
        assert raw[name] == pytest.approx(compared[name], rel=1e-9)
    assert raw["improvement"] == pytest.approx(np.mean(np.sign(result.regret[0, 0] - result.regret[1, 0]) / 2 + 0.5))


def test_the_tuned_member_is_the_best_of_the_tuning_curve(rows: pd.DataFrame) -> None:
    for text in (SOFTMAX, S_TAU):
        mine = rows[rows["family"] == text]
        curve, tuned = mine[mine["comparison"] == "curve"], mine[mine["comparison"] == "tuned"].iloc[0]
        last = run_regret(SETTING.arms, list(curve["policy"]), 60, 200, purpose_seed(11, "tuning"), checkpoints=[60])
        means = dict(zip(curve["policy"], last.regret[:, 0].mean(axis=1), strict=True))
        # All nine points went on to the second round; the last round's three hold the best of it.
        assert means[tuned["policy"]] <= sorted(means.values())[2]
        assert (tuned["tuning_points"], tuned["tuning_instances"], tuned["instances"]) == (9, 200, 200)
        assert (curve["band_low"] <= curve["regret_low"] + 1e-12).mean() > 0.5
        again = run_regret(SETTING.arms, [tuned["policy"]], 60, 200, seed=11, checkpoints=[60])
        assert tuned["regret"] == pytest.approx(again.regret[0, 0].mean(), rel=1e-12)


def _of(table: pd.DataFrame, family: str) -> pd.DataFrame:
    mine = table[table["family"] == family].drop(columns=["setting"])
    return mine.sort_values(["comparison", "slope"]).reset_index(drop=True)


def test_company_and_order_move_nobody(rows: pd.DataFrame) -> None:
    """A third family, in either place behind the reference, leaves the other two exactly as they were."""
    for families in ((SOFTMAX, ESCORT, S_TAU), (SOFTMAX, S_TAU, ESCORT)):
        more = play_setting(replace(SETTING, families=families))
        for text in (SOFTMAX, S_TAU):
            pd.testing.assert_frame_equal(_of(more, text), _of(rows, text), check_exact=True)
    turned = play_setting(replace(SETTING, families=(S_TAU, SOFTMAX)))
    for text in (SOFTMAX, S_TAU):
        alone = ["policy", "regret", "iqm", "q05", "q95", "cvar95", "stuck_rate"]
        for kind in ("raw", "tuned", "curve"):
            first, second = (_of(table[table["comparison"] == kind], text)[alone] for table in (rows, turned))
            pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_tuning_on_other_instances_does_not_move_the_evaluation(
    rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tuning key changes the curve; raw and matched rows stay to the last digit."""
    real = study_compare.purpose_seed
    monkeypatch.setattr(
        "stau_rl.study.tuning.purpose_seed", lambda seed, purpose: real(seed + (purpose == "tuning") * 1000, purpose)
    )
    moved = play_setting(SETTING)
    for kind in ("raw", "slope", "entropy"):
        first, second = (table[table["comparison"] == kind].reset_index(drop=True) for table in (rows, moved))
        pd.testing.assert_frame_equal(first, second, check_exact=True)
    curves = [table.loc[table["comparison"] == "curve", "regret"].iloc[0] for table in (rows, moved)]
    assert curves[0] != curves[1]
    other = play_setting(replace(SETTING, seed=12))
    assert (other["regret"].to_numpy()[:3] != rows["regret"].to_numpy()[:3]).all()


# Files


def test_a_study_resumes_without_playing_again(tmp_path: Path, rows: pd.DataFrame, monkeypatch) -> None:
    settings = [SETTING, replace(SETTING, sweep="more", value="again", seed=12)]
    calls: list[str] = []
    real = play_setting

    def counted(setting, tick=None, *where):
        if calls == ["three arms"] and setting.value == "again":
            calls.append("stopped")
            raise KeyboardInterrupt
        calls.append(setting.value)
        return real(setting, tick, *where)

    monkeypatch.setattr("stau_rl.study.play.play_setting", counted)
    with pytest.raises(KeyboardInterrupt):
        play_settings(settings, tmp_path / "out")
    with pytest.raises(ValueError, match="--resume"):
        play_settings(settings, tmp_path / "out")
    # A file cut short by a crash of the machine is played again, a whole one is not.
    resumed = play_settings(settings, tmp_path / "out", resume=True)
    assert calls == ["three arms", "stopped", "again"]
    fresh = play_settings(settings, tmp_path / "fresh")
    pd.testing.assert_frame_equal(resumed, fresh, check_exact=True)
    assert (tmp_path / "out" / "study.csv").read_bytes() == (tmp_path / "fresh" / "study.csv").read_bytes()
    whole = next((tmp_path / "fresh" / "settings").glob("*.csv"))
    whole.write_bytes(whole.read_bytes()[:3000])
    play_settings(settings, tmp_path / "fresh", resume=True)
    assert len(calls) == 6
    assert (tmp_path / "out" / "study.csv").read_bytes() == (tmp_path / "fresh" / "study.csv").read_bytes()
    back = read_rows(tmp_path / "out" / "study.csv")
    assert_allclose(back["regret"].to_numpy()[: len(rows)], rows["regret"].to_numpy(), rtol=1e-9)
    assert not list(tmp_path.rglob("*.tmp"))
    assert (tmp_path / "out" / "curves.png").read_bytes() == (tmp_path / "fresh" / "curves.png").read_bytes()


def test_rows_survive_the_file(rows: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(rounded(rounded(rows)), rounded(rows), check_exact=True)


def test_curves_show_every_family_and_its_band(rows: pd.DataFrame) -> None:
    (panel,) = draw_study(rows).axes
    assert [line.get_label() for line in panel.get_lines()][:2] == ["softmax", "s_tau"]
    # One panel fills the figure.
    assert panel.get_subplotspec().get_gridspec().get_geometry() == (1, 1)
    curve = rows[(rows["comparison"] == "curve") & (rows["family"] == S_TAU)]
    assert_allclose(panel.get_lines()[1].get_ydata(), curve["regret"])
    assert len(panel.collections) == 2
    assert draw_study(rows, "c").axes == []


def test_run_study_prints_a_line_per_setting() -> None:
    from rich.console import Console

    table = run_study((SOFTMAX, S_TAU, "ucb | argmax"), ["bernoulli(k=3)"], 60, 100, 5, sweeps=()).table()
    assert set(family_place(table)) == {-1, 0, 1, 2}
    console = Console(width=TABLE_WIDTH, record=True, file=io.StringIO())
    console.print(render(table))
    text = console.export_text()
    assert "s_tau(tau=5.5) against softmax(beta=1.5)" in text
    assert "ucb | argmax against centred_ucb" in text
    assert "p (Holm)" in text
    assert "argmax has no parameter that is tuned: it takes part as it is" in text
    assert "No comparison at same slope at 0: argmax has no sharpness parameter." in text
    tuned = table[(table["comparison"] == "tuned") & table["p_value"].notna()]
    assert_allclose(with_holm(table).loc[tuned.index, "p_holm"], table.loc[tuned.index, "p_holm"])
    assert (tuned["p_holm"] >= tuned["p_value"]).all()


# Extremes


@pytest.mark.parametrize("head", [name for name in HEADS if HEADS[name].mass_kind == "simplex"])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_every_head_stays_finite_on_tiny_and_huge_rewards(head: str, scale: float) -> None:
    policies = [f"{score} | {head}" for score in ("centred_ucb", "ucb")]
    arms = f"gaussian(k=5, scale={scale}, sigma={scale})"
    try:
        result = run_regret(arms, policies, 40, 16, engine="torch", dtype="float32")
    except Float32Error:
        # The guard refuses by name what float32 does not hold.
        result = run_regret(arms, policies, 40, 16, engine="torch")
    assert np.isfinite(result.regret).all()
    assert (result.pulls.sum(axis=1) == 40).all()


def test_a_million_steps_stay_finite() -> None:
    result = run_regret("bernoulli(k=3)", [SOFTMAX, S_TAU], 1_000_000, 16, checkpoints=[1000, 1_000_000])
    assert np.isfinite(result.regret).all()
    assert (result.pulls.sum(axis=1) == 1_000_000).all()
    assert (result.regret[:, 1] >= result.regret[:, 0]).all()
