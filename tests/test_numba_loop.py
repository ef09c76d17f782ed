"""The compiled engine against exact histories, exact regrets and a plain float64 loop."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from numba_oracle import (
    ARMS,
    CENTRED,
    MEAN,
    POLICIES,
    UCB,
    Argmax,
    EpsGreedy,
    Escort,
    GradientBandit,
    Pipe,
    Random,
    Score,
    SigmoidNorm,
    Softmax,
    STau,
    Thompson,
    bernoulli,
    gaussian,
    play,
    scalar_history,
)
from stau_rl.kernels.contract import ArmTable, EngineError, late_start
from stau_rl.kernels.cpu import codegen as numba_codegen
from stau_rl.kernels.cpu import plan as numba_plan
from stau_rl.kernels.cpu.heads import DEVICE_HEADS, DeviceHead, escort_log2
from stau_rl.kernels.cpu.math import device

# Every policy on Bernoulli arms; each way of keeping statistics on the other rewards.
CASES = [(name, "bernoulli") for name in POLICIES] + [
    (name, kind)
    for kind in ("gaussian", "table")
    for name in ("centred s_tau", "clamp", "ucb1", "greedy", "thompson", "thompson prior", "gradient escort")
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_history_equals_the_float64_loop(name: str, kind: str) -> None:
    check_history(POLICIES[name], ARMS[kind])


@pytest.mark.parametrize("kind", ["gaussian", "table"])
@pytest.mark.parametrize("policy", [Thompson(2.0, 0.5, 0.4), Thompson(-3.0, 4.0, 2.0)], ids=["tight", "loose"])
def test_a_posterior_starts_from_its_prior(policy: Any, kind: str) -> None:
    check_history(policy, ARMS[kind])


def check_history(policy: Any, arms: ArmTable) -> None:
    horizon = 150
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


SIZES = ["centred s_tau", "ucb1", "eps_greedy", "thompson", "boltzmann_gumbel", "gradient escort"]


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
    from stau_rl.kernels.cpu import loop as numba_loop

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


@pytest.mark.parametrize(
    "name", ["centred s_tau", "ucb softmax", "ucb1", "thompson", "boltzmann_gumbel", "gradient s_tau"]
)
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
