"""Histories replayed in float64: right ones pass, wrong ones are found out, and one of 10^7 steps on a GPU."""

from dataclasses import replace

import numpy as np
import pytest

from stau_rl.agents.bandit import parse_policy
from stau_rl.checks.replay import replay
from stau_rl.envs.arms import parse_arms
from stau_rl.kernels.engines import ENGINES
from stau_rl.regret.arm_table import arm_table

ARMS = "bernoulli(means=[0.55, 0.5, 0.45])"


def play(policy, arms=ARMS, horizon=3000, engine="numba", device="cpu", instance=7):
    table = arm_table(parse_arms(arms), 5, instance, 1)
    block = ENGINES[engine].simulate(
        parse_policy(policy),
        table,
        seed=5,
        first_instance=instance,
        horizon=horizon,
        checkpoints=np.array([horizon]),
        device=device,
        record=True,
    )
    return parse_policy(policy), table, 5, instance, block


@pytest.mark.parametrize("arms", [ARMS, "gaussian(k=4)"])
@pytest.mark.parametrize(
    "policy", ["centred_ucb(offset=1) | s_tau(tau=5)", "ucb(c=0.5) | softmax(beta=3)", "mean | escort(p=2)"]
)
def test_a_right_history_passes(policy, arms):
    given = play(policy, arms)
    found = replay(*given)
    assert found.steps == sum(found.pulls) == 3000
    assert found.counts_equal
    # Gaussian rewards come from a float32 quantile.
    assert found.mean_error <= (1e-12 if arms == ARMS else 1e-5)
    assert found.same_choices >= 0.999
    assert found.largest_distance <= 2e-5


def test_a_wrong_history_is_found_out():
    policy, table, seed, instance, block = play("centred_ucb | s_tau(tau=5)")
    actions = block.actions.copy()
    actions[1000, 0] = (actions[1000, 0] + 1) % 3
    found = replay(policy, table, seed, instance, replace(block, actions=actions))
    assert not found.counts_equal
    assert found.same_choices <= 2999 / 3000
    assert found.largest_distance > 1e-4
    sums = replay(policy, table, seed, instance, replace(block, reward_sums=block.reward_sums + 1.0))
    assert sums.mean_error > 1e-4
    actions = block.actions.copy()
    actions[0, 0] = 2
    assert replay(policy, table, seed, instance, replace(block, actions=actions)).largest_distance == np.inf


def test_what_cannot_be_replayed_is_refused():
    for policy in ("ucb1", "thompson", "ucb | softmax(beta=log(t))"):
        with pytest.raises(ValueError, match="only fixed heads that draw from the weights"):
            replay(*play(policy, horizon=10))
    policy, table, seed, instance, block = play("ucb | softmax", horizon=10)
    with pytest.raises(ValueError, match="record=True"):
        replay(policy, table, seed, instance, replace(block, actions=None))


@pytest.mark.gpu
def test_ten_million_steps():
    found = replay(*play("centred_ucb | s_tau(tau=5)", horizon=10**7, engine="triton", device="cuda"))
    assert found.steps == 10**7
    assert found.counts_equal
    assert found.mean_error <= 1e-6
    assert found.same_choices >= 1 - 1e-4
    assert found.largest_distance <= 2e-5
