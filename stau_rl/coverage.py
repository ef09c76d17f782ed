"""Do the intervals cover? `python -m stau_rl.coverage` plays thousands of small studies whose truth is known.

Each study is a regret benchmark of its own: a few hundred instances of two policies on ten Bernoulli arms, with the
intervals of `RegretResult.summary()` and `.compare()`. The truth is the mean over two million other instances, known a
hundred times as well as a study knows it. For Holm's procedure the null hypothesis is made true: five groups of
instances of one policy are compared with a sixth.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stau_rl.bootstrap import paired_bootstrap
from stau_rl.regret import run_regret
from stau_rl.statistics import holm, mean_interval, paired_test, wilson_interval
from stau_rl.study_seeds import purpose_seed

ARMS = "bernoulli(k=10)"
BASELINE, POLICY = "centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)"
HORIZON = 200
# Policies under the null beside the baseline.
NULLS = 5
COVERAGE = (0.93, 0.97)
FAMILY_WISE_ERROR = 0.055


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something happened in the simulated studies.

    Attributes:
        name: what it is.
        hits: studies in which it happened.
        studies: all of them.
        lowest: least rate that is acceptable.
        highest: largest rate that is.
    """

    name: str
    hits: int
    studies: int
    lowest: float
    highest: float

    @property
    def rate(self) -> float:
        """Share of the studies."""
        return self.hits / self.studies

    @property
    def acceptable(self) -> bool:
        """The rate lies where it should."""
        return self.lowest <= self.rate <= self.highest


def simulate(
    studies: int = 4_000, instances: int = 200, seed: int = 0, truth: int = 2_000_000, resamples: int = 1_000
) -> list[Rate]:
    """Rates of coverage of the three 95 % intervals, and of a false rejection by Holm's procedure at 5 %.

    Args:
        studies: simulated studies.
        instances: instances of each.
        seed: in [0, 2^62); the truth comes from another key.
        truth: instances that the true means are taken from.
        resamples: bootstrap resamples of each study.
    """
    a, b = _regrets([BASELINE, POLICY], studies * instances, purpose_seed(seed, "evaluation"))
    true_a, true_b = (float(x.mean()) for x in _regrets([BASELINE, POLICY], truth, purpose_seed(seed, "pilot")))
    target = {"mean": true_b, "paired difference": true_b - true_a, "percentage": 100 * (true_b / true_a - 1)}
    hits = dict.fromkeys(target, 0)
    rejected = 0
    null = _regrets([BASELINE], studies * instances * (NULLS + 1), purpose_seed(seed, "tuning"))[0]
    groups = null.reshape(studies, NULLS + 1, instances)
    for study in range(studies):
        rows = slice(study * instances, (study + 1) * instances)
        x, y = b[rows], a[rows]
        mean = mean_interval(x)
        found = paired_bootstrap([x[None]], y[None], seed=study, resamples=resamples)
        ends = {
            "mean": (mean.low, mean.high),
            "paired difference": (found.difference_low[0, 0], found.difference_high[0, 0]),
            "percentage": (found.percent_low[0, 0], found.percent_high[0, 0]),
        }
        for name, (low, high) in ends.items():
            hits[name] += int(low <= target[name] <= high)
        p_values = [paired_test(group, groups[study, 0]) for group in groups[study, 1:]]
        rejected += int(np.any(holm(p_values) <= 0.05))
    rates = [Rate(f"95 % interval of the {name} covers", hits[name], studies, *COVERAGE) for name in target]
    rates.append(Rate("Holm rejects a true null hypothesis", rejected, studies, 0.0, FAMILY_WISE_ERROR))
    return rates


def _regrets(policies: Sequence[str], instances: int, seed: int) -> list[NDArray[np.float64]]:
    return [
        run_regret(ARMS, [policy], HORIZON, instances, seed, checkpoints=[HORIZON]).regret[0, 0] for policy in policies
    ]


def table(rates: Sequence[Rate]) -> str:
    """The rates as Markdown."""
    lines = ["| in simulated studies | rate | 95 % interval | should lie in |", "| --- | --- | --- | --- |"]
    for rate in rates:
        low, high = wilson_interval(rate.hits, rate.studies)
        lines.append(
            f"| {rate.name} | {100 * rate.rate:.2f} % | [{100 * low:.2f}, {100 * high:.2f}] % "
            f"| {100 * rate.lowest:g} to {100 * rate.highest:g} %{'' if rate.acceptable else ' (it does not)'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    found = simulate()
    sys.stdout.write(f"{found[0].studies} studies\n\n{table(found)}\n")
    sys.exit(not all(rate.acceptable for rate in found))
