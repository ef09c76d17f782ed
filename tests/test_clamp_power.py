"""The head max(s, eps)^tau and the score centred by all rewards, against exact values and a plain loop."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from stau_rl.agents.bandit import parse_policy
from stau_rl.heads import parse_head
from stau_rl.kernels.contract import EngineError
from stau_rl.regret.run import run_regret

SCORES = torch.tensor([2.0, 1.0, 0.5, 0.0, -3.0], dtype=torch.float64)


def test_weights_by_hand() -> None:
    # 2^2, 1, 1/4 and twice eps^2: with eps = 1/4 the last two are 1/16 each.
    weights = parse_head("clamp_power(tau=2, eps=0.25)").weights(SCORES)
    assert_allclose(weights, np.array([64, 16, 4, 1, 1]) / 86, rtol=1e-14)
    # The default floor: 1e-8 beside 1, to the power 15 nothing.
    assert_allclose(
        parse_head("clamp_power(tau=15)").weights(SCORES)[:3], np.array([2.0, 1.0, 0.5]) ** 15 / 32769.000030517578
    )


def test_a_row_below_the_floor_is_uniform_and_minus_infinity_counts_as_the_floor() -> None:
    head = parse_head("clamp_power(tau=5)")
    assert_allclose(head.weights(torch.tensor([-1.0, -2.0, -math.inf, 0.0])), [0.25] * 4)
    # Beside a score of 1e-8 (1 + 1e-3) the floor is almost as likely.
    near = head.weights(torch.tensor([1.001e-8, 0.0], dtype=torch.float64))
    assert_allclose(near[0] / near[1], 1.001**5, rtol=1e-12)


def test_gradients_are_those_of_the_power_and_0_at_the_floor() -> None:
    head = parse_head("clamp_power(tau=3, eps=0.25)")
    scores = SCORES.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(head.log_weights(scores)[0], scores)
    w = head.weights(SCORES)
    # d log w_0 / d s_j = (1[j = 0] - w_j) 3 / s_j above the floor.
    wanted = torch.tensor([(1 - w[0]) * 3 / 2, -w[1] * 3, -w[2] * 6, 0.0, 0.0])
    assert_allclose(gradient, wanted, rtol=1e-12)


def test_far_above_the_floor_it_is_escort_and_softplus_meets_it_there() -> None:
    far = 40.0 + torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for other in ("escort(p=7)", "s_tau(tau=7, eps=0)"):
        assert_allclose(parse_head("clamp_power(tau=7)").weights(far), parse_head(other).weights(far), rtol=1e-12)


def test_the_score_against_a_plain_loop() -> None:
    """Ucb less the mean of every reward so far, read off a recorded history step by step."""
    arms, policy = "bernoulli(means=[0.9, 0.5, 0.1])", "reward_centred_ucb(c=0.5, offset=0.25) | clamp_power(tau=4)"
    from stau_rl.envs.arms import parse_arms
    from stau_rl.kernels import torch_loop
    from stau_rl.kernels.philox import ACTION_REWARD, words
    from stau_rl.regret.arm_table import arm_table

    table = arm_table(parse_arms(arms), 3, 0, 20)
    block = torch_loop.simulate(
        parse_policy(policy), table, seed=3, first_instance=0, horizon=60, checkpoints=np.array([60]), record=True
    )
    assert block.actions is not None
    assert block.rewards is not None
    for j in range(20):
        pulls, sums = np.zeros(3), np.zeros(3)
        for t in range(60):
            if t >= 3:
                score = sums / pulls + 0.5 * np.sqrt(2 * np.log(t) / pulls) - sums.sum() / t + 0.25
                cdf = np.cumsum(np.maximum(score, 1e-8) ** 4)
                word = words(3, np.array([j]), t >> 1, ACTION_REWARD)[2 * (t & 1)][0]
                assert block.actions[t, j] == np.argmax(cdf > (int(word) >> 8) * 2.0**-24 * cdf[-1]), (j, t)
            pulls[block.actions[t, j]] += 1
            sums[block.actions[t, j]] += block.rewards[t, j]


def test_heads_that_see_differences_do_not_see_the_centre() -> None:
    texts = [f"{score} | softmax(beta=9)" for score in ("ucb", "centred_ucb", "reward_centred_ucb")]
    for engine in ("torch", "numba"):
        regret = run_regret("bernoulli(k=3)", texts, 80, 30, engine=engine).regret
        assert (regret[0] == regret[2]).all()


@pytest.mark.parametrize("text", ["clamp_power(tau=0)", "clamp_power(eps=0)", "clamp_power(tau=inf)"])
def test_illegal_parameters_name_themselves(text: str) -> None:
    with pytest.raises(ValueError, match=r"clamp_power: (tau|eps)"):
        parse_head(text)


def test_a_floor_that_float32_cannot_hold_is_left_to_torch() -> None:
    with pytest.raises(EngineError, match="takes eps of clamp_power from 1e-30"):
        run_regret("bernoulli(k=2)", ["mean | clamp_power(tau=2, eps=1e-40)"], 10, 5, engine="numba")
