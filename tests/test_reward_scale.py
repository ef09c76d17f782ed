"""The scale of rewards: its statistics against other computations, runs that resume, and what it is good for."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers.vector import NormalizeReward
from numpy.testing import assert_allclose

from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.ppo import PPO, PPOSettings
from stau_rl.agents.policy_gradient.reward_scale import RewardScale
from stau_rl.agents.policy_gradient.rollout import Rollout, RolloutWorker

GAMMA, CORRIDOR = 0.9, "own_envs:Corridor-v0"


def rollout(seed, steps=40, copies=3):
    """Rewards of any size, ends of both kinds, and after each the step that resets, which does not count."""
    random = np.random.default_rng(seed)
    ends = random.random((steps, copies)) < 0.15
    valid = np.ones((steps, copies), dtype=bool)
    for t in range(1, steps):
        valid[t] = ~(ends[t - 1] & valid[t - 1])
    ends &= valid
    cut = ends & (random.random((steps, copies)) < 0.5)
    rewards = np.where(valid, random.normal(3.0, 50.0, (steps, copies)), 0.0).astype(np.float32)
    none = np.zeros((0, 2), dtype=np.int64)
    rows = np.zeros((steps + 1, copies, 1), dtype=np.float32)
    return Rollout(rows, np.zeros((steps, copies), np.int64), rewards, ends & ~cut, cut, valid, rows[:0, 0], none)


def returns_by_hand(rollouts):
    """R_t of every copy in turn, by Python's own numbers; they go on from one rollout to the next."""
    found = []
    for copy in range(rollouts[0].rewards.shape[1]):
        running = 0.0
        for one in rollouts:
            for t in range(len(one.rewards)):
                if not one.valid[t, copy]:
                    continue
                running = GAMMA * running + float(one.rewards[t, copy])
                found.append(running)
                if one.terminated[t, copy] or one.truncated[t, copy]:
                    running = 0.0
    return found


def test_the_running_statistics_are_those_of_all_returns():
    played = [rollout(seed) for seed in range(4)]
    scale = RewardScale("return", GAMMA)
    scaled = [scale.rewards(one) for one in played]
    returns = returns_by_hand(played)
    assert scale.count == len(returns) < 4 * 40 * 3
    assert scale.mean == pytest.approx(np.mean(returns), rel=1e-12)
    assert scale.squares / scale.count == pytest.approx(np.var(returns), rel=1e-12)
    # Every rollout is scaled by the statistics with itself in them.
    for number, (one, found) in enumerate(zip(played, scaled, strict=True), 1):
        deviation = np.sqrt(np.var(returns_by_hand(played[:number])) + 1e-8)
        assert_allclose(found, one.rewards / deviation, rtol=1e-5)
        assert np.abs(found).max() < 10


def test_the_statistics_are_those_of_gymnasiums_wrapper():
    """A corridor on SAME_STEP resets, where every step counts; its start of one step weighs 1e-4 of a step."""
    seen = []

    class Watched(NormalizeReward):
        def step(self, action):
            seen.append(action)
            return super().step(action)

    mode = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs = gym.make_vec(CORRIDOR, 4, vectorization_mode="sync", vector_kwargs=mode, pay=100.0)
    wrapped = Watched(gym.make_vec(CORRIDOR, 4, vectorization_mode="sync", vector_kwargs=mode, pay=100.0), GAMMA)
    agent = PPO(PPOSettings(env=CORRIDOR, hidden=()), 0)
    played, _ = RolloutWorker(envs, agent.spaces, 0).collect(agent.actor, 150, np.random.default_rng(0))
    wrapped.reset(seed=0)
    for actions in played.actions:
        wrapped.step(actions)
    scale = RewardScale("return", GAMMA)
    scale.rewards(played)
    assert len(seen) == 150
    assert played.rewards.any()
    assert scale.squares / scale.count == pytest.approx(float(wrapped.return_rms.var), rel=1e-5)


def test_by_hand():
    """Two copies, gamma 1/2: returns 2, 1 + 4 = 5 and an end, then a step that resets and is left out; and 0, 0, 1."""
    none = np.zeros((0, 2), dtype=np.int64)
    rewards = np.array([[2, 0], [4, 0], [0, 1]], dtype=np.float32)
    ends = np.array([[0, 0], [1, 0], [0, 0]], dtype=bool)
    valid = np.array([[1, 1], [1, 1], [0, 1]], dtype=bool)
    rows = np.zeros((4, 2, 1), dtype=np.float32)
    one = Rollout(rows, np.zeros((3, 2), np.int64), rewards, ends, np.zeros_like(ends), valid, rows[:0, 0], none)
    scale = RewardScale("return", 0.5)
    found = scale.rewards(one)
    # Returns 2, 5, 0, 0, 1: mean 8/5, mean of squares 30/5 = 6, variance 6 - 64/25 = 86/25.
    assert (scale.count, scale.mean) == (5, pytest.approx(1.6))
    assert_allclose(found, rewards / np.sqrt(86 / 25), rtol=1e-6)


def test_equal_returns_have_no_deviation_and_rewards_are_cut():
    none = np.zeros((0, 2), dtype=np.int64)
    ones, flags = np.ones((3, 2), dtype=np.float32), np.ones((3, 2), dtype=bool)
    rows = np.zeros((4, 2, 1), dtype=np.float32)
    one = Rollout(rows, np.zeros((3, 2), np.int64), ones, flags, ~flags, flags, rows[:0, 0], none)
    scale = RewardScale("return", 0.5)
    assert scale.rewards(one).tolist() == [[10.0, 10.0]] * 3
    assert RewardScale(0.25, 0.5).rewards(one).tolist() == [[0.25, 0.25]] * 3


@pytest.mark.parametrize("name", list(AGENTS))
def test_statistics_are_kept_between_segments_and_in_states(name):
    """Environments start anew with each segment, statistics do not; evaluation leaves them as they are."""
    kind = AGENTS[name]
    given = {"env": CORRIDOR, "steps": 600, "points": 2, "hidden": (4,), "curve_episodes": 2, "envs": 2}
    agent = kind(kind.Settings(**given), 0)
    agent.play_segment()
    first = agent.scale.state()
    assert first["count"] == agent.step
    assert first["squares"] > 0
    agent.evaluate(4)
    assert agent.scale.state() == first
    other = kind(agent.settings, 0)
    other.load(agent.state())
    assert other.scale.state() == first
    for one in (agent, other):
        one.play_segment()
    assert other.scale.state() == agent.scale.state()
    assert agent.scale.count == agent.step
    assert str(other.optimiser.state()) == str(agent.optimiser.state())


@pytest.mark.parametrize("pay", [1.0, 1000.0])
def test_a_corridor_is_solved_by_every_seed_in_any_unit(pay):
    """A reward after six steps, found by chance at first; with the factor 0.05 two seeds of four fail where it is 1."""
    given = {"env_args": {"pay": pay}, "steps": 8_000, "points": 1, "hidden": (16,), "curve_episodes": 0, "rollout": 64}
    for seed in range(4):
        agent = PPO(PPOSettings(env=CORRIDOR, **given), seed)
        agent.play_segment()
        assert agent.evaluate(20, deterministic=True).tolist() == [pay] * 20


def test_what_is_no_scale_is_refused():
    assert AgentSettings().reward_scale == "return"
    assert AgentSettings.from_texts({"reward_scale": "0.05"}).reward_scale == 0.05
    assert AgentSettings.from_texts({"reward_scale": "return"}) == AgentSettings()
    for text in ("std", "0", "-1", "nan", "inf"):
        with pytest.raises(ValueError, match="reward_scale must be return, or a positive and finite number"):
            AgentSettings.from_texts({"reward_scale": text})
    assert replace(AgentSettings(), reward_scale=2).as_dict()["reward_scale"] == 2
