"""An offset of the scores: the same on both engines, nothing to softmax, another sharpness to s^tau."""

import numpy as np
import pytest

from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms import parse_arms
from stau_rl.kernels import torch_loop
from stau_rl.kernels.cpu import loop as numba_loop
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.run import run_regret

HORIZON, INSTANCES = 60, 64


def _actions(engine, policy: str, arms: str = "bernoulli(k=3)") -> np.ndarray:
    table = arm_table(parse_arms(arms), 5, 0, INSTANCES)
    block = engine.simulate(
        parse_policy(policy).lowered(),
        table,
        seed=5,
        first_instance=0,
        horizon=HORIZON,
        checkpoints=np.array([HORIZON]),
        record=True,
    )
    return block.actions


@pytest.mark.parametrize("score", ["centred_ucb", "ucb"])
@pytest.mark.parametrize("offset", [-8.0, 2.5])
def test_engines_agree(score: str, offset: float) -> None:
    policy = f"{score}(c=0.3, offset={offset}) | s_tau(tau=6.5)"
    same = _actions(numba_loop, policy) == _actions(torch_loop, policy)
    # A history may part where a uniform falls within a rounding of an edge; of 64 x 60 draws hardly ever.
    assert same.all(axis=0).mean() >= 0.95
    assert str(parse_policy(policy)) == f"{score}(c=0.3, offset={offset:g}) | s_tau(tau=6.5)"


def test_softmax_and_argmax_do_not_see_it() -> None:
    for head in ("softmax(beta=4.5)", "argmax"):
        plain, moved = (_actions(torch_loop, f"centred_ucb({given}) | {head}") for given in ("", "offset=4"))
        assert (plain == moved).all(axis=0).mean() >= 0.95


def test_far_below_zero_s_tau_is_softmax_of_beta_tau() -> None:
    far = _actions(torch_loop, "centred_ucb(offset=-16) | s_tau(tau=3, eps=0)")
    near = _actions(torch_loop, "centred_ucb | softmax(beta=3)")
    assert (far == near).all(axis=0).mean() >= 0.95


def test_above_zero_s_tau_is_softer() -> None:
    result = run_regret(
        "bernoulli(k=3)", [f"centred_ucb(offset={o}) | s_tau(tau=9.5)" for o in (-4, 0, 4)], HORIZON, 512, seed=1
    )
    final = result.regret[:, -1].mean(axis=1)
    assert final[0] < final[1] < final[2]


def test_an_infinite_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        parse_policy("ucb(offset=inf) | softmax(beta=1)")
