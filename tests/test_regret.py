"""The benchmark runner: what it refuses, what moves its numbers and what must not, and how it survives a kill."""

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms import BernoulliArms, parse_arms
from stau_rl.kernels.contract import Block, EngineError
from stau_rl.kernels.engines import ENGINES
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.plan import default_checkpoints, part_size
from stau_rl.regret.result import RegretResult
from stau_rl.regret.run import run_regret

POLICIES = ["centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)", "ucb1", "random"]
# The GPU engine has tests of its own.
every_engine = pytest.mark.parametrize("engine", [name for name, engine in ENGINES.items() if engine.cpu])


def _run(policies: list[str] | None = None, **changes: Any) -> RegretResult:
    given: dict[str, Any] = {"arms": "bernoulli(k=3)", "horizon": 60, "instances": 40, "engine": "torch"}
    return run_regret(policies=policies or POLICIES, **{**given, **changes})


def _play(policy: str, arms: str, engine: str, horizon: int, instances: int, seed: int = 0) -> Block:
    block: Block = ENGINES[engine].simulate(
        parse_policy(policy),
        arm_table(parse_arms(arms), seed, 0, instances),
        seed=seed,
        first_instance=0,
        horizon=horizon,
        checkpoints=np.array([horizon]),
        record=True,
    )
    return block


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": []}, r"policies must name at least one policy, got none"),
        ({"policies": "ucb1"}, r"policies must be a list of texts or Policy objects, got 'ucb1'"),
        ({"policies": [3]}, r"policies must be texts or Policy objects, got 3"),
        ({"policies": ["ucb1", " ucb1 "]}, r"policy 'ucb1' is given twice"),
        (
            {"policies": ["mean | softmax(beta=1)", "mean|softmax"]},
            r"policy 'mean \| softmax\(beta=1\)' is given twice",
        ),
        ({"policies": ["ucb3"]}, r"unknown policy 'ucb3'; did you mean 'ucb1'\?"),
        ({"arms": "bernoulli(k=0)"}, r"bernoulli: k must be in 1..1024, got 0"),
        ({"horizon": 0}, r"horizon must be a whole number in \[1, 4294967296\], got 0"),
        ({"horizon": 10.0}, r"horizon must be a whole number in \[1, 4294967296\], got 10.0"),
        ({"horizon": (1 << 32) + 1}, r"horizon must be a whole number in \[1, 4294967296\], got 4294967297"),
        ({"horizon": True}, r"horizon must be a whole number .* got True"),
        ({"instances": 0}, r"instances must be a whole number in \[1, 1099511627776\], got 0"),
        ({"instances": -5}, r"instances must be a whole number in \[1, 1099511627776\], got -5"),
        ({"seed": -1}, r"seed must be an integer in \[0, 2\^64\), got -1"),
        ({"seed": 1 << 64}, r"seed must be an integer in \[0, 2\^64\), got 18446744073709551616"),
        ({"seed": -1, "arms": "bernoulli(means=[0.5, 0.1])"}, r"seed must be an integer in \[0, 2\^64\), got -1"),
        ({"seed": 0.5}, r"seed must be an integer in \[0, 2\^64\), got 0.5"),
        ({"checkpoints": []}, r"checkpoints must name at least one step, got none"),
        ({"checkpoints": [0, 5]}, r"every checkpoint must be a whole number in \[1, 60\], got 0"),
        ({"checkpoints": [61]}, r"every checkpoint must be a whole number in \[1, 60\], got 61"),
        ({"checkpoints": [1.5]}, r"every checkpoint must be a whole number in \[1, 60\], got 1.5"),
        (
            {"baseline": "thompson"},
            r"baseline 'thompson' is not among the policies \(centred_ucb \| softmax\(beta=1\); ",
        ),
        ({"baseline": "nothing"}, r"unknown policy 'nothing'"),
        ({"engine": "jax"}, r"unknown engine 'jax'; known: auto, triton, numba, torch"),
        ({"device": "tpu"}, r"unknown device 'tpu'; known: auto, cpu, cuda, cuda:N"),
        ({"device": "cuda:99"}, r"device 'cuda:99' is not there"),
        ({"dtype": "half"}, r"unknown dtype 'half'; known: auto, float32, float64"),
        ({"engine": "numba", "dtype": "float64"}, r"engine 'numba' has no float64 scores; torch has"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"policies": POLICIES, "out": tmp_path / "run", **changes}
    with pytest.raises(ValueError, match=message):
        run_regret(**{"arms": "bernoulli(k=3)", "horizon": 60, "instances": 40, "engine": "torch", **given})
    assert list(tmp_path.iterdir()) == []


@every_engine
def test_subset_and_order_of_policies_never_move_numbers(engine: str) -> None:
    whole = _run(engine=engine)
    for policies in (POLICIES[::-1], POLICIES[1:3], [POLICIES[3]]):
        part = _run(policies, engine=engine)
        assert part.policies == policies
        for name in ("regret", "optimal", "late_optimal", "pulls"):
            rows = [whole.index(policy) for policy in policies]
            assert_array_equal(getattr(part, name), getattr(whole, name)[rows], err_msg=name)


def test_parts_and_more_instances_never_move_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _run()
    more = _run(instances=57)
    assert_array_equal(more.regret[..., :40], whole.regret)
    monkeypatch.setattr("stau_rl.regret.plan.SMALLEST_PART", 7)
    monkeypatch.setattr("stau_rl.regret.plan.LARGEST_PART", 7)
    assert part_size(3, 60) == 7
    parts = _run()
    assert_array_equal(parts.regret, whole.regret)
    assert_array_equal(parts.best_mean, whole.best_mean)


def test_a_seed_has_an_effect_and_repeats() -> None:
    first = _run(seed=1)
    assert_array_equal(_run(seed=1).regret, first.regret)
    for seed in (2, 1 << 32, (1 << 64) - 1):
        assert (_run(seed=seed).regret[:, -1] != first.regret[:, -1]).mean() > 0.9


@every_engine
def test_instances_are_independent(engine: str) -> None:
    # Error rate: each p-value is below 1e-4 with that probability; the seed is fixed.
    regret = _run(["centred_ucb | s_tau(tau=5)"], arms="bernoulli(means=[0.6, 0.4])", instances=4000, engine=engine)
    last = regret.regret[0, -1]
    assert last.std() > 0.0
    for lag in (1, 2, 16, 256):
        assert stats.pearsonr(last[lag:], last[:-lag]).pvalue > 1e-4


def test_the_baseline_is_the_first_policy_unless_named() -> None:
    assert _run().spec["baseline"] == POLICIES[0]
    assert _run(baseline=" ucb1 ").spec["baseline"] == "ucb1"
    assert _run(baseline=parse_policy("random")).spec["baseline"] == "random"
    assert set(_run(baseline="ucb1").compare()["baseline"]) == {"ucb1"}


def test_default_checkpoints_are_log_spaced() -> None:
    # 10^(i/8) rounds to 1 1 2 2 3 4 6 7 10 13 18 24 32 42 56 75 100.
    assert default_checkpoints(100) == [1, 2, 3, 4, 6, 7, 10, 13, 18, 24, 32, 42, 56, 75, 100]
    assert default_checkpoints(20) == [1, 2, 3, 4, 6, 7, 10, 13, 18, 20]
    assert default_checkpoints(1) == [1]
    assert default_checkpoints(2) == [1, 2]
    assert default_checkpoints(1 << 32)[-1] == 1 << 32
    assert _run(checkpoints=[60, 5, 5, 1]).spec["checkpoints"] == [1, 5, 60]


@every_engine
@pytest.mark.parametrize("arms", ["bernoulli(k=3)", "gaussian(means=[-1, 2, 2])"])
def test_regret_is_the_gaps_times_the_pulls_and_never_falls(engine: str, arms: str) -> None:
    result = _run(arms=arms, engine=engine)
    assert result.regret.min() >= 0.0
    assert np.diff(result.regret, axis=1).min() >= 0.0
    gaps = arm_table(parse_arms(arms), 0, 0, 40).gaps()
    assert_allclose(result.regret[:, -1], (result.pulls * gaps).sum(axis=1), rtol=1e-12, atol=1e-12)
    assert_array_equal(result.pulls.sum(axis=1), np.full((4, 40), 60))
    # What was earned varies around it: realised regret would fall below 0 on some instance.
    block = _play("ucb1", "gaussian(means=[0, 0.1])", engine, 60, 40)
    assert ((0.1 * 60 - block.reward_sums.sum(axis=0)) < 0.0).any()
    assert (block.regret >= 0.0).all()


@every_engine
@pytest.mark.parametrize("policy", ["greedy", "eps_greedy(eps=0)", "eps_greedy(eps=1)", "random", "mean | softmax"])
def test_ties_do_not_go_to_the_first_arm(engine: str, policy: str) -> None:
    # Before any pull all K means are equal. Error rate: a p-value below 1e-4 has that probability; the seed is fixed.
    actions = _play(policy, "bernoulli(means=[0.1, 0.1, 0.1, 0.1, 0.1])", engine, 1, 4000).actions
    assert actions is not None
    assert stats.chisquare(np.bincount(actions[0], minlength=5)).pvalue > 1e-4


@every_engine
def test_ucb_ties_after_the_forced_pulls_are_broken_evenly(engine: str) -> None:
    block = _play("ucb1", "bernoulli(means=[1, 1, 1, 1])", engine, 5, 4000)
    assert block.actions is not None
    assert_array_equal(block.actions[:4], np.arange(4)[:, None].repeat(4000, axis=1))
    assert stats.chisquare(np.bincount(block.actions[4], minlength=4)).pvalue > 1e-4


SHARP = [
    "centred_ucb | softmax(beta=8)",
    "centred_ucb | s_tau(tau=5)",
    "ucb | s_tau(tau=30)",
    "ucb | escort(p=15)",
    "ucb1",
]


@every_engine
@pytest.mark.parametrize("policy", SHARP)
@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_huge_scores_do_not_zero_the_best_arm(engine: str, policy: str, scale: float) -> None:
    block = _play(policy, f"gaussian(means=[0, {scale!r}])", engine, 40, 30)
    assert np.isfinite(block.regret).all()
    assert np.isfinite(block.reward_sums).all()
    # One forced pull of the bad arm; against 1e4 its weight is at most (0.7 / 5000)^5 thereafter.
    assert_array_equal(block.pulls, np.array([[1], [39]]).repeat(30, axis=1))


@every_engine
@pytest.mark.parametrize("policy", ["gradient_bandit", "gradient_bandit(head=s_tau(tau=5))", "thompson", "eps_greedy"])
@pytest.mark.parametrize("arms", ["gaussian(means=[0, 1e6])", "gaussian(means=[0, 1e-6], sigma=1e-6)"])
def test_learners_stay_finite_at_any_scale_or_are_refused(engine: str, policy: str, arms: str) -> None:
    if engine == "numba" and policy.startswith("gradient") and "1e6" in arms:
        with pytest.raises(EngineError, match="rewards up to 1e\\+06 from the baseline"):
            _play(policy, arms, engine, 40, 30)
        return
    block = _play(policy, arms, engine, 40, 30)
    assert np.isfinite(block.regret).all()
    assert_array_equal(block.pulls.sum(axis=0), np.full(30, 40))
    assert block.rewards is not None
    assert np.isfinite(block.rewards).all()


@every_engine
def test_small_rewards_are_seen(engine: str) -> None:
    # With c on the scale of the rewards, UCB tells arms 1e-6 apart just as it tells arms 1 apart.
    small = _play("ucb(c=1e-6) | argmax", "gaussian(means=[0, 1e-6], sigma=1e-7)", engine, 60, 20)
    large = _play("ucb(c=1) | argmax", "gaussian(means=[0, 1], sigma=0.1)", engine, 60, 20)
    assert_array_equal(small.actions, large.actions)
    assert_allclose(small.regret, 1e-6 * large.regret, rtol=1e-9)


@every_engine
def test_noiseless_arms_are_settled_by_one_pull(engine: str) -> None:
    block = _play("greedy", "gaussian(means=[3, 1, 2], sigma=0)", engine, 30, 50)
    # Unseen arms have mean 0: the first pull is random, all means are positive, and greedy stays.
    assert (block.pulls.max(axis=0) == 30).all()
    assert_array_equal(block.rewards, np.array([3.0, 1.0, 2.0])[block.actions])
    thompson = _play("thompson", "gaussian(means=[3, 1, 2], sigma=0)", engine, 30, 50)
    assert np.isfinite(thompson.regret).all()


@every_engine
def test_memory_does_not_grow_with_the_steps(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Bytes held, by tensors and by all else, half way and at the end.
    size, horizon, done = 128, 2000, 0
    held: list[int] = []

    def look(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        if before < size * horizon // 2 <= done or done == size * horizon:
            gc.collect()
            # Not of subclasses: a compilation leaves stand-ins without memory behind.
            tensors = sum(thing.nbytes for thing in gc.get_objects() if type(thing) is torch.Tensor)
            held.append(tensors + tracemalloc.get_traced_memory()[0])

    if engine == "numba":
        monkeypatch.setattr("stau_rl.kernels.cpu.loop.WORK", 1e5)
    table = arm_table(BernoulliArms(k=3), 0, 0, size)
    # Compiled before memory is traced, which is slow.
    _play("centred_ucb | s_tau(tau=5)", "bernoulli(k=3)", engine, 2, size)
    tracemalloc.start()
    try:
        block = ENGINES[engine].simulate(
            parse_policy("centred_ucb | s_tau(tau=5)"),
            table,
            seed=0,
            first_instance=0,
            horizon=horizon,
            checkpoints=np.array([horizon]),
            progress=look,
        )
    finally:
        tracemalloc.stop()
    assert block.actions is None
    assert block.rewards is None
    assert block.regret.shape == (1, size)
    # A byte for each step of each instance in between would be 128 000; torch may tell of an end of 0 steps twice.
    assert len(held) >= 2
    assert held[-1] < held[0] + 50_000


@every_engine
@pytest.mark.parametrize("policy", ["centred_ucb | s_tau(tau=5)", "ucb1", "thompson", "gradient_bandit", "eps_greedy"])
@pytest.mark.parametrize(
    ("arms", "horizon"),
    [("gaussian(k=2)", 20), ("bernoulli(k=1)", 5), ("gaussian(k=1)", 1), ("bernoulli(k=7)", 3), ("bernoulli(k=2)", 1)],
)
def test_small_cases(engine: str, policy: str, arms: str, horizon: int) -> None:
    result = _run([policy], arms=arms, horizon=horizon, instances=5, engine=engine)
    size = parse_arms(arms).size
    assert_array_equal(result.pulls.sum(axis=1), np.full((1, 5), horizon))
    assert np.isfinite(result.regret).all()
    if size == 1:
        assert (result.regret == 0.0).all()
        assert result.optimal.all()
        assert (result.late_optimal == max(1, horizon // 10)).all()
    if policy == "ucb1" and horizon < size:
        assert_array_equal(result.pulls[0, :, 0], np.arange(size) < horizon)


@every_engine
@pytest.mark.parametrize("policy", ["centred_ucb | s_tau(tau=5)", "random"])
def test_as_many_arms_as_there_are_streams(engine: str, policy: str) -> None:
    block = _play(policy, "bernoulli(k=1024)", engine, 1030, 3)
    assert block.actions is not None
    if policy != "random":
        assert_array_equal(block.actions[:1024], np.arange(1024)[:, None].repeat(3, axis=1))
    assert_array_equal(block.pulls.sum(axis=0), [1030] * 3)
    assert block.actions.max() > 1000


def test_progress_adds_up() -> None:
    calls: list[tuple[str, int, int]] = []
    _run(horizon=150, report=lambda *call: calls.append(call))
    for policy in POLICIES:
        done = [done for text, done, total in calls if text == policy and total == 150 * 40]
        assert done[-1] == 150 * 40
        assert done == sorted(done)
