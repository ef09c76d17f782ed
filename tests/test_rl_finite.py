"""A run stops at the first number that is not finite, names it, and keeps what was finished before."""

import json
import math
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch

from inline_pool import InlinePool
from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.agents.policy_gradient.finite import LARGEST, NonFiniteError, require_finite
from stau_rl.agents.policy_gradient.networks import ActorCritic, NumpyActor
from stau_rl.cli import main as cli
from stau_rl.heads import parse_head
from stau_rl.rl_study.play import run_rl_study
from stau_rl.rl_study.tasks import Task
from stau_rl.training.train import train

SHORT = {"hidden": (8,), "points": 4, "curve_episodes": 0, "episodes": 2, "steps": 200, "envs": 2}


class Breaks(gym.Env):
    """Observes (1, 1) and pays 1; at the step `at` of a process-wide count one number is `value` instead."""

    played = 0

    def __init__(self, what="reward", value=math.nan, at=50):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Discrete(2)
        self.what, self.value, self.at = what, value, at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return np.ones(2), {}

    def step(self, action):
        Breaks.played += 1
        self.left -= 1
        bad = Breaks.played == self.at
        observation = np.array([1.0, self.value if bad and self.what == "observation" else 1.0])
        return observation, self.value if bad and self.what == "reward" else 1.0, self.left == 0, False, {}


@pytest.fixture(autouse=True)
def breaking():
    Breaks.played = 0
    gym.register("breaks-v0", entry_point=Breaks, disable_env_checker=True)
    yield
    del gym.registry["breaks-v0"]


@pytest.fixture
def inline(monkeypatch):
    monkeypatch.setattr("stau_rl.training.train.RunPool", InlinePool)
    monkeypatch.setattr("stau_rl.rl_study.play.RunPool", InlinePool)


def register(**given):
    del gym.registry["breaks-v0"]
    gym.register("breaks-v0", entry_point=Breaks, disable_env_checker=True, kwargs=given)


def agent_of(name, **given):
    own = {"ppo": {"rollout": 16}, "a2c": {}, "reinforce": {}}[name]
    return AGENTS[name](AGENTS[name].Settings(**{**SHORT, "env": "breaks-v0", **own, **given}), 3)


def played(agent):
    while True:
        agent.play_segment()


@pytest.mark.parametrize("what", ["observation", "reward"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e39])
@pytest.mark.parametrize("name", list(AGENTS))
def test_the_environment_is_named(name, value, what):
    """Of two copies the first is at its 25th step in turn 49: 50 steps, less those that only reset one."""
    register(what=what, value=value, at=49)
    agent = agent_of(name)
    with pytest.raises(
        NonFiniteError, match=rf"^training stopped: {what} .* in env 'breaks-v0' after step \d+ "
    ) as told:
        played(agent)
    error = told.value
    assert (error.what, error.env, error.phase, error.run) == (what, "breaks-v0", "training", f"{name}, seed 3")
    assert str(error.value) == str(value)
    # Steps that only reset a copy are no calls of `step` here, so every call counts.
    assert error.step == 50
    assert all(torch.isfinite(part).all() for part in agent.network.parameters())
    assert all(math.isfinite(row["train_return"]) for row in agent.curve)


def test_an_evaluation_stops_too():
    register(what="reward", value=math.inf, at=1)
    with pytest.raises(NonFiniteError, match=r"^evaluation stopped: reward inf in env 'breaks-v0' after step 0"):
        agent_of("ppo").evaluate(3)


@pytest.mark.parametrize("name", list(AGENTS))
def test_a_learning_rate_that_is_too_large_is_a_named_error(name):
    """On cart-pole: parameters of 1e20 make a loss beyond float32 at the next update."""
    agent = agent_of(name, env="CartPole-v1", learning_rate=1e20, steps=2000)
    with pytest.raises(NonFiniteError, match="a smaller learning_rate or reward_scale may help") as told:
        played(agent)
    assert told.value.what in ("loss", "action probability")
    assert not math.isfinite(told.value.value)
    assert told.value.step > 0


@pytest.mark.parametrize("name", list(AGENTS))
def test_a_loss_is_not_descended_unless_it_is_finite(name):
    agent = agent_of(name, env="CartPole-v1")
    before = agent.optimiser.flat.detach().clone()
    for value in (math.nan, math.inf):
        with pytest.raises(NonFiniteError) as told:
            agent.descend(agent.optimiser.flat.sum() * value)
        assert told.value.what == "loss"
    assert torch.equal(agent.optimiser.flat, before)


@pytest.mark.parametrize("name", list(AGENTS))
def test_a_parameter_is_named(name):
    """A finite loss with a gradient of nan: sqrt at 0 times 0. PPO makes one gradient step."""
    given = {"env": "CartPole-v1", "head": "s_tau(tau=2)", "learn": ("tau",)}
    given |= {"epochs": 1, "minibatch": 99} if name == "ppo" else {}
    agent = agent_of(name, **given)
    agent.score_loss = agent.loss = lambda *_, **__: (agent.network.critic[0].bias * 0).sqrt().sum()
    with pytest.raises(NonFiniteError, match=r"training stopped: parameter .* nan in env 'CartPole-v1'") as told:
        agent.play_segment()
    assert told.value.what.startswith("parameter ")
    assert told.value.step > 0
    agent = agent_of(name, **given)
    agent.score_loss = agent.loss = lambda *_, **__: (agent.network.module.log_tau * 0).sqrt()
    with pytest.raises(NonFiniteError, match=r"parameter module\.log_tau nan"):
        agent.play_segment()


def test_an_actor_without_a_probability_is_no_policy():
    """Finite weights, but scores beyond float32: the likeliest of nan is no action."""
    network = ActorCritic(2, 2, (), parse_head("softmax(beta=1)"), (), 0.0, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.actor[0].weight.fill_(3e38)
    for act in (NumpyActor(network).best, lambda rows: NumpyActor(network).sample(rows, np.zeros(1, np.float32))):
        with pytest.raises(NonFiniteError, match="action probability nan"):
            act(np.full((1, 2), 10, dtype=np.float32))


def test_what_is_finite_passes():
    """Large numbers, whose squares are not finite, integers, and nothing at all."""
    for values in (np.full((2, 3), 1e30, np.float32), np.array([LARGEST, -LARGEST]), np.array([2**62]), np.empty(0)):
        require_finite("number", values)
    with pytest.raises(NonFiniteError) as told:
        require_finite("number", np.array([1e30, -np.inf, np.nan]))
    assert told.value.value == -math.inf


def test_the_error_comes_whole_from_another_process():
    error = NonFiniteError("reward", 1e39).at("some-v0", 7, "ppo, seed 1", "evaluation")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_what_was_finished_is_kept(inline, tmp_path):
    """Seed 0 takes 200 steps, seed 1 breaks in its second quarter: a result, a checkpoint and an error of one line."""
    register(what="reward", value=math.nan, at=310)
    settings = {**SHORT, "env": "breaks-v0", "rollout": 5}
    with pytest.raises(NonFiniteError, match=r"reward nan .* \(a2c, seed 1\)"):
        train("a2c", settings, 2, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "seeds").iterdir()} == {"seed-0.json", "seed-0.pt", "seed-1.pt"}
    assert json.loads((tmp_path / "run" / "seeds" / "seed-0.json").read_text())["sampled"] == 10.0
    assert torch.load(tmp_path / "run" / "seeds" / "seed-1.pt", weights_only=True)["segment"] >= 1


def test_the_command_ends_with_2_and_one_line(inline, tmp_path, capsys):
    register(what="observation", value=math.nan, at=30)
    command = ["train", "--env", "breaks-v0", "--steps", "200", "--out", str(tmp_path / "run"), "--set", "hidden=8"]
    with pytest.raises(SystemExit) as stop:
        cli.main(command)
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "stau-rl: error: training stopped: observation nan in env 'breaks-v0' after step " in printed.err


def test_a_study_names_the_run(inline, tmp_path):
    """Finished runs are kept: each of ten steps and two evaluations of two episodes, the first breaks in the third."""
    register(what="reward", value=math.inf, at=150)
    task = Task("breaking", "a2c", "breaks-v0", 10, (1e-3, 1e-2), {"envs": 2, "hidden": (8,)})
    with pytest.raises(NonFiniteError) as told:
        run_rl_study([task], ["softmax(beta={x})"], out=tmp_path, processes=1, tuning_seeds=1, seeds=1)
    assert told.value.run.startswith("breaking, softmax(beta=")
    assert "learning_rate=" in told.value.run
    assert told.value.run.endswith("tuning seed 0")
