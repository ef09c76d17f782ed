"""What docs/claim.md is played from: settings, runs in parts or of some sweeps alone, and rows that come again."""

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from stau_rl.agents.bandit import parse_policy
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.pages import claim
from stau_rl.pages.claim_data import COMPARISONS, CURVES, TIMING, ClaimData, adjusted, one_number
from stau_rl.pages.claim_settings import ANNEALED, ARMS, POSITIVE, SEED, claim_settings
from stau_rl.pages.paths import RESULTS, ROOT
from stau_rl.regret.run import run_regret
from stau_rl.statistics.bootstrap import paired_bootstrap
from stau_rl.study.compare import play_setting
from stau_rl.study.family import Family
from stau_rl.study.folder import read_rows
from stau_rl.study.pilot import seen_scores
from stau_rl.study.tuning import tune

FIRST = ("c", "k", "horizon", "empirical", "offset", "centring", "scale", "limit")
LATER = ("annealed", "positive", "baselines", "argmax", "entmax")


@pytest.fixture(scope="module")
def data() -> ClaimData:
    return ClaimData.load()


def test_the_rows_are_small_and_say_where_they_come_from(data: ClaimData) -> None:
    for name in (COMPARISONS, CURVES):
        assert (RESULTS / name).stat().st_size < 2_000_000
    for rows in (data.comparisons, data.curves):
        assert (rows["seed"] == SEED).all()
        assert (rows["instances"] >= 100).all()
        assert (rows["commit"].str.fullmatch("[0-9a-f]{40}")).all()
        assert rows["versions"].str.contains("numba=").all()
    played = data.comparisons.groupby("sweep")["setting"].agg(set).to_dict()
    assert set(FIRST) <= set(played) <= {*FIRST, *LATER}
    # A sweep is there whole or not at all.
    for sweep, settings in played.items():
        assert settings == {setting.identity for setting in claim_settings(only=[sweep])}


def test_later_studies_leave_the_first_ones_as_they_are() -> None:
    every = claim_settings()
    assert tuple(dict.fromkeys(setting.sweep for setting in every)) == (*FIRST, *LATER)
    assert len({setting.identity for setting in every}) == len(every)
    assert [one.identity for one in claim_settings(only=["horizon", "entmax"])] == [
        one.identity for one in every if one.sweep in ("horizon", "entmax")
    ]
    with pytest.raises(ValueError, match=r"only: unknown sweep 'anneal'; known: c, k, .*, entmax"):
        claim_settings(only=["anneal"])
    with pytest.raises(ValueError, match="share"):
        claim_settings(0.0)


def test_annealed_heads_are_equally_steep_at_the_end_but_for_the_start_of_s_tau() -> None:
    """The slope of log softplus at 0 is 1 / (2 ln 2); tau starts at 1, as it may not be less."""
    for x in (0.75, 1536.0):
        softmax, s_tau = (
            parse_policy(f"ucb | {text.replace('{x}', repr(x))}").head.at(10_000).slope_at_zero() for text in ANNEALED
        )
        assert softmax == pytest.approx(x, rel=1e-5)
        assert s_tau - softmax == pytest.approx(1 / (2 * np.log(2)), rel=1e-4, abs=2e-3)


def test_grids_of_other_policies_reach_as_far_as_those_of_heads() -> None:
    heads = None
    for setting in claim_settings(only=["baselines", "entmax"]):
        for family in setting.families:
            low, high = setting.reach(family)
            heads = heads or high / low
            assert high / low == pytest.approx(heads)
            if Family(family).tunable:
                grid = Family(family).grid(low, high, setting.coarse)
                assert (grid[0], grid[-1]) == pytest.approx((low, high))


def test_positive_scores_are_positive() -> None:
    """The lowest score seen by a soft policy, which pulls poor arms most, in every setting."""
    for setting in claim_settings(only=["positive"]):
        raw = Family(setting.families[0]).raw
        scores = seen_scores(raw, setting.arms, 300, 100, seed=4, engine="numba", device="cpu")
        assert float(scores.min()) > 0, setting.value
        if raw.score.offset:
            # Escort is as steep as the others where the scores lie.
            slopes = [Family(text).slope(Family(text).member(64.0)) for text in setting.families]
            assert_allclose(slopes, 64.0, rtol=1e-5)
            assert raw.score.offset == POSITIVE


@pytest.mark.parametrize("sweep", LATER)
def test_a_setting_of_each_later_study_plays(sweep: str) -> None:
    setting = claim_settings(only=[sweep])[-1]
    small = {"coarse": 3, "fine": 0, "horizon": 24, "instances": 8, "tuning_instances": 4, "pilot_instances": 4}
    rows = play_setting(replace(setting, **small), engine="numba,torch", device="cpu")
    tuned = rows[rows["comparison"] == "tuned"]
    assert list(tuned["family"]) == list(setting.families)
    tunable = [Family(text).tunable for text in setting.families]
    assert list(tuned["tuning_points"]) == [3 * known for known in tunable]
    assert set(rows["engine"].str.split().str[0]) == ({"numba", "torch"} if sweep == "entmax" else {"numba"})


def test_a_setting_comes_again_from_its_seed(data: ClaimData) -> None:
    """The tuning of s^tau, and the pair that came out of it. Another processor may round a draw the other way."""
    setting = next(one for one in claim_settings() if one.value == "gaussian(k=10) horizon 100")

    def play(policies, instances, seed):
        result = run_regret(setting.arms, policies, setting.horizon, instances, seed, checkpoints=[setting.horizon])
        return {policy: result.regret[number, -1] for number, policy in enumerate(policies)}

    found = tune(Family(setting.families[1]), setting, play)
    curve = data.curves[(data.curves["setting"] == setting.identity) & data.curves["family"].str.contains("s_tau")]
    assert list(curve["policy"]) == [str(policy) for policy in found.policies]
    assert_allclose(curve["regret"], found.regret.mean(axis=1), rtol=2e-4)
    row = data.row("horizon", setting.value, "tuned")
    assert (row["policy"], row["edge"], row["tuning_instances"]) == (str(found.best), found.edge, found.final.shape[1])
    pair = [parse_policy(text) for text in (row["policy"], row["baseline"])]
    regret, base = play(pair, setting.instances, purpose_seed(setting.seed, "evaluation")).values()
    reach = 1.959964 * regret.std(ddof=1) / np.sqrt(regret.size)
    again = [regret.mean(), regret.mean() - reach, regret.mean() + reach, base.mean(), np.median(regret)]
    names = ("regret", "regret_low", "regret_high", "baseline_regret", "median")
    assert_allclose([row[name] for name in names], again, rtol=2e-4)
    difference = paired_bootstrap([regret[None]], base[None], seed=setting.seed)
    assert row["percent"] == pytest.approx(float(difference.percent[0, 0]), abs=0.02)
    # Its interval counts the tuning too, and can only be wider.
    assert row["percent_low"] - 0.02 < difference.percent_low[0, 0] < difference.percent_high[0, 0]
    assert difference.percent_high[0, 0] < row["percent_high"] + 0.02


def test_one_setting_has_one_number_in_whichever_sweep_it_stands() -> None:
    """Softmax and s^tau at their best at c = 0.25: in the sweep over c, at offset 0 and at scale 1."""
    small = {"coarse": 3, "fine": 2, "horizon": 40, "instances": 128, "tuning_instances": 16, "pilot_instances": 16}
    arms = ARMS["Gaussian"]
    same = [f"{arms} c 0.25", f"{arms} offset 0", f"{arms} scale 1"]
    tables = [
        play_setting(replace(one, **small))
        for one in claim_settings(only=["c", "offset", "scale"])
        if one.value in same
    ]
    assert len(tables) == 3
    shown = ["policy", "baseline", "regret", "regret_low", "percent", "percent_low", "percent_high", "p_value", "edge"]
    tuned = [table.loc[table["comparison"] == "tuned", shown].reset_index(drop=True) for table in tables]
    for other in tuned[1:]:
        pd.testing.assert_frame_equal(tuned[0], other, check_exact=True)


def test_a_pair_in_several_sweeps_has_the_number_of_the_first(data: ClaimData) -> None:
    """Machines differ by roundings: the committed rows do, the page does not; and Holm counts the pair once."""
    committed = read_rows(RESULTS / COMPARISONS)
    places = [("c", f"{ARMS['Gaussian']} c 0.25"), ("offset", f"{ARMS['Gaussian']} offset 0")]
    places.append(("scale", f"{ARMS['Gaussian']} scale 1"))
    numbers = [data.row(sweep, value, "tuned")["percent"] for sweep, value in places]
    assert len(set(numbers)) == 1
    mine = committed[(committed["value"] == places[0][1]) & (committed["comparison"] == "tuned")]
    assert numbers[0] in list(mine["percent"])
    pairs = data.pairs()
    keys = [(pair["arms"], pair["horizon"], pair["policy"], pair["baseline"]) for pair in pairs]
    assert len(keys) == len(set(keys))
    # Holm's smallest p-value is multiplied by how many there are.
    least = min(pairs, key=lambda pair: pair["p_value"] if pair["p_value"] else 1.0)
    worse = sum(pair["p_value"] >= least["p_value"] for pair in pairs)
    assert least["p_holm"] == pytest.approx(least["p_value"] * worse)
    twice = pd.concat([committed, committed], ignore_index=True)
    again = adjusted(one_number(twice))
    assert_allclose(again["p_holm"][: len(committed)], data.comparisons["p_holm"])


def test_parts_put_together_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes' parts, gathered, give the rows of one process, without playing anything again."""
    few = [replace(one, coarse=3, fine=0, horizon=50, instances=20) for one in claim_settings(share=0.001)[:3]]
    monkeypatch.setattr(claim, "claim_settings", lambda share=1.0, only=(): few)
    for number in (1, 2):
        claim.play(tmp_path / "run", engine="numba", part=(number, 2))
    claim.play(tmp_path / "whole", engine="numba")
    monkeypatch.setattr("stau_rl.study.play.play_setting", lambda *_: pytest.fail("it was played already"))
    claim.play(tmp_path / "run", engine="numba")
    for name in ("run", "whole"):
        claim.publish(tmp_path / name, tmp_path / f"{name}-rows")
    for name in (COMPARISONS, CURVES):
        assert (tmp_path / "run-rows" / name).read_bytes() == (tmp_path / "whole-rows" / name).read_bytes()
    timing = pd.read_csv(tmp_path / "run-rows" / TIMING)
    assert timing["seconds"][0] >= 0


def test_a_sweep_alone_leaves_all_other_rows_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Played and published twice, the second time at another size: its rows are replaced, those of others kept."""
    rows = tmp_path / "rows"
    rows.mkdir()
    for name in (COMPARISONS, CURVES, TIMING):
        shutil.copyfile(RESULTS / name, rows / name)
    for horizon in (50, 60):
        small = {
            "coarse": 3,
            "fine": 0,
            "horizon": horizon,
            "instances": 20,
            "tuning_instances": 4,
            "pilot_instances": 4,
        }
        few = [replace(one, **small) for one in claim_settings(only=["annealed", "c"]) if one.value.endswith(" c 1")]
        alone = [one for one in few if one.sweep == "annealed"]
        monkeypatch.setattr(claim, "claim_settings", lambda share=1.0, only=(), alone=alone: alone)
        monkeypatch.setattr(
            "sys.argv",
            [
                *("claim", "--rerun", "--only", "annealed", "--engine", "numba"),
                *("--folder", str(tmp_path / str(horizon)), "--results", str(rows)),
            ],
        )
        claim.main()
        for name in (COMPARISONS, CURVES):
            before, after = ((folder / name).read_text(encoding="utf-8").splitlines() for folder in (RESULTS, rows))
            others = [line for line in before if not line.startswith("annealed,")]
            assert after[: len(others)] == others
            fresh = read_rows(rows / name).iloc[len(others) - 1 :]
            assert (fresh["sweep"] == "annealed").all()
            assert set(fresh["setting"]) == {one.identity for one in alone}
            assert len(after) == len(others) + len(fresh)
        timing = pd.read_csv(rows / TIMING).fillna("")
        assert list(timing["sweeps"]).count("annealed") == 1
    assert len(ClaimData.load(rows).pairs("annealed")) == len(alone)


@pytest.mark.parametrize(
    ("sweep", "value", "comparison", "head"),
    [
        ("horizon", "bernoulli(k=10) horizon 1000", "tuned", "s_tau"),
        ("horizon", "gaussian(k=10) horizon 1000", "raw", "s_tau"),
        ("empirical", "insect sprays", "raw", "softmax"),
        ("c", "bernoulli(k=10) c 0.25", "reference", "random"),
    ],
)
def test_a_sample_of_rows_comes_again_from_their_seed(data: ClaimData, sweep, value, comparison, head) -> None:
    row = data.row(sweep, value, comparison, head)
    # The first 512 instances are enough to see another seed, other arms or another policy: their mean lies within
    # the row's standard error, widened for the smaller number, five times over.
    with contextlib.chdir(ROOT):
        few = run_regret(row["arms"], [row["policy"]], row["horizon"], 512, SEED, checkpoints=[row["horizon"]])
    error = (row["regret_high"] - row["regret_low"]) / 3.92 * np.sqrt(row["instances"] / 512)
    assert abs(few.regret[0, 0].mean() - row["regret"]) < 5 * error


def test_random_policies_have_the_regret_of_their_prior(data: ClaimData) -> None:
    """T (E max - E mean): 10 000 (10/11 - 1/2) for uniform means, 10 000 x 1.53875 for ten standard normal ones."""
    for arms, expected in (("bernoulli", 10_000 * (10 / 11 - 0.5)), ("gaussian", 15_387.5)):
        row = data.row("c", f"{arms}(k=10) c 0", "reference", "random")
        half = (row["regret_high"] - row["regret_low"]) / 2
        assert abs(row["regret"] - expected) < 2 * half
