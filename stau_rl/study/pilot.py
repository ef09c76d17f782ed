"""The scores that a policy really saw: a short recorded run, rebuilt at log-spaced steps."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.agents.bandit import Policy
from stau_rl.envs.arms import parse_arms
from stau_rl.kernels.contract import ArmTable
from stau_rl.kernels.engines import Choice, choose_engine
from stau_rl.kernels.torch_loop import State

POINTS = 24
# Recorded steps held at once, over all instances of a block.
RECORDED = 10_000_000


def steps_unscored(policy: Policy, arms: str) -> int:
    """How many steps a policy plays before the first whose scores can be collected.

    Args:
        policy: `score | head`.
        arms: text of the arms.

    Raises:
        ValueError: the policy has no score.
    """
    if policy.score is None:
        raise ValueError(f"{str(policy)!r} has no scores; it should read score | head")
    return parse_arms(arms).size if policy.forces_pulls else 1


def seen_scores(
    policy: Policy,
    arms: str,
    horizon: int,
    instances: int,
    seed: int,
    points: int = POINTS,
    engine: str = "auto",
    device: str = "auto",
) -> Tensor:
    """Scores at log-spaced steps of a run.

    The run is recorded, a block of instances at a time, by whatever engine plays the policy; counts and sums before
    each of the steps are put into the reference engine's `State`, and the policy's own score is asked.

    Args:
        policy: `score | head`.
        arms: text of the arms.
        horizon: steps to play.
        instances: replicates to play.
        seed: 64-bit seed of the run.
        points: number of log-spaced steps; those that fall together count once.
        engine: a name, or `auto`.
        device: where it runs, or `auto`.

    Returns:
        float64 [arms, steps x instances], in the order of the steps; within a step, in that of the instances.

    Raises:
        ValueError: the policy has no score, or no step of the horizon asks for one.
    """
    from stau_rl.regret.arm_table import arm_table

    first = steps_unscored(policy, arms)
    parsed = parse_arms(arms)
    if first >= horizon:
        raise ValueError(f"horizon must exceed {first}, the steps before the first score, got {horizon}")
    steps = np.unique(np.rint(np.geomspace(first, horizon - 1, points)).astype(np.int64))
    size = max(1, min(instances, RECORDED // horizon))
    blocks = []
    for start in range(0, instances, size):
        table = arm_table(parsed, seed, start, min(size, instances - start))
        choice = choose_engine(policy, table, horizon, engine, device)
        blocks.append(_block_scores(policy, table, choice, horizon, seed, start, steps))
    return torch.cat(blocks, dim=2).reshape(parsed.size, -1)


def _block_scores(
    pipe: Any, table: ArmTable, choice: Choice, horizon: int, seed: int, start: int, steps: NDArray[np.int64]
) -> Tensor:
    """Scores of one block of instances, float64 [arms, steps, instances]."""
    instances = table.instances
    block = choice.engine.simulate(
        pipe,
        table,
        seed=seed,
        first_instance=start,
        horizon=horizon,
        checkpoints=np.array([horizon], dtype=np.int64),
        dtype=choice.dtype,
        device=choice.device,
        record=True,
    )
    size = table.arms * instances
    counts, sums = np.zeros(size, dtype=np.int64), np.zeros(size)
    scores, done = [], 0
    for step in steps:
        place = (block.actions[done:step].astype(np.int64) * instances + np.arange(instances)).ravel()
        counts += np.bincount(place, minlength=size)
        sums += np.bincount(place, weights=block.rewards[done:step].ravel(), minlength=size)
        done = int(step)
        state = State(
            table=table,
            dtype=torch.float64,
            counts=torch.from_numpy(counts.reshape(table.arms, instances).copy()),
            sums=torch.from_numpy(sums.reshape(table.arms, instances).copy()),
            total=torch.from_numpy(sums.reshape(table.arms, instances).sum(0)),
            step=done,
        )
        scores.append(pipe.score.at(done + 1).values(state, torch.float64))
    return torch.stack(scores, dim=1)
