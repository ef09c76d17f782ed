"""Two heads, each at the best of its grid: chosen on the runs that are reported, or on others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from stau_rl.agents.bandit import parse_policy
from stau_rl.regret.regrets import Regrets
from stau_rl.regret.report import interval
from stau_rl.statistics.bootstrap import paired_bootstrap

RULES = {
    "same": "chosen on the runs reported",
    "split": "chosen on one half of the runs, reported on the other",
}
"""How the best of a grid is chosen. The first favours the larger grid and the noisier head."""


def best_against_best(result: Regrets, rivals: Sequence[str]) -> pd.DataFrame:
    """Regret of the first head at its best against the second at its own, at the horizon.

    Args:
        result: regrets of several members of both heads.
        rivals: names of the two heads, such as `clamp_power` and `softmax`.

    Returns:
        A row per rule of `RULES`: `rule`, `policy` and `baseline` (texts), `regret` and `baseline_regret` (means of the
        runs reported), `percent`, `percent_low`, `percent_high` (ratio of means less one, with its paired 95 %
        interval), `instances` reported.

    Raises:
        ValueError: a head has no policy in the result.
    """
    last = np.asarray(result.regret)[:, -1, :]
    heads = [getattr(parse_policy(text).head, "name", "") for text in result.policies]
    members = {head: [number for number, name in enumerate(heads) if name == head] for head in rivals}
    for head, found in members.items():
        if not found:
            raise ValueError(f"no policy of this result has the head {head!r}; it has {', '.join(sorted({*heads}))}")
    everyone = np.arange(last.shape[1])
    half = len(everyone) // 2
    rows: list[dict[str, Any]] = []
    for rule, chosen_on, reported_on in (
        ("same", everyone, everyone),
        ("split", everyone[:half], everyone[half:]),
    ):
        if not len(chosen_on):
            continue
        means = last[:, chosen_on].mean(axis=1)
        best = [members[head][int(np.argmin(means[members[head]]))] for head in rivals]
        ours, theirs = (last[number, reported_on][None] for number in best)
        against = paired_bootstrap([ours], theirs, seed=result.spec["seed"])
        rows.append(
            {
                "rule": rule,
                "policy": result.policies[best[0]],
                "baseline": result.policies[best[1]],
                "regret": float(ours.mean()),
                "baseline_regret": float(theirs.mean()),
                "percent": float(against.percent[0, 0]),
                "percent_low": float(against.percent_low[0, 0]),
                "percent_high": float(against.percent_high[0, 0]),
                "instances": len(reported_on),
            }
        )
    return pd.DataFrame(rows)


def told(table: pd.DataFrame) -> list[str]:
    """A sentence per rule."""
    return [
        f"Best against best, {RULES[row['rule']]} ({row['instances']}): {row['policy']} {row['regret']:.1f}, "
        f"{row['baseline']} {row['baseline_regret']:.1f}: "
        f"{interval(row['percent'], row['percent_low'], row['percent_high'])} %."
        for row in table.to_dict("records")
    ]
