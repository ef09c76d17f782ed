"""Do the intervals cover? `python -m stau_rl.checks.coverage` plays thousands of small studies whose truth is known.

Each study is a regret benchmark of its own: a few hundred instances of two families of policies, with the intervals
that the tables of a run and of a study print. The truth comes from a million other instances, so it is known seventy
times as well as a study knows it. Two cases: Bernoulli arms, where regrets are well behaved, and Gaussian arms with
steep heads, where some runs are stuck and pay many times the usual. For Holm's procedure the null hypothesis is made
true: five groups of instances of one policy are compared with a sixth.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stau_rl.agents.bandit import Policy
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.regret.run import run_regret
from stau_rl.statistics.bootstrap import paired_bootstrap
from stau_rl.statistics.means import holm, mean_interval, paired_test, wilson_interval
from stau_rl.statistics.robust import interquartile_interval, interquartile_mean, paired_improvement
from stau_rl.statistics.selection import selected_bootstrap
from stau_rl.statistics.simultaneous import curve_band
from stau_rl.study.family import Family
from stau_rl.terminal.progress import status_line

# Policies under the null beside the baseline.
NULLS = 5
COVERAGE = (0.93, 0.97)
# A choice among members that are about equally good widens the interval of a tuned comparison; it may cover more. So
# may Wilson's interval of a rate, a little.
CONSERVATIVE, WILSON = (0.93, 1.0), (0.93, 0.98)
FAMILY_WISE_ERROR = 0.055

Report = Callable[[str], None]
"""Called with what is being done."""


def _silent(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class Case:
    """What the simulated studies play.

    Attributes:
        name: for the table.
        arms: the arms.
        horizon: steps.
        families: the reference, and the family compared with it, as raw members.
        slopes: members of each family that are tuned over.
        skewed: regrets are so skewed that a few hundred instances are too few for symmetric intervals of a mean; their
            coverage is shown without a range that it should lie in.
    """

    name: str
    arms: str
    horizon: int
    families: tuple[str, str]
    slopes: tuple[float, ...]
    skewed: bool = False


CASES = (
    Case(
        name="Bernoulli arms",
        arms="bernoulli(k=10)",
        horizon=200,
        families=("centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)"),
        slopes=(10.0, 30.0, 100.0, 300.0),
    ),
    Case(
        name="heavy tails",
        arms="gaussian(k=10)",
        horizon=500,
        families=("centred_ucb(c=0) | softmax(beta=8)", "centred_ucb(c=0) | s_tau(tau=16)"),
        slopes=(4.0, 8.0, 16.0, 32.0),
        skewed=True,
    ),
)


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
    case: Case = CASES[0],
    studies: int = 2_000,
    instances: int = 200,
    seed: int = 0,
    truth: int = 1_000_000,
    resamples: int = 1_000,
    report: Report = _silent,
) -> list[Rate]:
    """Rates of coverage of the 95 % intervals.

    Args:
        case: what is played.
        studies: simulated studies.
        instances: instances of each, for tuning as for evaluation.
        seed: in [0, 2^62); tuning and truth come from other keys.
        truth: instances that the true values are taken from.
        resamples: bootstrap resamples of each study.
        report: called as the work goes on.
    """
    members = [[Family(text).member(slope) for slope in case.slopes] for text in case.families]
    count = studies * instances
    raw = _regrets(case, case.families, count, purpose_seed(seed, "evaluation"), report)
    played = [_regrets(case, some, count, purpose_seed(seed, "evaluation"), report) for some in members]
    tuned = [_regrets(case, some, count, purpose_seed(seed, "tuning"), report) for some in members]
    exact = purpose_seed(seed, "pilot")
    true_base, true_raw = _regrets(case, case.families, truth, exact, report)
    exact_first = [_regrets(case, [some[0]], truth, exact, report)[0] for some in members]
    curves = [
        np.array([first.mean(), *(_regrets(case, [one], truth, exact, report)[0].mean() for one in some[1:])])
        for first, some in zip(exact_first, members, strict=True)
    ]
    true_mean, true_base_mean = true_raw.mean(), true_base.mean()
    target = {
        "mean": true_mean,
        "paired difference": true_mean - true_base_mean,
        "percentage": 100 * (true_mean / true_base_mean - 1),
        "mean, studentised": true_mean,
        "interquartile mean": interquartile_mean(true_raw),
        "probability of improvement": paired_improvement(exact_first[1], exact_first[0]).value,
        "whole curve": curves[1],
        "tuned percentage": 100 * (curves[1].min() / curves[0].min() - 1),
    }
    hits = dict.fromkeys(target, 0)
    for study in range(studies):
        report(f"{case.name}: study {study + 1} of {studies}")
        rows = slice(study * instances, (study + 1) * instances)
        ends = _intervals(
            (raw[0][rows], raw[1][rows]),
            [some[:, rows] for some in tuned],
            [some[:, rows] for some in played],
            study,
            resamples,
        )
        for name, (low, high) in ends.items():
            hits[name] += int(np.all((low <= target[name]) & (target[name] <= high)))
    ranges = dict.fromkeys(target, COVERAGE)
    ranges |= {"tuned percentage": CONSERVATIVE, "probability of improvement": WILSON}
    if case.skewed:
        ranges |= dict.fromkeys(("mean", "paired difference", "percentage"), (0.0, 1.0))
    return [Rate(f"{case.name}: 95 % interval of the {name}", hits[name], studies, *ranges[name]) for name in target]


def _intervals(
    raw: tuple[NDArray[np.float64], NDArray[np.float64]],
    tuned: Sequence[NDArray[np.float64]],
    played: Sequence[NDArray[np.float64]],
    seed: int,
    resamples: int,
) -> dict[str, tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]]:
    """Every interval of one study, by name."""
    y, x = raw
    mean = mean_interval(x)
    found = paired_bootstrap([x[None]], y[None], seed=seed, resamples=resamples)
    single = curve_band(x[None], seed=seed, resamples=resamples)
    middle = interquartile_interval(x, seed=seed, resamples=resamples)
    # Of members that are equally steep: between the raw ones one may win nearly always, and a rate next to 1 jumps.
    better = paired_improvement(played[1][0], played[0][0])
    curve = curve_band(tuned[1], seed=seed, resamples=resamples)
    best = selected_bootstrap((tuned[1], played[1]), (tuned[0], played[0]), seed=seed, resamples=resamples)
    return {
        "mean": (mean.low, mean.high),
        "paired difference": (found.difference_low[0, 0], found.difference_high[0, 0]),
        "percentage": (found.percent_low[0, 0], found.percent_high[0, 0]),
        "mean, studentised": (single.low[0], single.high[0]),
        "interquartile mean": (middle.low, middle.high),
        "probability of improvement": (better.low, better.high),
        "whole curve": (curve.low, curve.high),
        "tuned percentage": (best.percent_low, best.percent_high),
    }


def false_rejections(
    case: Case = CASES[0], studies: int = 4_000, instances: int = 200, seed: int = 0, report: Report = _silent
) -> Rate:
    """How often Holm's procedure at 5 % rejects some hypothesis where all are true; arguments as in `simulate`."""
    count = studies * instances * (NULLS + 1)
    null = _regrets(case, case.families[:1], count, purpose_seed(seed, "tuning"), report)[0]
    groups = null.reshape(studies, NULLS + 1, instances)
    rejected = 0
    for study in groups:
        p_values = [paired_test(group, study[0]) for group in study[1:]]
        rejected += int(np.any(holm(p_values) <= 0.05))
    return Rate(f"{case.name}: Holm rejects a true null hypothesis", rejected, studies, 0.0, FAMILY_WISE_ERROR)


def _regrets(
    case: Case, policies: Sequence[str | Policy], instances: int, seed: int, report: Report
) -> NDArray[np.float64]:
    """Regrets at the horizon, float64 [policies, instances]."""
    found = []
    for policy in policies:
        report(f"{case.name}: playing {instances} instances of {policy}")
        result = run_regret(case.arms, [policy], case.horizon, instances, seed, checkpoints=[case.horizon])
        found.append(result.regret[0, 0])
    return np.array(found)


def table(rates: Sequence[Rate]) -> str:
    """The rates as Markdown."""
    lines = ["| in simulated studies | rate | 95 % interval | should lie in |", "| --- | --- | --- | --- |"]
    for rate in rates:
        low, high = wilson_interval(rate.hits, rate.studies)
        wanted = f"{100 * rate.lowest:g} to {100 * rate.highest:g} %" if (rate.lowest, rate.highest) != (0, 1) else "-"
        lines.append(
            f"| {rate.name} | {100 * rate.rate:.2f} % | [{100 * low:.2f}, {100 * high:.2f}] % "
            f"| {wanted}{'' if rate.acceptable else ' (it does not)'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    with status_line("playing") as show:
        found = [rate for case in CASES for rate in simulate(case, report=show)]
        found += [false_rejections(case, report=show) for case in CASES]
    sys.stdout.write(f"{found[0].studies} studies of 200 instances\n\n{table(found)}\n")
    sys.exit(not all(rate.acceptable for rate in found))
