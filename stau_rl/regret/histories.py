"""Whole histories of a few instances: every pull and reward, for looking at and for other tools."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from stau_rl.agents.bandit import Policy
from stau_rl.envs.arms import Arms
from stau_rl.machine.ranks import current_ranks
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.plan import make_plan

MOST = 20_000_000
"""Rows of a table of histories; each takes 26 bytes, and more while it is made."""


def histories(
    arms: str | Arms,
    policies: Sequence[str | Policy],
    horizon: int,
    instances: int,
    seed: int = 0,
    engine: str = "auto",
    device: str = "auto",
    dtype: str = "auto",
) -> pd.DataFrame:
    """Every step of the first instances of a benchmark, under each policy.

    They are those of `run_regret` with the same arguments and any number of instances, as an instance's history depends
    on nothing else.

    Args:
        arms: as in `run_regret`, like all arguments.
        policies: texts or `Policy`.
        horizon: steps T.
        instances: how many of the first instances.
        seed: in [0, 2^64).
        engine: `triton`, `numba`, `torch` or `auto`.
        device: `cpu`, `cuda`, `cuda:N` or `auto`.
        dtype: `float32`, `float64` or `auto`.

    Returns:
        A row per policy, instance and step, in this order; columns `policy` (categorical), `instance`, `step` (from 1),
        `arm` (its label; categorical, missing where no arm was pulled), `reward`, and `regret`, the cumulative
        pseudo-regret after the step.

    Raises:
        ValueError: as `run_regret`, and for more than `MOST` rows.

    Examples:
        >>> import stau_rl
        >>> table = stau_rl.histories("bernoulli(means=[0.9, 0.1])", ["ucb1", "random"], horizon=5, instances=2)
        >>> table[["instance", "step", "arm"]].head(3).to_numpy().tolist()
        [[0, 1, '0'], [0, 2, '1'], [0, 3, '0']]
    """
    plan = make_plan(arms, policies, horizon, instances, seed, [horizon], None, engine, device, dtype)
    rows = len(plan.policies) * instances * horizon
    if rows > MOST:
        raise ValueError(
            f"histories of {instances} instances, {len(plan.policies)} policies and {horizon} steps have {rows} rows, "
            f"more than {MOST}; ask for fewer"
        )
    table = arm_table(plan.arms, seed, 0, instances)
    labels, names = list(plan.arms.labels), [str(policy) for policy in plan.policies]
    parts: list[pd.DataFrame] = []
    ranks = current_ranks()
    for policy, choice in zip(plan.policies, plan.choices, strict=True):
        block = choice.engine.simulate(
            policy,
            table,
            seed=seed,
            first_instance=0,
            horizon=horizon,
            checkpoints=np.array([horizon]),
            dtype=choice.dtype,
            device=ranks.device(choice.device),
            record=True,
        )
        gaps = table.gaps(abstain=policy.may_abstain)
        gaps = np.broadcast_to(gaps, (len(gaps), instances))
        option = np.where(block.actions < 0, len(labels), block.actions)
        regret = np.take_along_axis(gaps, option, axis=0).cumsum(axis=0)
        parts.append(
            pd.DataFrame(
                {
                    "policy": pd.Categorical.from_codes(np.full(instances * horizon, len(parts)), pd.Index(names)),
                    "instance": np.repeat(np.arange(instances), horizon),
                    "step": np.tile(np.arange(1, horizon + 1), instances),
                    "arm": pd.Categorical.from_codes(block.actions.T.ravel().astype(np.int32), pd.Index(labels)),
                    "reward": block.rewards.T.ravel(),
                    "regret": regret.T.ravel(),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
