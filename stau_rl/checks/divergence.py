"""Where two recorded histories of an instance part, and how far rounding would have to reach to part them.

The common prefix is replayed in float64. At the first difference, between arms a < b:

- arms drawn from weights: the farthest that the uniform is from the boundaries between a and b, that is from
  cdf_a, ..., cdf_(b-1), as a share of the total;
- arms that are the largest of some numbers: how far the smaller of the two arms' numbers is below the largest of all,
  relative to the larger magnitude.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.agents.bandit import BoltzmannGumbel, EpsGreedy, GradientBandit, Pipe, Policy, Thompson
from stau_rl.heads import Argmax
from stau_rl.kernels.contract import ArmTable, Block
from stau_rl.kernels.torch_loop import Draws, State


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of two histories.

    Attributes:
        instance: the instance.
        step: t, counted from 0.
        distance: as the module says; infinite where nothing was left to rounding, such as a forced pull.
    """

    instance: int
    step: int
    distance: float


def takes_largest(policy: Policy) -> bool:
    """The policy pulls the arm of the largest of some numbers, rather than drawing it from weights."""
    policy = policy.lowered()
    return isinstance(policy, (EpsGreedy, Thompson, BoltzmannGumbel)) or (
        isinstance(policy, Pipe) and isinstance(policy.head, Argmax)
    )


def history(block: Block) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Actions and rewards of a recorded block, [T, n] each; a ValueError where none were recorded."""
    if block.actions is None or block.rewards is None:
        raise ValueError("the block holds no history; play it with record=True")
    return block.actions.astype(np.int64), block.rewards


def first_differences(expected: Block, found: Block) -> NDArray[np.int64]:
    """The step at which each instance's histories part, int64 [n]; the horizon where they are equal."""
    differs = history(expected)[0] != history(found)[0]
    return np.where(differs.any(axis=0), differs.argmax(axis=0), len(differs))


def divergences(policy: Policy, table: ArmTable, seed: int, expected: Block, found: Block) -> list[Divergence]:
    """The first difference of every instance whose histories differ.

    Args:
        policy: what was played.
        table: the arms of instances 0, 1, ...
        seed: in [0, 2^64).
        expected: a recorded block of these instances; its rewards are replayed.
        found: another one.

    Raises:
        ValueError: a block is not recorded.
    """
    (actions, rewards), (other_actions, _) = history(expected), history(found)
    first = first_differences(expected, found)
    instances = np.flatnonzero(first < len(actions))
    if not len(instances):
        return []
    policy, first = policy.lowered(), first[instances]
    draws = Draws(seed, torch.as_tensor(instances), table.arms)
    state = State(
        table=table,
        dtype=torch.float64,
        counts=torch.zeros(table.arms, len(instances), dtype=torch.int64),
        sums=torch.zeros(table.arms, len(instances), dtype=torch.float64),
        total=torch.zeros(len(instances), dtype=torch.float64),
        horizon=len(actions),
    )
    policy.start(state)
    answer = []
    for step in range(int(first.max()) + 1):
        state.step = step
        one = torch.as_tensor(actions[step, instances])
        other = torch.as_tensor(other_actions[step, instances])
        parting = np.flatnonzero(first == step)
        forced = policy.forces_pulls and step < table.arms
        if not forced:
            # A gradient bandit keeps the weights of its choice to learn from.
            policy.choose(state, draws)
        if len(parting):
            distances = torch.full(one.shape, torch.inf) if forced else _distances(policy, state, draws, one, other)
            answer += [Divergence(int(instances[i]), step, float(distances[i])) for i in parting]
        reward = torch.as_tensor(rewards[step, instances])
        arm = one.clamp(min=0)
        state.counts.scatter_add_(0, arm[None], (one >= 0).to(torch.int64)[None])
        state.sums.scatter_add_(0, arm[None], reward[None])
        state.total += reward
        policy.learn(state, one, reward)
    return answer


def _distances(policy: Policy, state: State, draws: Draws, one: Tensor, other: Tensor) -> Tensor:
    if takes_largest(policy):
        return _score_distances(policy, state, draws, one, other)
    if isinstance(policy, Pipe):
        weights = policy.weights(state, torch.float64)
    elif isinstance(policy, GradientBandit):
        weights = state.own["weights"]
    else:
        weights = torch.ones_like(state.sums)
    cdf = weights.cumsum(0)
    if policy.may_abstain:
        # A step without a pull, -1, comes after the last arm.
        one, other = (torch.where(arm < 0, state.arms, arm) for arm in (one, other))
    else:
        cdf = cdf / cdf[-1]
    arms = torch.arange(state.arms)[:, None]
    between = (torch.minimum(one, other) <= arms) & (arms < torch.maximum(one, other))
    return torch.where(between, (cdf - draws.action(state.step)).abs(), 0.0).amax(0)


def _score_distances(policy: Policy, state: State, draws: Draws, one: Tensor, other: Tensor) -> Tensor:
    if isinstance(policy, Thompson):
        scores = policy.posterior_draws(state, draws)
    elif isinstance(policy, BoltzmannGumbel):
        scores = policy.perturbed_means(state, draws)
    elif isinstance(policy, Pipe):
        scores = policy.score.at(state.step + 1).differences(state, torch.float64)
    else:
        scores = state.means(torch.float64)
    both = torch.stack([scores.gather(0, one[None])[0], scores.gather(0, other[None])[0]])
    best = scores.amax(0)
    distances = (best - both.amin(0)) / torch.maximum(best.abs(), both.abs().amax(0)).clamp(min=1e-300)
    if isinstance(policy, EpsGreedy):
        # Whether to explore, and which arm, are comparisons of whole numbers, exact on every engine.
        distances = torch.where(draws.action(state.step) < policy.eps_at(state.step + 1), torch.inf, distances)
    return distances
