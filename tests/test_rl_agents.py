"""Agents: gradients and losses by hand, learning where the answer is known, runs that resume bit by bit."""

from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from stau_rl.agents.policy_gradient import AGENTS, agent_class
from stau_rl.agents.policy_gradient.a2c import A2C, A2CSettings
from stau_rl.agents.policy_gradient.environments import make_envs
from stau_rl.agents.policy_gradient.optimiser import FlatAdam
from stau_rl.agents.policy_gradient.ppo import PPO, PPOSettings
from stau_rl.agents.policy_gradient.reinforce import Reinforce, ReinforceSettings
from stau_rl.agents.policy_gradient.rollout import RolloutWorker
from stau_rl.heads import HEADS
from stau_rl.plugin.plugin_head import forget, head

SHORT = {"points": 2, "curve_episodes": 3, "episodes": 5}


def settings(name, **given):
    own = {"ppo": {"rollout": 16, "minibatch": 32}, "a2c": {}, "reinforce": {"envs": 2}}[name]
    return agent_class(name).Settings(**{"steps": 600, "hidden": (8,), **SHORT, **own, **given})


def played(agent):
    while not agent.finished:
        agent.play_segment()
    return agent


def test_flat_adam_is_torchs_adam_with_its_clipping():
    """Ten steps on a quadratic whose gradient is longer than the limit at first; float32 rounding."""
    torch.manual_seed(0)
    start = [torch.randn(3, 2), torch.randn(4)]
    ours = [torch.nn.Parameter(part.clone()) for part in start]
    theirs = [torch.nn.Parameter(part.clone()) for part in start]
    flat, reference = FlatAdam([ours], eps=1e-5), torch.optim.Adam(theirs, lr=0.1, eps=1e-5)
    for _ in range(10):
        flat.step(sum((p**2).sum() for p in ours), 0.1, 0.5)
        reference.zero_grad()
        sum((p**2).sum() for p in theirs).backward()
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_networks_are_clipped_each_by_itself():
    """Gradients (3, 4) and (0.3): the first is shortened to length 1, the second stays."""
    first, second = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
    flat = FlatAdam([[first], [second]], 1e-8)
    flat.step(3 * first[0] + 4 * first[1] + 0.3 * second[0], 0.0, 1.0)
    assert_allclose(flat.flat.grad.numpy(), [0.6, 0.8, 0.3], rtol=1e-5)


def test_parameters_apart_have_their_own_rate():
    shared, apart = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(()))
    flat = FlatAdam([[shared]], 1e-8, [apart], 0.1)
    flat.step(shared.sum() + apart, 0.01, 10.0)
    # Adam's first step has the length of the learning rate.
    assert_allclose(shared.detach().numpy(), 0.99, rtol=1e-6)
    assert_allclose(apart.detach().numpy(), 0.999, rtol=1e-6)


@pytest.mark.parametrize("baseline", ["value", "none"])
def test_reinforce_follows_the_exact_gradient(baseline):
    """One-step bandit, means 0 and 1: the score gradient averages to p (1 - p) (0 - 1) for arm 0 within 5 errors."""
    agent = Reinforce(
        ReinforceSettings(
            env="exact-bandit-v0",
            envs=4000,
            hidden=(),
            baseline=baseline,
            normalise=False,
            value=0.0,
            reward_scale=1.0,
            **SHORT,
        ),
        0,
    )
    grads = []
    agent.optimiser.step = lambda loss, rate, norm: grads.append(
        torch.autograd.grad(loss, agent.network.actor[-1].bias)[0].numpy()
    )
    agent.update(RolloutWorker(make_envs("exact-bandit-v0", 4000), agent.spaces, 0), np.random.default_rng(0))
    # The loss is minus the objective; each episode's gradient has a deviation of at most 1.
    assert abs(grads[0][0] - 0.25) < 5 / np.sqrt(4000)
    assert grads[0].sum() == pytest.approx(0.0, abs=1e-6)


@pytest.fixture(autouse=True)
def exact_bandit():
    import stau_rl  # noqa: F401

    gym.register(
        "exact-bandit-v0",
        entry_point="stau_rl.envs.gym.bandits:BernoulliBanditEnv",
        vector_entry_point="stau_rl.envs.gym.bandit_vectors:BernoulliBanditVectorEnv",
        kwargs={"means": [0.0, 1.0]},
    )
    yield
    del gym.registry["exact-bandit-v0"]


@pytest.mark.parametrize("head", ["softmax(beta=1)", "s_tau(tau=2)", "escort(p=2)", "sigmoid_norm"])
@pytest.mark.parametrize("name", list(AGENTS))
def test_every_agent_finds_the_paying_arm(name, head):
    """Arms that pay 0 and 1 for sure, from a uniform start (escort's scores start at 1): return 0.5 to over 0.95."""
    given = {
        "env": "exact-bandit-v0",
        "envs": 16,
        "steps": 3000,
        "learning_rate": 0.03,
        "score_offset": float("escort" in head),
    }
    agent = played(agent_class(name)(settings(name, **given), 0))
    assert agent.evaluate(200).mean() > 0.95
    assert agent.evaluate(50, deterministic=True).mean() == 1.0


def test_a_context_is_learned_from():
    """Two arms that pay x and -x: the best policy earns E|x| = 1/2, one that ignores the context 0."""
    gym.register(
        "sign-bandit-v0",
        entry_point="stau_rl.envs.gym.bandits:ContextualBanditEnv",
        vector_entry_point="stau_rl.envs.gym.bandit_vectors:ContextualBanditVectorEnv",
        kwargs={"means": [[1.0], [-1.0]]},
    )
    try:
        agent = played(A2C(settings("a2c", env="sign-bandit-v0", envs=32, steps=8000, learning_rate=0.02), 0))
        assert agent.evaluate(500, deterministic=True).mean() > 0.45
    finally:
        del gym.registry["sign-bandit-v0"]


@pytest.mark.parametrize("head", list(HEADS))
def test_every_head_trains_without_a_bad_number(head):
    agent = played(PPO(settings("ppo", head=head, score_offset=0.5), 0))
    assert torch.isfinite(agent.optimiser.flat).all()
    assert np.isfinite(agent.evaluate(3)).all()


def test_a_users_head_trains():
    @head("cubic_rl", p=3.0, sharpness="p")
    def cubic_rl(scores, p):
        return p * torch.log1p(scores.abs())

    try:
        agent = played(PPO(settings("ppo", env="exact-bandit-v0", head="cubic_rl(p=5)", learning_rate=0.02), 0))
        assert agent.evaluate(200).mean() > 0.6
    finally:
        forget("cubic_rl")


def test_a_learned_parameter_moves_and_is_kept():
    agent = played(PPO(settings("ppo", head="s_tau(tau=2)", learn=("tau",), head_rate=1.0), 0))
    tau = float(agent.network.module.value("tau").detach())
    assert tau != pytest.approx(2.0, abs=1e-4)
    other = PPO(agent.settings, 0)
    other.load(agent.state())
    assert float(other.network.module.value("tau").detach()) == tau


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "stau_rl:stau_rl/ContextualBandit-v0"])
@pytest.mark.parametrize("name", list(AGENTS))
def test_a_resumed_run_goes_on_bit_by_bit(name, env, tmp_path):
    """Saved to a file after the first of three segments, loaded into a new agent: same weights, moments and curve."""
    make = partial(agent_class(name), settings(name, env=env, points=3), 5)
    whole = played(make())
    stopped = make()
    stopped.play_segment()
    torch.save(stopped.state(), tmp_path / "state.pt")
    resumed = make()
    resumed.load(torch.load(tmp_path / "state.pt", weights_only=True))
    played(resumed)
    assert torch.equal(whole.optimiser.flat, resumed.optimiser.flat)
    assert str(whole.state()["optimiser"]) == str(resumed.state()["optimiser"])
    assert str(whole.curve) == str(resumed.curve)
    assert_array_equal(whole.evaluate(5), resumed.evaluate(5))


def test_a_state_is_not_changed_by_what_follows():
    """A run goes on from a state held in memory as it did the first time, though two agents played after it."""
    agent = PPO(settings("ppo", points=3), 0)
    agent.play_segment()
    state = agent.state()
    played(agent)
    for _ in range(2):
        other = PPO(agent.settings, 0)
        other.load(state)
        assert_array_equal(played(other).optimiser.flat.detach().numpy(), agent.optimiser.flat.detach().numpy())


@pytest.mark.parametrize("head", ["power_norm", "softpick", "rela"])
def test_a_head_that_gives_rows_no_weight_trains(head):
    """Scores start around 0, so about a quarter of the rows has none above it."""
    agent = played(PPO(settings("ppo", head=head), 0))
    assert torch.isfinite(agent.optimiser.flat).all()


def test_seeds_differ_and_nothing_reads_a_global_generator():
    def weights(seed):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
        found = played(PPO(settings("ppo"), 3)).optimiser.flat.detach().clone()
        assert torch.equal(torch.get_rng_state(), before[0])
        assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
        return found

    assert torch.equal(weights(0), weights(1))
    assert not torch.equal(weights(0), played(PPO(settings("ppo"), 4)).optimiser.flat)


def test_steps_that_only_reset_do_not_count():
    """CartPole's vector class resets on the step after an end: an update's steps are those with a played action."""
    agent = PPO(settings("ppo", points=1, steps=1), 0)
    row = agent.play_segment()
    # An episode that ended on the rollout's last step has its reset still to come.
    assert 16 * 8 - row["train_episodes"] <= row["step"] < 16 * 8


@pytest.mark.parametrize("kind", [A2C, PPO])
def test_nothing_is_learned_from_a_rollout_of_resets(kind):
    """All copies of a one-step episode end together, so every second rollout of one step only resets."""
    agent = kind(kind.Settings(env="stau_rl:stau_rl/BernoulliBandit-v0", rollout=1, hidden=(8,)), 0)
    worker = RolloutWorker(make_envs(agent.settings.env, 8), agent.spaces, 0)
    assert agent.update(worker, np.random.default_rng(0))[0] == 8
    before = agent.optimiser.flat.detach().clone()
    assert agent.update(worker, np.random.default_rng(0)) == (0, [])
    assert torch.equal(agent.optimiser.flat, before)
    assert agent.update(worker, np.random.default_rng(0))[0] == 8
    assert not torch.equal(agent.optimiser.flat, before)


def test_the_learning_rate_falls_to_zero():
    rates = []
    agent = A2C(settings("a2c", learning_rate=0.5), 0)
    step = agent.optimiser.step
    agent.optimiser.step = lambda loss, rate, norm: (rates.append(rate), step(loss, rate, norm))
    played(agent)
    assert rates[0] == 0.5
    assert all(late < early for early, late in pairwise(rates))
    assert rates[-1] < 0.06
    steady = A2C(settings("a2c", anneal=False), 0)
    steady.step = 500
    assert steady.learning_rate == steady.settings.learning_rate


@pytest.mark.parametrize("name", list(AGENTS))
@pytest.mark.parametrize(
    ("setting", "value"),
    [("steps", 0), ("gamma", 1.5), ("learning_rate", 0.0), ("head", "softmix"), ("envs", 0), ("entropy", -1.0)],
)
def test_bad_settings_are_named(name, setting, value):
    with pytest.raises(ValueError, match=setting if setting != "head" else "softmix"):
        settings(name, **{setting: value})


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        (PPOSettings, "clip", 0.0),
        (PPOSettings, "minibatch", 0),
        (PPOSettings, "lam", 2.0),
        (A2CSettings, "rollout", 0),
        (ReinforceSettings, "baseline", "mean"),
    ],
)
def test_bad_settings_of_one_agent_are_named(kind, setting, value):
    with pytest.raises(ValueError, match=setting):
        kind(**{setting: value})


def test_settings_from_texts():
    found = PPOSettings.from_texts(
        {"learning_rate": "1e-3", "hidden": "32,16", "anneal": "false", "epochs": "3", "learn": "tau"}, steps=7
    )
    assert (found.learning_rate, found.hidden, found.anneal, found.epochs) == (1e-3, (32, 16), False, 3)
    assert (found.steps, found.learn) == (7, ("tau",))
    for texts, message in (
        ({"learning_rat": "1"}, "unknown setting"),
        ({"epochs": "2.5"}, "whole number"),
        ({"anneal": "maybe"}, "true or false"),
        ({"hidden": "a"}, "widths"),
    ):
        with pytest.raises(ValueError, match=message):
            PPOSettings.from_texts(texts)
    assert PPOSettings(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.as_dict().items()}) == found


def test_an_unknown_agent_is_named():
    with pytest.raises(ValueError, match="did you mean 'ppo'"):
        agent_class("pppo")
