"""The two tables of a regret benchmark: every policy by itself, and every policy against a baseline."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from stau_rl.machine.threads import on_all_cores
from stau_rl.regret.regrets import Regrets
from stau_rl.statistics.bootstrap import RESAMPLES, paired_intervals
from stau_rl.statistics.means import cvar, holm, mean_interval, paired_test, quantiles, wilson_interval

QUANTILES = (0.05, 0.5, 0.95)


def summarise(result: Regrets) -> pd.DataFrame:
    """A row per policy and checkpoint, in the order of the spec; made once, and kept in `result.tables`.

    Args:
        result: the arrays.

    Returns:
        A table with the columns

        - `policy`, `step` (plays done), `instances`;
        - `regret` (mean), `regret_se`, `regret_low`, `regret_high` (95 % Student interval);
        - `q05`, `q50`, `q95` (quantiles over instances) and `cvar95` (mean of the worst 5 %);
        - `best_arm_rate` (share of instances whose pull at that step is optimal), `best_arm_low`,
          `best_arm_high` (95 % Wilson interval);
        - `stuck_rate` (share of instances with less than 1 % optimal pulls in the last tenth of the
          horizon). It belongs to the run as a whole: it stands in a policy's last row and is nan in the
          rows before.
    """
    if "summary" not in result.tables:
        result.tables["summary"] = _summarised(result)
    return result.tables["summary"]


def _summarised(result: Regrets) -> pd.DataFrame:
    stuck = result.stuck.mean(axis=1)
    steps = result.spec["checkpoints"]

    def row(place: tuple[int, int]) -> dict[str, Any]:
        p, c = place
        mean = mean_interval(result.regret[p, c])
        ascending = np.sort(result.regret[p, c])
        q05, q50, q95 = quantiles(ascending, QUANTILES, is_sorted=True)
        hits = int(np.count_nonzero(result.optimal[p, c]))
        best_low, best_high = wilson_interval(hits, ascending.size)
        return {
            "policy": result.policies[p],
            "step": steps[c],
            "instances": ascending.size,
            "regret": mean.mean,
            "regret_se": mean.se,
            "regret_low": mean.low,
            "regret_high": mean.high,
            "q05": q05,
            "q50": q50,
            "q95": q95,
            "cvar95": cvar(ascending, is_sorted=True),
            "best_arm_rate": hits / ascending.size,
            "best_arm_low": best_low,
            "best_arm_high": best_high,
            "stuck_rate": stuck[p] if c == len(steps) - 1 else np.nan,
        }

    places = product(range(len(result.policies)), range(len(steps)))
    return pd.DataFrame(on_all_cores(row, places))


def compare(result: Regrets, baseline: str | None = None, resamples: int = RESAMPLES) -> pd.DataFrame:
    """A row per policy (the baseline left out) and checkpoint, in the order of the spec; made once for each baseline.

    Args:
        result: the arrays.
        baseline: a policy of the result; by default the spec's baseline, or the first policy where it names none.
        resamples: number of bootstrap resamples.

    Returns:
        A table with the columns

        - `policy`, `baseline`, `step`;
        - `difference` (mean of the paired differences), `difference_low`, `difference_high`;
        - `percent` (100 (mean / baseline mean - 1), a ratio of means), `percent_low`, `percent_high`;
        - `p_value` (paired t test) and `p_holm` (its Holm adjustment over the compared policies at the last
          checkpoint; nan at the others).

        Intervals are 95 % paired bootstrap intervals, seeded by the spec's seed.

    Raises:
        ValueError: the baseline is not a policy of the result.
    """
    name = baseline if baseline is not None else result.spec.get("baseline") or result.policies[0]
    key = f"compare {name} {resamples}"
    if key not in result.tables:
        result.tables[key] = _compared(result, name, resamples)
    return result.tables[key]


def _compared(result: Regrets, baseline: str, resamples: int) -> pd.DataFrame:
    b = result.index(baseline)
    others = [p for p in range(len(result.policies)) if p != b]
    steps = result.spec["checkpoints"]
    intervals = paired_intervals(result.resampled(resamples), others, b)
    places = product(others, range(len(steps)))
    tests = on_all_cores(lambda place: paired_test(result.regret[place], result.regret[b, place[1]]), places)
    p_value = np.array(tests).reshape(len(others), len(steps))
    p_holm = np.full_like(p_value, np.nan)
    p_holm[:, -1] = holm(p_value[:, -1])
    # Fields are [others, steps]; flattened, steps run fastest.
    return pd.DataFrame(
        {
            "policy": [result.policies[p] for p in others for _ in steps],
            "baseline": [baseline] * (len(others) * len(steps)),
            "step": np.tile(np.asarray(steps, dtype=np.int64), len(others)),
            "difference": intervals.difference.ravel(),
            "difference_low": intervals.difference_low.ravel(),
            "difference_high": intervals.difference_high.ravel(),
            "percent": intervals.percent.ravel(),
            "percent_low": intervals.percent_low.ravel(),
            "percent_high": intervals.percent_high.ravel(),
            "p_value": p_value.ravel(),
            "p_holm": p_holm.ravel(),
        }
    )
