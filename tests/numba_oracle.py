"""Policies in the plain, their histories in a float64 loop, and the compiled engine called with defaults."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from stau_rl.kernels.contract import ArmTable, Block
from stau_rl.kernels.cpu.loop import simulate
from stau_rl.kernels.philox import ACTION_REWARD, PRIVATE, SECOND
from stau_rl.kernels.philox import words as word_arrays


def words(seed, instances, index, stream):
    """The four words of a draw as one array, [4, ...]."""
    return np.stack(word_arrays(seed, instances, index, stream))


@dataclass(frozen=True)
class Score:
    name: str
    c: float = 1.0


@dataclass(frozen=True)
class Softmax:
    name: ClassVar[str] = "softmax"
    beta: float = 1.0


@dataclass(frozen=True)
class STau:
    name: ClassVar[str] = "s_tau"
    tau: float = 5.0
    eps: float = 1e-8


@dataclass(frozen=True)
class Escort:
    name: ClassVar[str] = "escort"
    p: float = 2.0


@dataclass(frozen=True)
class ClampPower:
    name: ClassVar[str] = "clamp_power"
    tau: float = 5.0
    eps: float = 1e-8


@dataclass(frozen=True)
class SoftplusNorm:
    name: ClassVar[str] = "softplus_norm"


@dataclass(frozen=True)
class SigmoidNorm:
    name: ClassVar[str] = "sigmoid_norm"


@dataclass(frozen=True)
class Argmax:
    name: ClassVar[str] = "argmax"


@dataclass(frozen=True)
class Pipe:
    name: ClassVar[str] = "pipe"
    score: Score
    head: Any


@dataclass(frozen=True)
class Random:
    name: ClassVar[str] = "random"


@dataclass(frozen=True)
class EpsGreedy:
    name: ClassVar[str] = "eps_greedy"
    eps: float = 0.1


@dataclass(frozen=True)
class Thompson:
    name: ClassVar[str] = "thompson"
    prior_mean: float = 0.0
    prior_sd: float = 1.0
    sigma: float | None = None


@dataclass(frozen=True)
class BoltzmannGumbel:
    name: ClassVar[str] = "boltzmann_gumbel"
    c: float = 0.4


@dataclass(frozen=True)
class GradientBandit:
    name: ClassVar[str] = "gradient_bandit"
    alpha: float = 0.1
    baseline: str = "none"
    head: Any = Softmax()


CENTRED, UCB, MEAN, PAST = Score("centred_ucb"), Score("ucb"), Score("mean"), Score("reward_centred_ucb")
POLICIES = {
    "centred s_tau": Pipe(CENTRED, STau()),
    "ucb s_tau": Pipe(UCB, STau(2.5)),
    "centred s_tau eps=0": Pipe(CENTRED, STau(3.0, 0.0)),
    "centred softmax": Pipe(CENTRED, Softmax()),
    "ucb softmax": Pipe(Score("ucb", 0.5), Softmax(8.0)),
    "mean softmax": Pipe(MEAN, Softmax(10.0)),
    "clamp": Pipe(PAST, ClampPower()),
    "clamp of any power": Pipe(PAST, ClampPower(2.5, 0.05)),
    "reward centred s_tau": Pipe(PAST, STau()),
    "ucb escort": Pipe(UCB, Escort()),
    "mean escort": Pipe(MEAN, Escort(1.5)),
    "centred softplus": Pipe(CENTRED, SoftplusNorm()),
    "centred sigmoid": Pipe(CENTRED, SigmoidNorm()),
    "ucb1": Pipe(UCB, Argmax()),
    "greedy": Pipe(MEAN, Argmax()),
    "random": Random(),
    "eps_greedy": EpsGreedy(),
    "thompson": Thompson(),
    "thompson prior": Thompson(0.4, 0.5, 0.9),
    "boltzmann_gumbel": BoltzmannGumbel(),
    "gradient softmax": GradientBandit(),
    "gradient s_tau": GradientBandit(0.2, "mean_including", STau(2.0)),
    "gradient escort": GradientBandit(0.02, "mean_before", Escort()),
}
NOTHING, NOWHERE = np.empty(0), np.empty(0, dtype=np.int64)


def bernoulli(means: NDArray | list[float], instances: int) -> ArmTable:
    table = np.asarray(means, dtype=np.float64)
    return ArmTable("bernoulli", table.reshape(len(table), -1), 0.5, NOTHING, NOWHERE, True, instances)


def gaussian(means: NDArray | list[float], instances: int, sigma: float = 0.7) -> ArmTable:
    table = np.asarray(means, dtype=np.float64)
    return ArmTable("gaussian", table.reshape(len(table), -1), sigma, NOTHING, NOWHERE, False, instances)


def empirical(instances: int) -> ArmTable:
    groups = [
        np.array([0.0, 0.1, 2.5]),
        np.array([-1.0, 0.3, 0.4, 0.9, 1.7]),
        np.array([0.6]),
        np.array([0.2, 0.8]),
    ]
    offsets = np.cumsum([0, *map(len, groups)]).astype(np.int64)
    means = np.array([[group.mean()] for group in groups])
    return ArmTable("table", means, 0.8, np.concatenate(groups), offsets, False, instances)


ARMS = {
    "bernoulli": bernoulli([0.9, 0.8, 0.5, 0.2], 16),
    "gaussian": gaussian(np.random.default_rng(3).normal(size=(4, 8)), 8),
    "table": empirical(8),
}


def play(policy: Any, arms: ArmTable, horizon: int, **options: Any) -> Block:
    options = {"seed": 0, "first_instance": 0, "checkpoints": np.array([horizon]), **options}
    return simulate(policy, arms, horizon=horizon, **options)


def scalar_log_weights(head: Any, scores: NDArray) -> NDArray:
    with np.errstate(divide="ignore"):
        if head.name == "softmax":
            return head.beta * scores
        if head.name == "s_tau":
            return head.tau * np.log(np.logaddexp(0.0, scores) + head.eps)
        if head.name == "clamp_power":
            return head.tau * np.log(np.maximum(scores, head.eps))
        if head.name == "escort":
            return head.p * np.log(np.abs(scores)) if np.any(scores) else np.zeros_like(scores)
        if head.name == "softplus_norm":
            return np.log(np.logaddexp(0.0, scores))
        return special.log_expit(scores)


def scalar_slope(head: Any, scores: NDArray) -> NDArray:
    if head.name == "softmax":
        return np.full_like(scores, head.beta)
    if head.name == "s_tau":
        return head.tau * special.expit(scores) / (np.logaddexp(0.0, scores) + head.eps)
    return head.p / scores


def scalar_beta(a: float, b: float, seed: int, instance: NDArray, t: int, arm: int) -> float:
    """Cheng's BB as published, quick acceptances included."""
    low, high, both = min(a, b), max(a, b), a + b
    rate = 1.0 if low == 1 else math.sqrt((both - 2) / (2 * low * high - both))
    for attempt in range(1000):
        u1, u2 = ((words(seed, instance, t, PRIVATE + arm + 1024 * attempt)[:2, 0] >> 8) + 0.5) * 2.0**-24
        if high == 1:
            return float(u1)
        v = rate * math.log(u1 / (1 - u1))
        w, z = low * math.exp(v), u1 * u1 * u2
        r = (low + 1 / rate) * v - math.log(4)
        s = low + r - w
        quick = s + 1 + math.log(5) >= 5 * z or s >= math.log(z)
        if quick or r + both * math.log(both / (high + w)) >= math.log(z):
            return w / (high + w) if low == a else high / (high + w)
    raise AssertionError("no draw was accepted")


def by_cdf(weights: NDArray, u: float) -> tuple[int, float]:
    """First k with cdf_k > u * total, and how far u is from a boundary."""
    cdf = np.cumsum(weights)
    return int(np.argmax(cdf > u * cdf[-1])), float(np.abs(cdf / cdf[-1] - u).min())


def scalar_history(policy: Any, arms: ArmTable, seed: int, j: int, horizon: int) -> Iterator[tuple[int, float, float]]:
    """Plain float64 loop of one instance: (arm, reward, margin of the decision) step by step."""
    count, gain = np.zeros(arms.arms), np.zeros(arms.arms)
    instance, means = np.array([j]), arms.means[:, j % arms.means.shape[1]]
    preference = np.full(arms.arms, 1.0 if getattr(policy, "head", None) == Escort() else 0.0)
    for t in range(horizon):
        pair = words(seed, instance, t >> 1, ACTION_REWARD)[2 * (t & 1) :, 0] >> 8
        u, luck, margin = pair[0] * 2.0**-24, int(pair[1]), 1.0
        mean = np.divide(gain, count, out=np.zeros(arms.arms), where=count > 0)
        if policy.name == "pipe":
            scores = mean
            if policy.score.name != "mean" and t >= arms.arms:
                scores = mean + policy.score.c * np.sqrt(2 * math.log(t) / count)
            if policy.score.name == "centred_ucb":
                scores = scores - scores.mean()
            if policy.score.name == "reward_centred_ucb" and t:
                scores = scores - gain.sum() / t
            if policy.score.name != "mean" and t < arms.arms:
                arm = t
            elif policy.head.name == "argmax":
                arm, _ = by_cdf((scores == scores.max()).astype(float), u)
                margin = 1e-9
            else:
                logs = scalar_log_weights(policy.head, scores)
                arm, margin = by_cdf(np.exp(logs - logs.max()), u)
        elif policy.name == "random":
            arm = int(u * arms.arms)
        elif policy.name == "eps_greedy":
            second = (words(seed, instance, t, SECOND)[:, 0] >> 8) * 2.0**-24
            tied = np.flatnonzero(mean == mean.max())
            arm = int(second[0] * arms.arms) if u < policy.eps else int(tied[int(second[1] * tied.size)])
        elif policy.name == "thompson" and arms.binary:
            draws = [scalar_beta(1 + gain[k], 1 + count[k] - gain[k], seed, instance, t, k) for k in range(arms.arms)]
            arm = int(np.argmax(draws))
        elif policy.name == "thompson":
            precision = policy.prior_sd**-2 + count / (policy.sigma or arms.sigma) ** 2
            centre = (policy.prior_mean * policy.prior_sd**-2 + gain / (policy.sigma or arms.sigma) ** 2) / precision
            word = np.array([words(seed, instance, t, PRIVATE + k)[0, 0] >> 8 for k in range(arms.arms)])
            draws = centre + special.ndtri((word + 0.5) * 2.0**-24) / np.sqrt(precision)
            arm, best = int(np.argmax(draws)), np.sort(draws)
            margin = float(best[-1] - best[-2])
        elif policy.name == "boltzmann_gumbel" and t < arms.arms:
            arm = t
        elif policy.name == "boltzmann_gumbel":
            word = np.array([words(seed, instance, t, PRIVATE + k)[0, 0] >> 8 for k in range(arms.arms)])
            draws = mean + policy.c / np.sqrt(count) * stats.gumbel_r.ppf((word + 0.5) * 2.0**-24)
            arm, best = int(np.argmax(draws)), np.sort(draws)
            margin = float(best[-1] - best[-2])
        else:
            logs = scalar_log_weights(policy.head, preference)
            weights = np.exp(logs - logs.max())
            arm, margin = by_cdf(weights, u)
        if arms.kind == "bernoulli":
            reward = float(luck < math.ceil(means[arm] * 2.0**24))
        elif arms.kind == "gaussian":
            reward = float(means[arm] + arms.sigma * special.ndtri((luck + 0.5) * 2.0**-24))
        else:
            size = arms.offsets[arm + 1] - arms.offsets[arm]
            reward = float(arms.values[arms.offsets[arm] + (((2 * luck + 1) * size) >> 25)])
        if policy.name == "gradient_bandit":
            before = gain.sum() / t if t else 0.0
            baseline = {"none": 0.0, "mean_before": before, "mean_including": (gain.sum() + reward) / (t + 1)}
            drawn = np.arange(arms.arms) == arm
            step = policy.alpha * (reward - baseline[policy.baseline]) * scalar_slope(policy.head, preference)
            preference = preference + step * (drawn - weights / weights.sum())
        count[arm] += 1
        gain[arm] += reward
        yield arm, reward, margin
