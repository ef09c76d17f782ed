"""Rollouts and advantages: exact numbers, both ways of resetting, terminations and truncations told apart."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from numpy.testing import assert_allclose, assert_array_equal

from stau_rl.agents.policy_gradient.environments import Spaces, make_envs
from stau_rl.agents.policy_gradient.networks import ActorCritic, NumpyActor, entropies, log_probabilities, numpy_weights
from stau_rl.agents.policy_gradient.rollout import RolloutWorker, evaluate, generalised_advantages
from stau_rl.heads import HEADS, parse_head

GENERATOR = partial(np.random.default_rng, 0)


class Countdown(gym.Env):
    """Observes the steps left and the number of the episode; reward = steps left; any action.

    Episode n (n = 0, 1, ...) has 2 + n % 2 steps. It terminates, or if `cut` it is truncated instead.
    """

    def __init__(self, cut: bool = False, start: int = 0) -> None:
        self.observation_space = gym.spaces.Box(-10, 100, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2, start=start)
        self.cut, self.episode = cut, -1
        self.actions: list[int] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.left = 2 + self.episode % 2
        return self._see(), {}

    def step(self, action):
        self.actions.append(int(action))
        reward = float(self.left)
        self.left -= 1
        over = self.left == 0
        return self._see(), reward, over and not self.cut, over and self.cut, {}

    def _see(self):
        return np.array([self.left, self.episode], dtype=np.float32)


def actor_of(inputs=2, actions=2, head="softmax(beta=1)", hidden=(8,)):
    network = ActorCritic(inputs, actions, hidden, parse_head(head), (), 0.0, torch.Generator().manual_seed(0))
    return network, NumpyActor(network)


def countdown(mode, cut, count=1, start=0):
    envs = SyncVectorEnv([lambda: Countdown(cut, start)] * count, autoreset_mode=mode)
    return envs, Spaces.of(envs, "countdown")


def column(values):
    return np.array(values, dtype=np.float32)[:, None]


def flags(values):
    return np.array(values, dtype=bool)[:, None]


def test_advantages_by_hand():
    """gamma 1/2, lambda 1/2. Steps: plain, termination, plain, truncation (its next value counts).

    delta: 1 + 4/2 - 2 = 1; 2 + 0 - 4 = -2; 3 + 8/2 - 6 = 1; 4 + 10/2 - 8 = 1.
    A: 1 + (-2)/4 = 1/2; -2; 1 + 1/4; 1.
    """
    found = generalised_advantages(
        column([1, 2, 3, 4]),
        column([2, 4, 6, 8]),
        column([4, 6, 8, 10]),
        flags([0, 1, 0, 0]),
        flags([0, 1, 0, 1]),
        0.5,
        0.5,
    )
    assert_array_equal(found.ravel(), np.array([0.5, -2.0, 1.25, 1.0], dtype=np.float32))


def test_lambda_one_is_the_return_less_the_value():
    random = np.random.default_rng(0)
    rewards, values = (random.normal(size=(6, 3)).astype(np.float32) for _ in range(2))
    following = random.normal(size=(6, 3)).astype(np.float32)
    over = np.zeros((6, 3), dtype=bool)
    ended = over.copy()
    ended[-1] = True
    following[:-1] = values[1:]
    found = generalised_advantages(rewards, values, following, over, ended, 0.9, 1.0)
    discount = 0.9 ** np.arange(6)
    returns = [(discount[: 6 - t, None] * rewards[t:]).sum(0) + 0.9 ** (6 - t) * following[-1] for t in range(6)]
    assert_allclose(found, np.array(returns) - values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_rollout_tells_every_step_apart(mode, cut):
    """Episodes of 2 and 3 steps. NEXT_STEP spends a step on each reset; SAME_STEP shows the last observation aside."""
    envs, spaces = countdown(mode, cut)
    _, actor = actor_of()
    rollout, returns = RolloutWorker(envs, spaces, 0).collect(actor, 7, GENERATOR())
    ends = rollout.truncated if cut else rollout.terminated
    assert not (rollout.terminated if cut else rollout.truncated).any()
    left = rollout.observations[:, 0, 0]
    if mode == "NextStep":
        assert_array_equal(left, [2, 1, 0, 3, 2, 1, 0, 2])
        assert_array_equal(rollout.valid.ravel(), [1, 1, 0, 1, 1, 1, 0])
        assert_array_equal(rollout.rewards.ravel(), [2, 1, 0, 3, 2, 1, 0])
        assert_array_equal(ends.ravel(), [0, 1, 0, 0, 0, 1, 0])
        assert returns == [3.0, 6.0]
    else:
        assert_array_equal(left, [2, 1, 3, 2, 1, 2, 1, 3])
        assert rollout.valid.all()
        assert_array_equal(rollout.rewards.ravel(), [2, 1, 3, 2, 1, 2, 1])
        assert_array_equal(ends.ravel(), [0, 1, 0, 0, 1, 0, 1])
        assert_array_equal(rollout.final_places[:, 0], [1, 4, 6])
        assert returns == [3.0, 6.0, 3.0]
    # The value of what followed is that of "0 steps left" at every end, whichever way it is shown.
    following = rollout.next_values(left[:, None], rollout.finals[:, 0])
    assert_array_equal(following[ends], 0.0)
    assert_array_equal(following[rollout.valid & ~ends], left[:-1][(rollout.valid & ~ends).ravel()] - 1)


@pytest.mark.parametrize("cut", [False, True])
def test_both_ways_of_resetting_give_the_same_advantages(cut):
    """Step by step over the steps that count, with V = 10 + steps left + 100 episode; truncations bootstrap."""
    found = {}
    for mode, steps in (("NextStep", 13), ("SameStep", 10)):
        envs, spaces = countdown(mode, cut)
        _, actor = actor_of()
        rollout, _ = RolloutWorker(envs, spaces, 0).collect(actor, steps, GENERATOR())

        def value(rows):
            return (10 + rows[..., 0] + 100 * rows[..., 1]).astype(np.float32)

        values = value(rollout.observations)
        advantages = generalised_advantages(
            rollout.rewards,
            values[:-1],
            rollout.next_values(values, value(rollout.finals)),
            rollout.terminated,
            rollout.terminated | rollout.truncated,
            0.9,
            0.8,
        )
        found[mode] = advantages[rollout.valid]
    assert len(found["NextStep"]) == len(found["SameStep"]) == 10
    assert_allclose(found["NextStep"], found["SameStep"], rtol=1e-6)
    # The last step of the first episode, 1 step left: 1 + 0.9 * (10 + 0) - 11 where it is cut off, else 1 - 11.
    assert found["SameStep"][1] == pytest.approx(1 + 9 - 11 if cut else 1 - 11, abs=1e-4)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_whole_episodes(mode):
    """Every copy plays one; the shorter ones idle and their idle steps do not count."""
    envs, spaces = countdown(mode, True, count=3)
    _, actor = actor_of()
    worker = RolloutWorker(envs, spaces, 0)
    # The next episode of each copy is number 1, of 3 steps; of the last copy number 2, of 2 steps.
    envs.envs[2].episode = 1
    rollout, returns = worker.collect_episodes(actor, GENERATOR())
    lengths = rollout.valid.sum(0)
    assert_array_equal(lengths, [3, 3, 2])
    assert returns == [6.0, 6.0, 3.0]
    assert rollout.steps == 8
    for copy, length in enumerate(lengths):
        assert rollout.truncated[length - 1, copy]
        following = rollout.next_values(rollout.observations[..., 0], rollout.finals[:, 0])
        assert following[length - 1, copy] == 0.0


def test_actions_are_named_as_the_environment_names_them():
    envs, spaces = countdown("NextStep", False, start=5)
    _, actor = actor_of()
    rollout, _ = RolloutWorker(envs, spaces, 0).collect(actor, 20, GENERATOR())
    assert set(rollout.actions.ravel()) == {0, 1}
    assert set(envs.envs[0].actions) == {5, 6}


def test_discrete_observations_become_one_hot():
    spaces = Spaces(3, 2, 0, True, first_state=4)
    assert_array_equal(spaces.rows(np.array([4, 6])), [[1, 0, 0], [0, 0, 1]])


def test_spaces_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="discrete actions"):
        Spaces.of(make_envs("Pendulum-v1", 1), "Pendulum-v1")
    with pytest.raises(ValueError, match="Nope"):
        make_envs("Nope-v0", 1)
    with pytest.raises(ValueError, match="Box or Discrete"):
        Spaces.of(make_envs("Blackjack-v1", 1), "Blackjack-v1")
    with pytest.raises(ValueError, match=r"cannot make env '\.module:Some-v0'"):
        make_envs(".module:Some-v0", 1)


@pytest.mark.parametrize("name", list(HEADS))
def test_numpy_weights_are_the_heads(name):
    """Every registered head, on scores of both signs and sizes up to 30, zeros included; float32 rounding."""
    head = parse_head(name)
    scores = np.random.default_rng(1).normal(size=(40, 5)).astype(np.float32) * np.float32(10)
    scores[0] = 0.0
    scores[1] = -30.0
    weights = numpy_weights(head)(scores)
    with torch.no_grad():
        expected = log_probabilities(head, torch.from_numpy(scores).double()).exp().numpy()
    assert_allclose(weights / weights.sum(1, keepdims=True), expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", list(HEADS))
def test_rows_without_a_weight_are_uniform(name):
    """Scores that some heads give no mass: probabilities still, and finite gradients."""
    scores = torch.tensor([[-1.0, -2.0, -0.5], [0.0, 0.0, 0.0], [-100.0, -120.0, -130.0]], requires_grad=True)
    log_policy = log_probabilities(parse_head(name), scores)
    assert_allclose(log_policy.exp().sum(1).detach().numpy(), 1.0, rtol=1e-6)
    assert not log_policy.isnan().any()
    entropies(log_policy).sum().backward()
    assert torch.isfinite(scores.grad).all()
    weights = numpy_weights(parse_head(name))(scores.detach().numpy())
    assert_allclose(weights / weights.sum(1, keepdims=True), log_policy.exp().detach().numpy(), rtol=2e-4, atol=1e-6)


def test_s_tau_without_its_floor_far_below_zero():
    """There it is softmax(beta=tau): weights e^-2 : 1."""
    weights = numpy_weights(parse_head("s_tau(tau=2,eps=0)"))(np.array([[-150.0, -149.0]], dtype=np.float32))
    assert_allclose(weights[0, 0] / weights[0, 1], np.exp(-2.0), rtol=1e-4)


def test_samples_follow_the_weights_and_never_have_weight_zero():
    """200 000 draws of p = (0, 1/10, 0, 9/10, 0): the share within 5 standard errors; the ends of [0, 1) included."""
    network, actor = actor_of(1, 5, "escort(p=1)", hidden=())
    with torch.no_grad():
        network.actor[0].weight.zero_()
        network.actor[0].bias.copy_(torch.tensor([0.0, 1.0, 0.0, 9.0, 0.0]))
    uniforms = np.random.default_rng(0).random(200_000, dtype=np.float32)
    uniforms[:2] = 0.0, np.nextafter(np.float32(1), np.float32(0))
    actions = actor.sample(np.ones((200_000, 1), dtype=np.float32), uniforms)
    assert set(actions) == {1, 3}
    assert actions[:2].tolist() == [1, 3]
    assert abs((actions == 1).mean() - 0.1) < 5 * np.sqrt(0.09 / 200_000)
    assert actor.best(np.ones((1, 1), dtype=np.float32)).tolist() == [3]


def test_the_numpy_actor_is_the_network_also_after_a_change():
    network, actor = actor_of(3, 4, "s_tau(tau=3)", hidden=(16, 16))
    rows = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    for _ in range(2):
        weights = actor.weights(rows)
        with torch.no_grad():
            expected = network.log_policy(torch.from_numpy(rows)).exp().numpy()
        assert_allclose(weights / weights.sum(1, keepdims=True), expected, rtol=1e-4)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(0.3)


def test_entropy_of_impossible_actions_is_zero_and_differentiable():
    log_policy = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).log().requires_grad_()
    found = entropies(log_policy)
    assert_allclose(found.detach().numpy(), [np.log(2), 0.0], rtol=1e-6)
    found.sum().backward()
    assert torch.isfinite(log_policy.grad).all()


def test_evaluation_plays_one_episode_per_copy():
    """CartPole with the likeliest action of a fixed network: the returns are the episode lengths."""
    _, actor = actor_of(4, 2)
    returns = evaluate(actor, "CartPole-v1", 130, GENERATOR(), deterministic=True)
    assert returns.shape == (130,)
    assert (returns >= 5).all()
    assert_array_equal(returns, evaluate(actor, "CartPole-v1", 130, GENERATOR(), deterministic=True))
    assert not np.array_equal(returns, evaluate(actor, "CartPole-v1", 130, GENERATOR(), deterministic=False))


def test_a_vector_class_is_used_where_an_id_has_one():
    assert type(make_envs("CartPole-v1", 2)).__name__ == "CartPoleVectorEnv"
    assert isinstance(make_envs("Acrobot-v1", 2), SyncVectorEnv)
    assert type(make_envs("stau_rl:stau_rl/GaussianBandit-v0", 2)).__name__ == "GaussianBanditVectorEnv"
    assert gym.spec("CartPole-v1").max_episode_steps == 500
