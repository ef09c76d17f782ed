"""The losses of the three agents and what goes into them, against numpy in float64 that shares no code with them.

Networks are linear (scores W x + b, value v x + c) and the head is softmax, so that gradients are known in closed form.
"""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.agents.policy_gradient.a2c import A2C
from stau_rl.agents.policy_gradient.policy_gradient import Batch
from stau_rl.agents.policy_gradient.ppo import PPO
from stau_rl.agents.policy_gradient.reinforce import Reinforce
from stau_rl.agents.policy_gradient.rollout import Rollout

GAMMA, SCALE = 0.9, 0.5
# Cart-pole's sizes: 4 inputs, 2 actions.
T, N = 4, 3


def rollout() -> Rollout:
    """Four steps of three copies: one plays on, one terminates and resets, one is truncated."""
    random = np.random.default_rng(0)
    terminated, truncated, valid = (np.zeros((T, N), dtype=bool) for _ in range(3))
    terminated[1, 1] = truncated[2, 2] = True
    valid[:] = True
    valid[2, 1] = valid[3, 2] = False
    return Rollout(
        random.normal(size=(T + 1, N, 4)).astype(np.float32),
        random.integers(2, size=(T, N)),
        random.normal(size=(T, N)).astype(np.float32),
        terminated,
        truncated,
        valid,
        np.empty((0, 4), dtype=np.float32),
        np.empty((0, 2), dtype=np.int64),
    )


class FixedWorker:
    """Collects the same rollout whatever the policy."""

    def collect(self, actor, steps, random):
        return rollout(), [1.0, 2.0]

    def collect_episodes(self, actor, random):
        return rollout(), [1.0, 2.0]


def agent_of(kind, **given):
    """An agent with linear networks whose weights are of size 1, and those weights in float64."""
    settings = {"hidden": (), "gamma": GAMMA, "reward_scale": SCALE, "points": 1}
    agent = kind(kind.Settings(**settings, **given), 0)
    with torch.no_grad():
        agent.optimiser.flat.copy_(torch.from_numpy(np.random.default_rng(1).normal(size=15).astype(np.float32)))
    parts = agent.network.actor[0].weight, agent.network.actor[0].bias, agent.network.critic[0].weight
    return agent, [part.detach().double().numpy() for part in (*parts, agent.network.critic[0].bias)]


def numpy_batch(weights, lam, baseline=True):
    """Observations, actions, A and G of the steps that count; A_t = sum_l (gamma lambda)^l delta_{t+l}."""
    _, _, v, c = weights
    played = rollout()
    values = (played.observations.astype(float) @ v[0] + c[0]) * baseline
    rows = []
    for t in range(T):
        for n in range(N):
            advantage = 0.0
            for later in range(t, T):
                over, cut = played.terminated[later, n], played.truncated[later, n]
                delta = SCALE * float(played.rewards[later, n]) - values[later, n]
                delta += 0.0 if over else GAMMA * values[later + 1, n]
                advantage += (GAMMA * lam) ** (later - t) * delta
                if over or cut:
                    break
            if played.valid[t, n]:
                target = advantage + values[t, n]
                rows.append((*played.observations[t, n], played.actions[t, n], advantage, target))
    table = np.array(rows, dtype=float)
    return table[:, :4], table[:, 4].astype(int), table[:, 5], table[:, 6]


def softmax(weights, x):
    scores = x @ weights[0].T + weights[1]
    found = np.exp(scores - scores.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


def numpy_gradient(weights, batch, *, normalise, value, entropy, clip=None, old=None):
    """Gradient of the whole loss with respect to W, b, v, c, by hand."""
    x, actions, advantages, targets = batch
    count = len(x)
    if normalise:
        advantages = (advantages - advantages.mean()) / advantages.std(ddof=1)
    p = softmax(weights, x)
    taken = p[np.arange(count), actions]
    # d(-A rho) / d log pi = -A rho where the clipped ratio does not win; without old probabilities rho is 1.
    rho = np.ones(count) if old is None else taken / old
    if clip is not None:
        wins = np.where(advantages > 0, rho > 1 + clip, rho < 1 - clip)
        rho = np.where(wins, 0.0, rho)
    along = -(advantages * rho)[:, None] * (np.eye(2)[actions] - p)
    h = -(p * np.log(p)).sum(1, keepdims=True)
    along -= entropy * -p * (np.log(p) + h)
    error = 2 * value * (x @ weights[2][0] + weights[3][0] - targets)
    return along.T @ x / count, along.mean(0), error @ x / count, error.mean()


def gradients_of(agent):
    """Gradients of the losses that one update descends, in its order."""
    found = []
    parts = [part for net in (agent.network.actor, agent.network.critic) for part in (net[0].weight, net[0].bias)]
    agent.descend = lambda loss: found.append(torch.autograd.grad(loss, parts, allow_unused=True))
    agent.update(FixedWorker(), np.random.default_rng(0))
    return found


def assert_same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert_allclose(mine.double().numpy().ravel(), np.ravel(theirs), rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("normalise", [False, True])
def test_an_update_of_a2c_against_numpy(normalise):
    given = {"normalise": normalise, "value": 0.3, "entropy": 0.1}
    agent, weights = agent_of(A2C, lam=0.7, **given)
    (found,) = gradients_of(agent)
    assert_same(found, numpy_gradient(weights, numpy_batch(weights, 0.7), **given))


def test_a2c_takes_the_whole_return_unless_told_otherwise():
    """Lambda = 1 is the n-step return less the value, as in Mnih et al. 2016."""
    agent, weights = agent_of(A2C, normalise=False, value=0.3, entropy=0.1)
    (found,) = gradients_of(agent)
    assert_same(found, numpy_gradient(weights, numpy_batch(weights, 1.0), normalise=False, value=0.3, entropy=0.1))


def test_an_update_of_ppo_against_numpy():
    """One pass of one minibatch, where every ratio is 1 still."""
    given = {"normalise": True, "value": 0.3, "entropy": 0.1}
    agent, weights = agent_of(PPO, lam=0.7, epochs=1, minibatch=64, **given)
    (found,) = gradients_of(agent)
    assert_same(found, numpy_gradient(weights, numpy_batch(weights, 0.7), **given))


@pytest.mark.parametrize("baseline", ["value", "none"])
def test_an_update_of_reinforce_against_numpy(baseline):
    """The return less the value, so lambda = 1; without a baseline the return alone, and no gradient of the critic."""
    given = {"normalise": False, "value": 0.3, "entropy": 0.1}
    agent, weights = agent_of(Reinforce, baseline=baseline, **given)
    (found,) = gradients_of(agent)
    learned = baseline == "value"
    expected = numpy_gradient(weights, numpy_batch(weights, 1.0, learned), **given)
    assert_same(found[:2], expected[:2])
    if learned:
        assert_same(found[2:], expected[2:])
    else:
        assert found[2:] == (None, None)


@pytest.mark.parametrize("normalise", [False, True])
def test_the_ppo_loss_where_ratios_are_clipped(normalise):
    """Old probabilities half, equal to and twice today's, with advantages of both signs."""
    given = {"normalise": normalise, "value": 0.3, "entropy": 0.1, "clip": 0.2}
    agent, weights = agent_of(PPO, **given)
    batch = numpy_batch(weights, 0.7)
    x, actions, advantages, targets = batch
    old = softmax(weights, x)[np.arange(len(x)), actions] * np.resize([0.5, 1.0, 2.0], len(x))
    assert len({(float(ratio), sign) for ratio, sign in zip(old, advantages > 0, strict=True)}) > 4
    tensors = Batch(*(torch.from_numpy(part.astype(np.float32)) for part in (x, actions, advantages, targets)))
    loss = agent.loss(tensors._replace(actions=torch.from_numpy(actions)), torch.from_numpy(np.log(old)).float())
    parts = [part for net in (agent.network.actor, agent.network.critic) for part in (net[0].weight, net[0].bias)]
    assert_same(torch.autograd.grad(loss, parts), numpy_gradient(weights, batch, old=old, **given))


@pytest.mark.parametrize("kind", [A2C, PPO])
def test_a_loss_by_hand(kind):
    """p = (1/2, 1/2) and (1/4, 3/4), actions 0 and 1, A = (2, -4), V = (1, 3), G = (2, 1), ratios 1.

    -mean A log p = -(2 log 1/2 - 4 log 3/4) / 2 for A2C, -mean A = 1 for PPO; value part 0.5 (1 + 4) / 2; entropy
    (log 2 + H(1/4)) / 2.
    """
    agent, _ = agent_of(kind, entropy=0.1, value=0.5, normalise=False)
    log_policy = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    agent.network = type("Fixed", (), {"log_policy": lambda _, x: log_policy, "values": lambda _, x: x[:, 0]})()
    batch = Batch(
        torch.tensor([[1.0], [3.0]]), torch.tensor([0, 1]), torch.tensor([2.0, -4.0]), torch.tensor([2.0, 1.0])
    )
    quarter = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    shared = 0.5 * 2.5 - 0.1 * (np.log(2) + quarter) / 2
    if kind is PPO:
        found, expected = agent.loss(batch, torch.tensor([0.5, 0.75]).log()), 1.0 + shared
    else:
        found, expected = agent.score_loss(batch), -(2 * np.log(0.5) - 4 * np.log(0.75)) / 2 + shared
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_one_step_is_not_scaled():
    """A single advantage has no deviation; it is used as it is."""
    agent, _ = agent_of(PPO)
    assert agent.weighed(torch.tensor([3.0])).tolist() == [3.0]
    assert_allclose(agent.weighed(torch.tensor([1.0, 3.0])).numpy(), [-(0.5**0.5), 0.5**0.5], rtol=1e-6)


def test_ppo_makes_its_passes_in_orders_of_their_own():
    """Ten steps in three minibatches of 4, 3 and 3, four times: every step once per pass, never in the order played."""
    agent, _ = agent_of(PPO, epochs=4, minibatch=3)
    seen = []
    agent.loss = lambda batch, old: seen.append((batch, old)) or torch.zeros(())
    agent.descend = lambda loss: None
    with torch.no_grad():
        steps, ended = agent.update(FixedWorker(), np.random.default_rng(0))
    assert (steps, ended) == (10, [1.0, 2.0])
    assert [len(batch.actions) for batch, _ in seen] == [4, 3, 3] * 4
    whole = agent.batch(rollout(), agent.settings.lam)
    orders = []
    for first in range(0, 12, 3):
        joined = [
            torch.cat(parts) for parts in zip(*((*batch, old) for batch, old in seen[first : first + 3]), strict=True)
        ]
        order = [int((whole.observations == row).all(1).nonzero()) for row in joined[0]]
        assert sorted(order) == list(range(10))
        for part, found in zip(whole, joined[:4], strict=True):
            assert_array_equal(part[order].numpy(), found.numpy())
        with torch.no_grad():
            now = agent.network.log_policy(joined[0]).gather(1, joined[1][:, None])[:, 0]
        assert_allclose(joined[4].numpy(), now.numpy(), rtol=1e-5)
        orders.append(order)
    assert list(range(10)) not in orders
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize("name", list(AGENTS))
def test_an_update_counts_the_steps_that_count(name):
    agent, _ = agent_of(AGENTS[name])
    before = agent.optimiser.flat.detach().clone()
    assert agent.update(FixedWorker(), np.random.default_rng(0)) == (10, [1.0, 2.0])
    assert not torch.equal(agent.optimiser.flat, before)
