"""The scores that a policy really saw: a short recorded run, rebuilt at log-spaced steps."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents import Pipe, parse_policy
from stau_rl.envs import parse_arms
from stau_rl.kernels.contract import ArmTable
from stau_rl.kernels.engines import choose_engine
from stau_rl.kernels.torch_loop import State

POINTS = 24


def seen_scores(policy: str, arms: str, horizon: int, instances: int, seed: int, points: int = POINTS) -> Tensor:
    """Scores at log-spaced steps of a run.

    The run is recorded by whatever engine plays the policy; counts and sums before each of the steps are put into the
    reference engine's `State`, and the policy's own score is asked.

    Args:
        policy: text `score | head`.
        arms: text of the arms.
        horizon: steps to play.
        instances: replicates to play.
        seed: 64-bit seed of the run.
        points: number of log-spaced steps; those that fall together count once.

    Returns:
        float64 [arms, steps x instances], in the order of the steps.

    Raises:
        ValueError: the policy has no score, or no step of the horizon asks for one.
    """
    from stau_rl.regret import arm_table

    pipe = parse_policy(policy)
    if not isinstance(pipe, Pipe):
        raise ValueError(f"{policy!r} has no scores; it should read score | head")
    table = arm_table(parse_arms(arms), seed, 0, instances)
    first = table.arms if pipe.forces_pulls else 1
    if first >= horizon:
        raise ValueError(f"horizon must exceed {first}, the steps before the first score, got {horizon}")
    block = _record(pipe, table, horizon, seed)
    steps = np.unique(np.rint(np.geomspace(first, horizon - 1, points)).astype(np.int64))
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
        scores.append(pipe.score.values(state, torch.float64))
    return torch.cat(scores, dim=1)


def _record(pipe: Pipe, table: ArmTable, horizon: int, seed: int) -> Any:
    choice = choose_engine(pipe, table, horizon)
    return choice.engine.simulate(
        pipe,
        table,
        seed=seed,
        first_instance=0,
        horizon=horizon,
        checkpoints=np.array([horizon], dtype=np.int64),
        dtype=choice.dtype,
        device=choice.device,
        record=True,
    )
