"""Every head stays finite whatever the unit of the rewards, and over a million steps, on every engine."""

from typing import Any

import numpy as np
import pytest
import torch

from stau_rl.agents.bandit import SCORES, Index, Mean, Pipe, Ucb
from stau_rl.heads import HEADS, Head, parse_head
from stau_rl.kernels.contract import ArmTable, EngineError
from stau_rl.kernels.cpu.heads import DEVICE_HEADS
from stau_rl.kernels.engines import ENGINES
from stau_rl.kernels.torch_sampling import inverse_cdf

CHANGING = ["softmax(beta=4*log(t))", "s_tau(tau=1+5*log(t))", "escort(p=1+log(1+t))"]
WHOLE = [head() for head in HEADS.values() if head.mass_kind == "simplex"]
HEADS_AND_SCHEDULES = [*WHOLE, *map(parse_head, CHANGING)]
ON = [(engine, dtype) for engine in ENGINES.values() if engine.cpu for dtype in engine.dtypes]
COMPILED = {*DEVICE_HEADS, "argmax"}
SCALES = [1e-6, 1e6]


def gaussian(scale: float, instances: int) -> ArmTable:
    """Two arms with means 0 and 1 and unit noise, in a unit of 1 / scale."""
    means = scale * np.array([[0.0], [1.0]])
    return ArmTable("gaussian", means, scale, np.empty(0), np.empty(0, np.int64), False, instances)


def scaled(name: str, head: Head, scale: float) -> Pipe:
    """A pipe whose bonus is in the unit of the rewards."""
    score = SCORES[name]
    return Pipe(score(c=scale) if issubclass(score, Ucb) else score(), head)


def play(policy: Pipe, table: ArmTable, horizon: int, engine: Any, dtype: str) -> Any:
    checkpoints = np.array([1, horizon // 2, horizon])
    options = {"seed": 5, "first_instance": 0, "dtype": dtype, "checkpoints": checkpoints}
    return engine.simulate(policy, table, horizon=horizon, record=horizon <= 1000, **options)


def check(got: Any, table: ArmTable, horizon: int) -> None:
    """Counts add up, and regret is what they say: finite, and within what the gaps allow."""
    assert (got.pulls.sum(axis=0) == horizon).all()
    assert np.isfinite(got.reward_sums).all()
    np.testing.assert_allclose(got.regret[-1], (got.pulls * table.gaps()).sum(axis=0), rtol=1e-12, atol=0)
    assert (np.diff(got.regret, axis=0) >= 0).all()
    assert (got.regret >= 0).all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("engine", "dtype"), ON, ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("score", [name for name, score in SCORES.items() if not issubclass(score, Index)])
@pytest.mark.parametrize("head", WHOLE, ids=str)
def test_rewards_in_any_unit(head: Head, score: str, engine: Any, dtype: str, scale: float) -> None:
    table = gaussian(scale, 32)
    if engine.name == "numba" and head.name not in COMPILED:
        with pytest.raises(EngineError, match="engine='torch' runs every head"):
            play(scaled(score, head, scale), table, 100, engine, dtype)
        return
    got = play(scaled(score, head, scale), table, 100, engine, dtype)
    check(got, table, 100)
    assert np.isfinite(got.rewards).all()
    # A NaN among the weights would send every draw to the first arm, the worse one; no head is worse than chance.
    assert got.pulls[1].sum() > 0.45 * got.pulls.sum()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("head", HEADS_AND_SCHEDULES, ids=str)
def test_weights_of_scores_in_any_unit(head: Head, dtype: torch.dtype, scale: float) -> None:
    generator = torch.Generator().manual_seed(2)
    scores = scale * torch.randn(10, 500, generator=generator, dtype=dtype)
    for step in (1, 10**3, 10**6):
        weights = head.at(step).weights(scores, dim=0)
        torch.testing.assert_close(weights.sum(0), torch.ones(500, dtype=dtype), rtol=0, atol=1e-5)
        assert bool(((weights >= 0) & (weights <= 1)).all())
        assert bool((inverse_cdf(weights, torch.full((500,), 1.0 - 2.0**-24)) < 10).all())
        assert bool(head.at(step).log_weights(scores, dim=0).isnan().logical_not().all())


@pytest.mark.parametrize("head", [one for one in HEADS_AND_SCHEDULES[:-2] if one.name in COMPILED], ids=str)
def test_a_million_steps(head: Head) -> None:
    table, horizon = gaussian(1.0, 4), 10**6
    got = play(Pipe(Mean(), head), table, horizon, ENGINES["numba"], "float32")
    check(got, table, horizon)
    # By then each mean is known, and the share of pulls is the weight.
    if head.smooth_at_zero and not head.schedules:
        weight = float(head.weights(torch.tensor([0.0, 1.0], dtype=torch.float64))[1])
        np.testing.assert_allclose(got.pulls[1] / horizon, weight, atol=0.01)
