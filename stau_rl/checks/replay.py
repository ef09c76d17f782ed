"""One long history of an engine, replayed in float64.

The engine's statistics are compared with those of its recorded pulls, whose rewards are drawn anew, and every pull with
the weights that float64 finds for it. Nothing but the pulls is taken from the engine, so sums that lost a digit, counts
that stopped counting and choices made from a stale state all show.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents.bandit import Pipe, Policy
from stau_rl.agents.bandit.scores import CentredUcb, Mean, RewardCentredUcb, Score, Ucb
from stau_rl.heads import Argmax
from stau_rl.kernels.contract import ArmTable, Block
from stau_rl.kernels.philox import ACTION_REWARD, closed_uniform, words
from stau_rl.kernels.torch_loop import Rewards

_PIECE = 1 << 17


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found.

    Attributes:
        steps: length of the history.
        pulls: pulls per arm of the history.
        counts_equal: they are the engine's.
        mean_error: largest relative error of an arm's mean reward.
        same_choices: share of the steps at which float64 chooses the same arm.
        largest_distance: how far the uniform of another choice is at most from the boundaries of the pulled arm, as a
            share of the total; infinite where a forced pull was missed.
    """

    steps: int
    pulls: tuple[int, ...]
    counts_equal: bool
    mean_error: float
    same_choices: float
    largest_distance: float


def replay(policy: Policy, table: ArmTable, seed: int, instance: int, block: Block) -> Replay:
    """Replay the recorded history of one instance.

    Args:
        policy: what was played: `score | head` with a head that draws from weights and does not change with the step.
        table: the arms, of this one instance.
        seed: in [0, 2^64).
        instance: its global number.
        block: the engine's block of this instance alone, recorded.

    Raises:
        ValueError: the policy is of another kind, or the block holds no history of one instance.
    """
    policy = policy.lowered()
    if (
        not isinstance(policy, Pipe)
        or isinstance(policy.head, Argmax)
        or policy.head.schedules
        or policy.score.schedules
    ):
        raise ValueError(f"only fixed heads that draw from the weights of scores can be replayed, got {policy}")
    if block.actions is None or block.actions.shape[1] != 1:
        raise ValueError("the block must hold the history of one instance; play it with record=True")
    actions = torch.as_tensor(block.actions[:, 0].astype(np.int64))
    arms = torch.arange(table.arms)[:, None]
    counts = torch.zeros(table.arms, 1, dtype=torch.int64)
    sums = torch.zeros(table.arms, 1, dtype=torch.float64)
    same, farthest = 0, 0.0
    for start in range(0, len(actions), _PIECE):
        pulled = actions[start : start + _PIECE]
        steps = start + torch.arange(len(pulled))
        four = torch.stack(words(seed, torch.tensor([instance]), steps >> 1, ACTION_REWARD))
        first = 2 * (steps & 1)[None]
        uniform, word = closed_uniform(four.gather(0, first)[0]), four.gather(0, first + 1)[0]
        # Each step is an instance of its own to the arms.
        rewards = Rewards(replace(table, instances=len(pulled)), torch.device("cpu")).draw(pulled, word)
        hits = arms == pulled
        # Before each step, and after the last.
        counts = torch.cat([counts, counts + hits.cumsum(1)], 1)
        sums = torch.cat([sums, sums + (hits * rewards).cumsum(1)], 1)
        distance = _distances(policy, counts[:, :-1], sums[:, :-1], steps, uniform, pulled)
        same += int((distance == 0.0).sum())
        farthest = max(farthest, float(distance.max()))
        counts, sums = counts[:, -1:], sums[:, -1:]
    means = sums[:, 0] / counts[:, 0].clamp(min=1)
    theirs = torch.as_tensor(block.reward_sums[:, 0]) / torch.as_tensor(block.pulls[:, 0]).clamp(min=1)
    return Replay(
        steps=len(actions),
        pulls=tuple(counts[:, 0].tolist()),
        counts_equal=bool((counts[:, 0] == torch.as_tensor(block.pulls[:, 0])).all()),
        mean_error=float(((means - theirs).abs() / means.abs().clamp(min=1e-300)).max()),
        same_choices=same / len(actions),
        largest_distance=farthest,
    )


def _distances(
    policy: Pipe, counts: Tensor, sums: Tensor, steps: Tensor, uniform: Tensor, pulled: Tensor
) -> Tensor:  # fmt: skip
    """How far each uniform is outside the pulled arm's interval of the cumulative weights; 0 inside."""
    weights = policy.head.unchecked_log_weights(_scores(policy.score, counts, sums, steps), dim=0).exp()
    upper = weights.cumsum(0) / weights.sum(0)
    lower = torch.cat([torch.zeros_like(upper[:1]), upper[:-1]])
    low, high = lower.gather(0, pulled[None])[0], upper.gather(0, pulled[None])[0]
    # The arm is the first with cdf > u, so u lies in [low, high).
    outside = torch.where(uniform < low, low - uniform, torch.where(uniform >= high, uniform - high, 0.0))
    outside = torch.where((uniform >= high) & (outside == 0.0), 5e-324, outside)
    if policy.forces_pulls:
        forced = torch.where(pulled == steps, 0.0, math.inf)
        outside = torch.where(steps < len(counts), forced, outside)
    return outside


def _scores(score: Score, counts: Tensor, sums: Tensor, steps: Tensor) -> Tensor:
    """Scores [arms, steps] from the statistics before each step; the reference takes one step at a time."""
    means = sums / counts.clamp(min=1)
    if isinstance(score, Mean):
        return means
    if not isinstance(score, Ucb):
        raise ValueError(f"scores {score} cannot be replayed; known: mean, ucb, centred_ucb, reward_centred_ucb")
    values = means + score.fixed(score.c) * (2.0 * steps.double().clamp(min=1.0).log() / counts.clamp(min=1)).sqrt()
    if isinstance(score, CentredUcb):
        values = values - values.mean(0)
    if isinstance(score, RewardCentredUcb):
        values = values - sums.sum(0) / steps.clamp(min=1)
    return values + score.fixed(score.offset)
