"""Policies that may pull no arm: exact probabilities, what it costs, and what renormalising undoes."""

from typing import Any

import numpy as np
import pytest
import torch

import stau_rl
from stau_rl.agents.bandit import parse_policy
from stau_rl.checks.conformance import conformance
from stau_rl.heads import HEADS
from stau_rl.kernels.contract import ArmTable, EngineError
from stau_rl.kernels.engines import ENGINES, choose_engine


def bernoulli(means: list[float], instances: int) -> ArmTable:
    column = np.array(means)[:, None]
    return ArmTable("bernoulli", column, 0.5, np.empty(0), np.empty(0, np.int64), True, instances)


def play(text: str, table: ArmTable, horizon: int, dtype: str = "float64") -> Any:
    options = {"seed": 3, "first_instance": 0, "dtype": dtype, "checkpoints": np.arange(1, horizon + 1)}
    return ENGINES["torch"].simulate(parse_policy(text), table, horizon=horizon, record=True, **options)


SUB = [name for name in HEADS if HEADS[name].mass_kind == "sub"]
FREE = [name for name in HEADS if HEADS[name].mass_kind == "free"]


@pytest.mark.parametrize("name", SUB)
@pytest.mark.parametrize("score", ["mean", "ucb", "centred_ucb"])
def test_a_step_without_a_pull_costs_the_best_mean_and_changes_nothing(name: str, score: str) -> None:
    table = bernoulli([0.2, 0.9, 0.5], 64)
    got = play(f"{score} | {name}", table, 50)
    idle = got.actions == -1
    gaps = np.array([0.7, 0.0, 0.4, 0.9])  # of arms 0, 1, 2 and, for -1, of none
    np.testing.assert_allclose(got.regret, gaps[got.actions].cumsum(0), rtol=1e-12)
    assert (got.rewards[idle] == 0).all()
    assert (got.pulls.sum(0) == 50 - idle.sum(0)).all()
    np.testing.assert_array_equal(got.pulls, [(got.actions == k).sum(0) for k in range(3)])
    np.testing.assert_allclose(got.reward_sums.sum(0), got.rewards.sum(0))
    assert (got.optimal == (got.actions == 1)).all()


def test_the_chance_of_a_pull_is_the_mass() -> None:
    """One arm that always pays 1, on its mean: pulled with 1/2 until its first pull, then with e / (e + 1).

    The number of pulls among T steps has mean T q - (q - 1/2) sum_t 2^-t, t < T, q = e / (e + 1). The standard error of
    the mean of 40 000 instances is below sqrt(T) / 2 / 200 = 0.008; four of them fail once in 16 000 seeds.
    """
    horizon, q = 10, np.e / (np.e + 1)
    got = play("mean | softmax_off_by_one", bernoulli([1.0], 40_000), horizon)
    expected = horizon * q - (q - 0.5) * (2 - 2.0 ** (1 - horizon))
    assert got.pulls.mean() == pytest.approx(expected, abs=0.032)


def gaussian(means: list[float], sigma: float, instances: int) -> ArmTable:
    column = np.array(means)[:, None]
    return ArmTable("gaussian", column, sigma, np.empty(0), np.empty(0, np.int64), False, instances)


def test_where_every_mean_is_negative_abstaining_is_best_and_regret_is_not() -> None:
    """Noiseless arms of -1 and -3: a pull gives up 1 or 3 against abstaining, which costs nothing."""
    got = play("mean | softmax_off_by_one", gaussian([-1.0, -3.0], 0.0, 50), 40)
    cost = np.array([1.0, 3.0, 0.0])[got.actions]
    assert {-1, 0, 1} == set(np.unique(got.actions))
    np.testing.assert_allclose(got.regret, cost.cumsum(0), rtol=1e-12)
    np.testing.assert_array_equal(got.optimal, got.actions == -1)
    np.testing.assert_array_equal(got.late_optimal, (got.actions[36:] == -1).sum(0))
    # It earns what the best option would, less the regret: nothing.
    np.testing.assert_allclose(got.rewards.sum(0), -got.regret[-1], rtol=1e-12)
    # A policy that must pull is held to the best arm.
    pulls = play("mean | softmax", gaussian([-1.0, -3.0], 0.0, 50), 40)
    np.testing.assert_allclose(pulls.regret, np.array([0.0, 2.0])[pulls.actions].cumsum(0), rtol=1e-12)


def test_abstaining_and_a_best_mean_of_zero_are_equally_good() -> None:
    got = play("mean | softmax_off_by_one", gaussian([0.0, -2.0], 0.0, 50), 40)
    np.testing.assert_allclose(got.regret, np.array([0.0, 2.0, 0.0])[got.actions].cumsum(0), rtol=1e-12)
    np.testing.assert_array_equal(got.optimal, got.actions != 1)


def test_no_sub_simplex_head_gains_against_the_best() -> None:
    table = gaussian([-30.0, -31.0, -29.5], 1.0, 16)
    for name in SUB:
        for score in ("mean", "ucb", "centred_ucb"):
            regret = play(f"{score} | {name}", table, 30).regret
            assert (np.diff(regret, axis=0, prepend=0.0) >= 0.0).all(), (score, name)


def test_renormalised_it_is_softmax() -> None:
    table = bernoulli([0.3, 0.6], 200)
    renormalised, softmax = (
        play(text, table, 60) for text in ("ucb | softmax_off_by_one | renormalise", "ucb | softmax")
    )
    np.testing.assert_array_equal(renormalised.actions, softmax.actions)


def test_dead_rows_abstain_for_good_or_are_uniform() -> None:
    table = bernoulli([0.3, 0.6], 500)
    silent = play("mean | power_norm(threshold=5)", table, 20)
    np.testing.assert_allclose(silent.regret[-1], 20 * 0.6, rtol=1e-12)
    assert (silent.pulls == 0).all()
    uniform, chance = (play(text, table, 20) for text in ("mean | power_norm(threshold=5) | renormalise", "random"))
    np.testing.assert_array_equal(uniform.actions, chance.actions)


@pytest.mark.parametrize("name", [*SUB, *FREE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_renormalised_head_pulls_at_every_step(name: str, dtype: str) -> None:
    got = play(f"centred_ucb | {name} | renormalise", bernoulli([0.2, 0.9, 0.5], 64), 40, dtype)
    assert (got.pulls.sum(0) == 40).all()
    assert (got.actions >= 0).all()


def test_float32_parts_from_float64_at_a_rounding_alone() -> None:
    policies = [
        "ucb | softmax_off_by_one(n=3)",
        "mean | power_norm(p=2) | renormalise",
        "centred_ucb | power_norm(p=3)",
    ]
    table = conformance(policies, ["bernoulli(k=5)"], ["torch float32"], instances=200, horizon=200)
    assert (table["instances"] == 200).all()
    assert (table["worst_violation"] == 0).all()
    assert (table["identical"] >= 0.99).all()


@pytest.mark.parametrize("engine", ["numba", "triton"])
def test_compiled_engines_name_torch(engine: str) -> None:
    table = bernoulli([0.2, 0.9], 4)
    for text in ("ucb | power_norm", "ucb | softmax_off_by_one | renormalise", "ucb | rela | renormalise"):
        with pytest.raises(EngineError, match="torch"):
            ENGINES[engine].check(parse_policy(text), table, 10)
        assert choose_engine(parse_policy(text), table, 10, device="cpu").engine.name == "torch"


def test_a_run_of_them() -> None:
    policies = ["ucb | softmax", "ucb | softmax_off_by_one", "ucb | softmax_off_by_one | renormalise"]
    result = stau_rl.run_regret("bernoulli(k=3)", policies, 100, 64, engine="torch")
    table = result.compare().query("step == 100").set_index("policy")
    silent = str(parse_policy(policies[1]))
    # A pull instead of none is worth its arm's mean, and renormalised off-by-one is softmax.
    assert table.loc[silent, "percent"] > 0
    assert torch.equal(torch.as_tensor(result.regret[2]), torch.as_tensor(result.regret[0]))
