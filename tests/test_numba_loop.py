"""The compiled engine against exact histories, exact regrets and a plain float64 loop."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from stau_rl.kernels import numba_codegen, numba_plan
from stau_rl.kernels.contract import ArmTable, Block, EngineError, late_start
from stau_rl.kernels.numba_heads import DEVICE_HEADS, DeviceHead, escort_log2
from stau_rl.kernels.numba_loop import simulate
from stau_rl.kernels.numba_math import device
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
class GradientBandit:
    name: ClassVar[str] = "gradient_bandit"
    alpha: float = 0.1
    baseline: str = "none"
    head: Any = Softmax()


CENTRED, UCB, MEAN = Score("centred_ucb"), Score("ucb"), Score("mean")
POLICIES = {
    "centred s_tau": Pipe(CENTRED, STau()),
    "ucb s_tau": Pipe(UCB, STau(2.5)),
    "centred s_tau eps=0": Pipe(CENTRED, STau(3.0, 0.0)),
    "centred softmax": Pipe(CENTRED, Softmax()),
    "ucb softmax": Pipe(Score("ucb", 0.5), Softmax(8.0)),
    "mean softmax": Pipe(MEAN, Softmax(10.0)),
    "ucb escort": Pipe(UCB, Escort()),
    "mean escort": Pipe(MEAN, Escort(1.5)),
    "centred softplus": Pipe(CENTRED, SoftplusNorm()),
    "centred sigmoid": Pipe(CENTRED, SigmoidNorm()),
    "ucb1": Pipe(UCB, Argmax()),
    "greedy": Pipe(MEAN, Argmax()),
    "random": Random(),
    "eps_greedy": EpsGreedy(),
    "thompson": Thompson(),
    "gradient softmax": GradientBandit(),
    "gradient s_tau": GradientBandit(0.2, "mean_including", STau(2.0)),
    "gradient escort": GradientBandit(0.1, "mean_before", Escort()),
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


# Every policy on Bernoulli arms; each way of keeping statistics on the other rewards.
CASES = [(name, "bernoulli") for name in POLICIES] + [
    (name, kind)
    for kind in ("gaussian", "table")
    for name in ("centred s_tau", "ucb1", "greedy", "thompson", "gradient escort")
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_history_equals_the_float64_loop(name: str, kind: str) -> None:
    policy, arms, horizon = POLICIES[name], ARMS[kind], 150
    got = play(policy, arms, horizon, seed=9, record=True)
    same = 0
    for j in range(arms.instances):
        for t, (arm, reward, margin) in enumerate(scalar_history(policy, arms, 9, j, horizon)):
            if got.actions[t, j] != arm:
                assert margin < 2e-5, f"instance {j} differs at step {t}, {margin} from a boundary"
                break
            assert got.rewards[t, j] == pytest.approx(reward, rel=1e-6, abs=1e-6)
        else:
            same += 1
    assert same >= arms.instances - 1


GOLDEN_MEANS = [0.9, 0.8, 0.5]
GOLDEN = [  # seed, instance, head, arms, rewards
    (
        0,
        0,
        STau(),
        "0120012120110110002000011221020122100010110111100211010221100111",
        "1101111101111011100011111001111100111111111111111101111101111100",
    ),
    (
        0,
        0,
        Softmax(),
        "0120002120111220002000011221020122101010210112100211011221100111",
        "1101111101111001100011111001111100111111011110111101111101111100",
    ),
    (
        0,
        1,
        STau(),
        "0120110210101111010002122212112120011100212020220210001200010120",
        "1101110011111111101101011110110101111011110111011101100011111110",
    ),
    (
        0,
        1,
        Softmax(),
        "0121020210102112011001111212112120011200212020220211002200010120",
        "1101110011111111101101011110110101111011110111011101100011111110",
    ),
    (
        7,
        123456,
        STau(),
        "0121120220011010022021110001020111101112020011120120201112101010",
        "1111101101111111111100111101111111011111101011111111111100111111",
    ),
    (
        7,
        123456,
        Softmax(),
        "0121120220011020022021110001120011101112020011220120201112101010",
        "1111101101111101111100111101011111011111101011011111111100111111",
    ),
    (
        1099511627783,
        12345678901,
        STau(),
        "0122001002202010210010100012012100100110111001012101112212022211",
        "1010111111110111111011111111110011111111111101111111111001001011",
    ),
    (
        1099511627783,
        12345678901,
        Softmax(),
        "0122201002202010210010200012012200100110111000012101112212022211",
        "1010111111110111111011111111110011111111111101111111111001001011",
    ),
]
EXACT = [  # means, score, head, regret after 10, 50 and 100 plays
    ([0.9, 0.8], Pipe(CENTRED, Softmax(1.0)), {10: 0.4847028253, 50: 2.4080792457, 100: 4.8055937194}),
    ([0.9, 0.8], Pipe(UCB, Softmax(1.0)), {10: 0.4847028253, 50: 2.4080792457, 100: 4.8055937194}),
    ([0.9, 0.8], Pipe(CENTRED, Softmax(8.0)), {10: 0.4603016344, 50: 2.2083310642, 100: 4.3181669680}),
    ([0.9, 0.8], Pipe(UCB, Softmax(8.0)), {10: 0.4603016344, 50: 2.2083310642, 100: 4.3181669680}),
    ([0.9, 0.8], Pipe(CENTRED, STau(2.5)), {10: 0.4772720235, 50: 2.3599367327, 100: 4.6971218776}),
    ([0.9, 0.8], Pipe(UCB, STau(2.5)), {10: 0.4835357627, 50: 2.3949244331, 100: 4.7698406027}),
    ([0.9, 0.8], Pipe(CENTRED, STau(5.0)), {10: 0.4680983947, 50: 2.2905310359, 100: 4.5310605200}),
    ([0.9, 0.8], Pipe(UCB, STau(5.0)), {10: 0.4744702568, 50: 2.3320937204, 100: 4.6230745565}),
    ([0.9, 0.8], Pipe(CENTRED, Argmax()), {10: 0.4618746202, 50: 2.0720927069, 100: 3.8900555993}),
    ([0.9, 0.8], Pipe(UCB, Argmax()), {10: 0.4618746202, 50: 2.0720927069, 100: 3.8900555993}),
    ([0.55, 0.45], Pipe(CENTRED, Softmax(1.0)), {10: 0.4858177534, 50: 2.4102984609, 100: 4.8083009344}),
    ([0.55, 0.45], Pipe(UCB, Softmax(1.0)), {10: 0.4858177534, 50: 2.4102984609, 100: 4.8083009344}),
    ([0.55, 0.45], Pipe(CENTRED, Softmax(8.0)), {10: 0.4652913346, 50: 2.2221112745, 100: 4.3374614386}),
    ([0.55, 0.45], Pipe(UCB, Softmax(8.0)), {10: 0.4652913346, 50: 2.2221112745, 100: 4.3374614386}),
    ([0.55, 0.45], Pipe(CENTRED, STau(2.5)), {10: 0.4796628157, 50: 2.3643820565, 100: 4.7025993611}),
    ([0.55, 0.45], Pipe(UCB, STau(2.5)), {10: 0.4841588135, 50: 2.3902396884, 100: 4.7555387451}),
    ([0.55, 0.45], Pipe(CENTRED, STau(5.0)), {10: 0.4723191466, 50: 2.2987471438, 100: 4.5416664631}),
    ([0.55, 0.45], Pipe(UCB, STau(5.0)), {10: 0.4766063645, 50: 2.3283779314, 100: 4.6066233443}),
    ([0.55, 0.45], Pipe(CENTRED, Argmax()), {10: 0.4584732197, 50: 2.0898333565, 100: 3.9198718366}),
    ([0.55, 0.45], Pipe(UCB, Argmax()), {10: 0.4584732197, 50: 2.0898333565, 100: 3.9198718366}),
]
CLASSIC = [
    ([0.9, 0.8], EpsGreedy(0.1), {10: 0.4658281023, 50: 1.8629542218, 100: 3.043111197}),
    ([0.9, 0.8], Pipe(MEAN, Softmax(10.0)), {10: 0.4722973026, 50: 2.3296484127, 100: 4.6278490483}),
    ([0.9, 0.8], Thompson(), {10: 0.4395182474, 50: 1.6313782601, 100: 2.6210896378}),
    ([0.55, 0.45], Thompson(), {10: 0.4536838825, 50: 1.8961371695, 100: 3.3054801214}),
    ([0.9, 0.8], GradientBandit(0.1), {5: 0.248758684959, 10: 0.494469645256}),
    ([0.9, 0.8], GradientBandit(0.4), {5: 0.24544420511, 10: 0.481505693004}),
]


@pytest.mark.parametrize(("seed", "instance", "head", "arms", "rewards"), GOLDEN)
def test_golden_history(seed: int, instance: int, head: Any, arms: str, rewards: str) -> None:
    table = bernoulli(GOLDEN_MEANS, 1)
    got = play(Pipe(CENTRED, head), table, 64, seed=seed, first_instance=instance, record=True)
    assert "".join(map(str, got.actions[:, 0])) == arms
    assert "".join(str(int(reward)) for reward in got.rewards[:, 0]) == rewards


@pytest.mark.parametrize(("means", "policy", "regret"), EXACT + CLASSIC)
def test_exact_expected_regret(means: list[float], policy: Any, regret: dict[int, float]) -> None:
    instances = 200_000
    got = play(policy, bernoulli(means, instances), max(regret), seed=17, checkpoints=np.array(list(regret)))
    error = got.regret.std(axis=1) / math.sqrt(instances)
    # Four standard errors: one comparison in 16 000 fails by chance, and the seed is fixed.
    assert (np.abs(got.regret.mean(axis=1) - list(regret.values())) < 4 * error).all()


SIZES = ["centred s_tau", "ucb1", "eps_greedy", "thompson", "gradient escort"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "bernoulli") for name in SIZES), ("ucb1", "gaussian"), ("thompson", "gaussian")],
)
def test_history_does_not_depend_on_the_batch(name: str, kind: str) -> None:
    means = np.random.default_rng(5).random((4, 1000))
    make = {"bernoulli": bernoulli, "gaussian": gaussian}[kind]
    options = {"seed": 3, "checkpoints": np.array([1, 7, 60])}
    whole = play(POLICIES[name], make(means, 1000), 60, first_instance=40, **options)
    for start, stop in ((0, 1), (1, 8), (993, 1000), (500, 1000)):
        part = play(POLICIES[name], make(means[:, start:stop], stop - start), 60, first_instance=40 + start, **options)
        for field in ("regret", "optimal", "late_optimal", "pulls", "reward_sums"):
            assert np.array_equal(getattr(part, field), getattr(whole, field)[..., start:stop]), field


def test_history_does_not_depend_on_block_size_or_call_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from stau_rl.kernels import numba_loop

    options = {"seed": 3, "record": True, "checkpoints": np.array([1, 7, 60])}
    arms = bernoulli(np.random.default_rng(5).random((4, 100)), 100)
    whole = play(POLICIES["centred s_tau"], arms, 60, **options)
    monkeypatch.setattr(numba_plan, "CACHE_BYTES", 4096)
    monkeypatch.setattr(numba_loop, "WORK", 7000)
    calls: list[int] = []
    parts = play(POLICIES["centred s_tau"], arms, 60, progress=calls.append, **options)
    assert len(calls) > 3
    assert sum(calls) == 100 * 60
    for field in ("regret", "optimal", "late_optimal", "pulls", "reward_sums", "actions", "rewards"):
        assert np.array_equal(getattr(parts, field), getattr(whole, field)), field


@pytest.mark.parametrize("name", ["centred s_tau", "ucb softmax", "ucb1", "thompson", "gradient s_tau"])
def test_many_arms_take_the_looped_form(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = ARMS["table"] if name == "ucb1" else ARMS["bernoulli"]
    unrolled = play(POLICIES[name], arms, 50, record=True)
    monkeypatch.setattr(numba_plan, "UNROLL_ARMS", 1)
    looped = play(POLICIES[name], arms, 50, record=True)
    assert np.array_equal(unrolled.actions, looped.actions)
    assert np.array_equal(unrolled.reward_sums, looped.reward_sums)


def test_results_agree_with_the_recorded_history() -> None:
    means = np.random.default_rng(1).random((4, 37))
    arms, horizon, checkpoints = bernoulli(means, 37), 45, np.array([1, 2, 30, 41, 45])
    got = play(POLICIES["centred softmax"], arms, horizon, record=True, checkpoints=checkpoints)
    pulls = got.actions[:, None, :] == np.arange(4)[:, None]
    for row, plays in enumerate(checkpoints):
        regret = (pulls[:plays].sum(axis=0) * arms.gaps()).sum(axis=0)
        np.testing.assert_allclose(got.regret[row], regret, rtol=1e-14, atol=1e-14)
        assert np.array_equal(got.optimal[row], got.actions[plays - 1] == means.argmax(axis=0))
    assert np.array_equal(got.pulls, pulls.sum(axis=0))
    late = (got.actions[late_start(horizon) :] == means.argmax(axis=0)).sum(axis=0)
    assert np.array_equal(got.late_optimal, late)
    assert np.array_equal(got.reward_sums, (pulls * got.rewards[:, None, :]).sum(axis=0))


@pytest.mark.parametrize("policy", [POLICIES["greedy"], EpsGreedy(0.0), POLICIES["mean softmax"], Random()])
def test_first_ties_split_evenly(policy: Any) -> None:
    instances = 40_000
    got = play(policy, bernoulli([0.5] * 5, instances), 1, seed=21)
    share = got.pulls.sum(axis=1) / instances
    assert np.abs(share - 0.2).max() < 4 * math.sqrt(0.2 * 0.8 / instances)


EXTREME = [Softmax(64.0), STau(88.7), STau(15.0), STau(88.7, 0.0), Escort(15.0), SigmoidNorm(), Argmax()]


@pytest.mark.parametrize(
    ("score", "head"), [(CENTRED, head) for head in EXTREME] + [(MEAN, head) for head in EXTREME[:2]]
)
def test_scores_of_ten_thousand_stay_finite(score: Score, head: Any) -> None:
    means = np.array([1e4, -1e4, 0.0, 9e3])
    got = play(Pipe(score, head), gaussian(means, 50), 100, record=True)
    assert np.isfinite(got.regret).all()
    assert np.isfinite(got.rewards).all()
    assert (got.pulls.sum(axis=0) == 100).all()
    if head in (Softmax(64.0), Argmax()) and score is CENTRED:
        assert (got.pulls[0] == 97).all()


def test_binary_table_has_a_beta_posterior() -> None:
    arms = ArmTable(
        "table",
        np.array([[0.5], [0.75]]),
        0.5,
        np.array([0.0, 1.0, 0.0, 1.0, 1.0, 1.0]),
        np.array([0, 2, 6]),
        True,
        9,
    )
    twin = bernoulli([0.5, 0.75], 9)
    options = {"seed": 4, "record": True}
    a, b = (play(Thompson(), table, 80, **options) for table in (arms, twin))
    # The table hands its largest value to the largest uniform; a Bernoulli arm pays at the smallest.
    assert a.pulls.shape == b.pulls.shape
    for j in range(9):
        history = list(scalar_history(Thompson(), arms, 4, j, 80))
        assert a.actions[:, j].tolist() == [arm for arm, _, _ in history]


def test_seed_instance_and_wide_counts_take_part() -> None:
    arms = bernoulli([0.9, 0.5], 3)
    base = play(Random(), arms, 200, record=True)
    for other in (
        {"seed": 1 << 63},
        {"seed": 1},
        {"first_instance": 1 << 40},
        {"first_instance": (1 << 63) - 3},
    ):
        assert not np.array_equal(play(Random(), arms, 200, record=True, **other).actions, base.actions)
    plan = numba_plan.make_plan(Random(), arms, 1 << 31)
    assert (plan.spec.count, plan.spec.gain) == ("int64", "int64")


def test_interruption_passes_through() -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(Random(), bernoulli([0.9, 0.5], 3), 200, progress=stop)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (Pipe(Score("kl_ucb"), Softmax()), {}, "score 'kl_ucb'.*engine='torch'"),
        (type("Other", (), {"name": "exp3"})(), {}, "policy 'exp3'.*engine='torch'"),
        (Pipe(UCB, type("Other", (), {"name": "sparsemax"})()), {}, "head 'sparsemax'.*engine='torch'"),
        (GradientBandit(head=Argmax()), {}, "head 'argmax'.*engine='torch'"),
        (GradientBandit(baseline="median"), {}, "baseline 'median'"),
        (Random(), {"dtype": "float64"}, "dtype='float64'.*engine='torch'"),
        (Random(), {"device": "cuda"}, "device='cpu'"),
    ],
)
def test_what_it_cannot_run_is_named(policy: Any, options: dict[str, Any], message: str) -> None:
    options = dict(options)
    arms = ARMS[options.pop("arms", "bernoulli")]
    with pytest.raises(EngineError, match=message):
        play(policy, arms, 10, **options)


@device
def _cubic_log2(score: Any, p: Any, q: Any) -> Any:
    return escort_log2(score, 3.0, q)


@dataclass(frozen=True)
class Cubic:
    name: ClassVar[str] = "cubic"


def test_a_registered_head_is_compiled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEVICE_HEADS, "cubic", DeviceHead(_cubic_log2, 0))
    arms = ARMS["bernoulli"]
    cubic, escort = (play(Pipe(UCB, head), arms, 100, record=True) for head in (Cubic(), Escort(3.0)))
    assert (cubic.actions == escort.actions).mean() > 0.8
    assert (cubic.actions[:5] == escort.actions[:5]).all()


def test_generated_source_lies_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arms = ARMS["bernoulli"]
    plan = numba_plan.make_plan(Random(), arms, 100)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first = numba_codegen.load_loop.__wrapped__(plan.spec)
    (source,) = tmp_path.glob("stau_rl/numba/stau_rl_loop_*.py")
    assert Path(first.py_func.__code__.co_filename) == source
    numba_codegen.load_loop.__wrapped__(plan.spec)
    assert len(list(tmp_path.rglob("*.py"))) == 1
    assert not list(tmp_path.rglob("*.tmp"))
    # A file stands where the folder should be: compile without a disk cache.
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(source))
    loose = numba_codegen.load_loop.__wrapped__(plan.spec)
    assert not Path(loose.py_func.__code__.co_filename).exists()
