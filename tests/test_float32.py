"""What float32 scores can hold: who is refused, who gets float64 scores, and that seeds and instances have no say."""

from typing import Any

import numpy as np
import pytest
import torch

from stau_rl.agents.bandit import parse_policy
from stau_rl.agents.bandit.policy import Policy
from stau_rl.checks.conformance import conformance
from stau_rl.envs.arms import parse_arms
from stau_rl.kernels.contract import ArmTable, Block, EngineError
from stau_rl.kernels.cpu import plan as numba_plan
from stau_rl.kernels.engines import ENGINES, choose_engine
from stau_rl.kernels.float32 import Float32Error, misfit
from stau_rl.kernels.gpu import plan as triton_plan
from stau_rl.regret.arm_table import arm_table

EMPTY, NOWHERE = np.empty(0), np.empty(0, dtype=np.int64)


def lowered(text: str) -> Policy:
    return parse_policy(text).lowered()


def table_of(arms: str, instances: int = 1, seed: int = 0) -> ArmTable:
    return arm_table(parse_arms(arms), seed, 0, instances)


def play(engine: str, policy: str, table: ArmTable, horizon: int, dtype: str = "") -> Block:
    options = {"seed": 3, "first_instance": 0, "checkpoints": np.array([horizon]), "record": True}
    chosen = ENGINES[engine]
    block: Block = chosen.simulate(
        parse_policy(policy), table, horizon=horizon, dtype=dtype or chosen.dtypes[0], **options
    )
    return block


# (arms, policy, float32 holds it). Pairs lie on both sides of each limit, less than a factor of 3 apart.
SIDES = [
    # Scores that differ by 1 may be as large as 20: the rest of a float32 is for what they differ by.
    ("gaussian(k=10, loc=14)", "ucb | softmax(beta=20)", True),
    ("gaussian(k=10, loc=30)", "ucb | softmax(beta=20)", False),
    ("gaussian(k=10, loc=-30)", "ucb | softmax(beta=20)", False),
    ("gaussian(k=10, loc=30)", "centred_ucb | softmax(beta=20)", False),
    # The product counts: a soft head takes larger scores, one of a few arms larger still.
    ("gaussian(k=10, loc=30)", "ucb | softmax(beta=0.3)", True),
    ("gaussian(k=10, loc=100)", "ucb | softmax(beta=0.3)", False),
    ("gaussian(k=2, loc=100)", "ucb | softmax(beta=1)", True),
    ("gaussian(k=2, loc=250)", "ucb | softmax(beta=1)", False),
    # Two numbers of this size may still be multiplied.
    ("bernoulli(k=2)", "ucb(c=2e29) | softmax(beta=1e-31)", True),
    ("bernoulli(k=2)", "ucb(c=4e30) | softmax(beta=1e-31)", False),
    # A weight stays within 2e-5: slope times the largest score that is met.
    ("bernoulli(k=10)", "ucb | softmax(beta=256)", True),
    ("bernoulli(k=10)", "ucb | softmax(beta=512)", False),
    ("bernoulli(k=10)", "ucb(c=10) | softmax(beta=32)", True),
    ("bernoulli(k=10)", "ucb(c=10) | softmax(beta=64)", False),
    ("bernoulli(k=10)", "ucb | softmax(beta=25*log(t))", True),
    ("bernoulli(k=10)", "ucb | softmax(beta=60*log(t))", False),
    # A float32 logarithm times a power; whole powers up to 15 are multiplied out.
    ("bernoulli(k=10)", "centred_ucb | s_tau(tau=88.7)", True),
    ("bernoulli(k=10)", "centred_ucb | s_tau(tau=120)", False),
    ("bernoulli(k=10)", "mean | escort(p=99)", True),
    ("bernoulli(k=10)", "mean | escort(p=120)", False),
    # Far above 0 the slope of s^tau is tau / s, far below it is tau.
    ("gaussian(k=10, loc=900)", "ucb | s_tau(tau=5)", True),
    ("gaussian(k=10, loc=-900)", "ucb | s_tau(tau=5)", False),
    ("gaussian(k=10, loc=900)", "centred_ucb | s_tau(tau=5)", False),
    ("bernoulli(k=10)", "ucb(offset=900) | s_tau(tau=5)", True),
    ("bernoulli(k=10)", "ucb(offset=-30) | s_tau(tau=5)", False),
    # What sees no shift sees no offset.
    ("bernoulli(k=10)", "ucb(offset=1e12) | softmax", True),
    ("gaussian(k=10, loc=900)", "ucb | sigmoid_norm", True),
    ("gaussian(k=10, loc=-900)", "ucb | sigmoid_norm", False),
    ("gaussian(k=10, loc=900)", "mean | escort(p=2)", True),
    ("gaussian(k=10, loc=900)", "centred_ucb | escort(p=2)", False),
    # Ends of the format.
    ("gaussian(means=[1e19, 2e19, 0], sigma=1e18)", "mean | softmax(beta=1e20)", False),
    ("gaussian(means=[3e36, 1e36, 0], sigma=1e36)", "mean | softmax(beta=4)", False),
    ("gaussian(means=[5e29, 1e29, 0], sigma=1e28)", "mean | softmax(beta=1e-30)", True),
    ("gaussian(means=[2e30, 1e29, 0], sigma=1e28)", "mean | softmax(beta=1e-30)", False),
    ("gaussian(means=[2e-40, 1e-40], sigma=1e-40)", "mean | escort", False),
    ("gaussian(means=[2e-40, 1e-40], sigma=1e-40)", "mean | softmax(beta=1e35)", False),
    # Policies that take a largest value decide in float64.
    ("gaussian(k=10, loc=1e6)", "thompson", True),
    ("gaussian(k=10, loc=1e6)", "ucb(offset=1e12) | argmax", True),
    # Preferences: slope^2 alpha times the reward's distance from its baseline.
    ("gaussian(k=10, loc=1e6)", "gradient_bandit(alpha=0.1)", True),
    ("gaussian(k=10, scale=20)", "gradient_bandit(alpha=0.1)", False),
    ("gaussian(k=10, loc=100)", "gradient_bandit(alpha=0.1, baseline=none)", True),
    ("gaussian(k=10, loc=200)", "gradient_bandit(alpha=0.1, baseline=none)", False),
    ("gaussian(k=10, loc=200)", "gradient_bandit(alpha=0.1, baseline=mean_before)", False),
    ("gaussian(k=10)", "gradient_bandit(alpha=0.1, head=softmax(beta=2))", True),
    ("gaussian(k=10)", "gradient_bandit(alpha=0.1, head=softmax(beta=4))", False),
    # Preferences of an escort cross 0, where its slope p / H has no bound; the higher p, the less weight there.
    ("bernoulli(k=10)", "gradient_bandit(alpha=0.02, head=escort(p=1))", True),
    ("bernoulli(k=10)", "gradient_bandit(alpha=0.04, head=escort(p=1))", False),
    ("gaussian(k=10)", "gradient_bandit(alpha=0.1, head=escort(p=1))", False),
    ("bernoulli(k=10)", "gradient_bandit(alpha=0.1, head=escort(p=2))", True),
    ("bernoulli(k=10)", "gradient_bandit(alpha=0.3, head=escort(p=2))", False),
    ("bernoulli(k=10)", "gradient_bandit(alpha=0.3, head=escort(p=3))", True),
    # Rewards below no baseline drive preferences apart, rounding included.
    ("gaussian(k=10, loc=-0.3, scale=0.1)", "gradient_bandit(alpha=0.1, baseline=none)", True),
    ("gaussian(k=10, loc=-0.6, scale=0.1)", "gradient_bandit(alpha=0.1, baseline=none)", False),
    ("gaussian(k=10, loc=0.6, scale=0.1)", "gradient_bandit(alpha=0.1, baseline=none)", True),
    ("gaussian(k=10, loc=-0.6, scale=0.1)", "gradient_bandit(alpha=0.1, baseline=mean_before)", True),
    ("gaussian(k=10, loc=-0.6, scale=0.1)", "gradient_bandit(alpha=0.02, baseline=none, head=s_tau(tau=3))", False),
]


@pytest.mark.parametrize(("arms", "policy", "fits"), SIDES, ids=lambda value: str(value))
def test_what_float32_holds(arms: str, policy: str, fits: bool) -> None:
    why = misfit(lowered(policy), table_of(arms), 1000)
    assert (why == "") is fits, why


@pytest.mark.parametrize(
    ("arms", "policy"),
    [
        ("gaussian(k=10, loc=15)", "ucb | softmax(beta=20)"),
        ("gaussian(k=10, loc=4)", "centred_ucb | s_tau(tau=5)"),
        ("gaussian(k=2, loc=3, scale=4)", "ucb | softmax(beta=5)"),
        ("bernoulli(k=2)", "centred_ucb(c=9) | s_tau(tau=5)"),
    ],
)
def test_neither_seed_nor_block_chooses_the_code(arms: str, policy: str) -> None:
    tables = [arm_table(parse_arms(arms), seed, first, n) for seed, first, n in ((0, 0, 1), (1, 0, 1), (2, 7, 50))]
    assert len({str(numba_plan.make_plan(lowered(policy), table, 1000)) for table in tables}) == 1
    assert len({str(triton_plan.make_plan(lowered(policy), table, 1000)) for table in tables}) == 1


@pytest.mark.parametrize(
    ("arms", "policy"),
    [
        ("gaussian(means=[900, 900.5], sigma=1)", "ucb | softmax(beta=50)"),
        ("gaussian(means=[1e19, 2e19], sigma=1e18)", "mean | softmax(beta=1e20)"),
        ("gaussian(means=[3e36, 1e36], sigma=1e36)", "mean | softmax(beta=4)"),
        ("gaussian(means=[900, 900.5], sigma=1)", "ucb(offset=-950) | s_tau(tau=7.5)"),
    ],
)
def test_float64_scores_of_the_compiled_engine(arms: str, policy: str) -> None:
    (row,) = conformance([policy], [arms], ["numba"], instances=200, horizon=200).to_dict("records")
    assert row["instances"] == 200
    assert row["identical"] >= 0.99
    assert row["worst_violation"] == 0.0
    assert "WIDE" in numba_plan.make_plan(lowered(policy), table_of(arms), 200).spec.flags


def test_ordinary_scores_stay_float32() -> None:
    for policy in ("centred_ucb | softmax(beta=64)", "centred_ucb | s_tau(tau=88.7)", "ucb | s_tau(tau=5)"):
        for arms in ("bernoulli(k=10)", "gaussian(k=10)"):
            plan = numba_plan.make_plan(lowered(policy), table_of(arms), 10**6)
            assert plan.spec.real == "float32"
            assert not triton_plan.make_plan(lowered(policy), table_of(arms), 10**6).variant.double


def test_the_reference_says_why_it_plays() -> None:
    table, policy = table_of("gaussian(k=10, scale=100)"), parse_policy("gradient_bandit")
    choice = choose_engine(policy, table, 1000, device="cpu")
    assert str(choice) == "torch cpu float64"
    assert choice.note.startswith("rewards up to 1.09e+03 from the baseline move a log weight by up to 109 at once")
    for engine in ("numba", "triton"):
        with pytest.raises(Float32Error, match=r"float32 preferences .*; engine='torch' runs it$"):
            ENGINES[engine].check(policy, table, 1000)


@pytest.mark.parametrize(
    ("arms", "policy"),
    [
        ("gaussian(k=10, loc=-3, scale=0.1, sigma=0.1)", "gradient_bandit(alpha=0.1, baseline=none)"),
        ("gaussian(k=10, loc=-3, scale=0.1, sigma=0.1)", "gradient_bandit(baseline=none, head=s_tau(tau=3))"),
        ("gaussian(k=5)", "gradient_bandit(alpha=0.4, head=escort(p=1))"),
    ],
)
def test_preferences_that_rounding_drives_apart_are_float64(arms: str, policy: str) -> None:
    table = table_of(arms, 60)
    wide, narrow = (play("torch", policy, table, 400, dtype) for dtype in ("float64", "float32"))
    assert (wide.actions == narrow.actions).all(axis=0).mean() < 0.9
    assert str(choose_engine(parse_policy(policy), table, 400, device="cpu")) == "torch cpu float64"


def test_the_reference_in_float32_is_guarded_too() -> None:
    table = table_of("gaussian(k=10, loc=900)")
    for policy in ("ucb | softmax(beta=50)", "ucb | s_tau(tau=500)", "gradient_bandit(baseline=none)"):
        with pytest.raises(EngineError, match=r"float32.*; dtype='float64' runs it$"):
            choose_engine(parse_policy(policy), table, 1000, engine="torch", dtype="float32")
    assert str(choose_engine(parse_policy("ucb | softmax(beta=0.01)"), table, 1000, "torch", "cpu", "float32"))


EVERY_KIND = [
    *("thompson", "thompson(prior_mean=1e6)", "eps_greedy", "gradient_bandit", "ucb1"),
    *("centred_ucb | s_tau(tau=5)", "mean | escort", "mean | power_norm", "gradient_bandit(baseline=mean_before)"),
]


@pytest.mark.parametrize("policy", EVERY_KIND)
@pytest.mark.parametrize("arms", ["gaussian(means=[1000000, 1000000.02, 1000000.01], sigma=0.3)", "bernoulli(k=3)"])
def test_no_whole_number_makes_the_reference_float32(policy: str, arms: str) -> None:
    """A whole tensor times a Python number has torch's default type, which must decide nothing."""
    table = table_of(arms, 50)
    plain = play("torch", policy, table, 60)
    torch.set_default_dtype(torch.float64)
    try:
        wide = play("torch", policy, table, 60)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(plain.actions, wide.actions)


def test_thompson_far_from_its_spread() -> None:
    """Two means 0.02 apart at 10^6, noise 0.1: the posteriors part after some dozens of pulls, on every engine."""
    means = np.array([[1e6], [1e6 + 0.02], [1e6], [1e6]])
    table = ArmTable("gaussian", means, 0.1, EMPTY, NOWHERE, False, 100)
    got, reference = (play(engine, "thompson(prior_mean=1e6)", table, 400) for engine in ("numba", "torch"))
    assert (got.actions == reference.actions).all(axis=0).mean() >= 0.99
    assert (reference.pulls[1] / 400).mean() > 0.4


@pytest.mark.parametrize(
    ("policy", "by_hand"),
    [
        # Precisions 4 and 6.25 weigh a prior mean of 2 against the rewards: centre and deviation after each pull.
        ("thompson(prior_mean=2, prior_sd=0.5, sigma=0.4)", (2.0, 0.5, 0.4)),
        ("thompson(prior_mean=-3, prior_sd=4, sigma=2)", (-3.0, 4.0, 2.0)),
    ],
)
def test_priors_of_thompson(policy: str, by_hand: tuple[float, float, float]) -> None:
    """Every decision is the largest of draws that are made here from the recorded rewards."""
    from scipy.special import ndtri

    from stau_rl.kernels.philox import PRIVATE, open_uniform, words

    mean, sd, sigma = by_hand
    table = ArmTable("gaussian", np.array([[0.5], [1.0], [1.5], [0.0]]), 0.7, EMPTY, NOWHERE, False, 40)
    numbers: Any = np.arange(40)
    for engine in ("numba", "torch"):
        got = play(engine, policy, table, 30)
        assert got.actions is not None
        assert got.rewards is not None
        counts, sums = np.zeros((4, 40)), np.zeros((4, 40))
        for step in range(30):
            precision = sd**-2 + counts * sigma**-2
            centre = (mean * sd**-2 + sums * sigma**-2) / precision
            z = [ndtri(open_uniform(words(3, numbers, step, PRIVATE + arm)[0])) for arm in range(4)]
            draws = centre + np.array(z) / np.sqrt(precision)
            best = np.sort(draws, axis=0)
            # Quantiles of compiled engines are float32.
            clear = best[-1] - best[-2] > 1e-5
            assert clear.mean() > 0.9
            np.testing.assert_array_equal(got.actions[step][clear], draws.argmax(0)[clear])
            counts[got.actions[step], numbers] += 1
            sums[got.actions[step], numbers] += got.rewards[step]


@pytest.mark.parametrize("offset", [1e12, -1e300])
@pytest.mark.parametrize("score", ["ucb", "centred_ucb"])
def test_an_offset_decides_nothing_for_heads_that_see_differences(score: str, offset: float) -> None:
    table = table_of("bernoulli(k=4)", 100)
    plain = play("torch", "ucb | argmax", table, 60)
    for engine in ("torch", "numba"):
        moved = play(engine, f"{score}(offset={offset}) | argmax", table, 60)
        np.testing.assert_array_equal(moved.actions, plain.actions)
    for head in ("softmax(beta=3)", "sparsemax", "entmax15", "entmax(alpha=1.3)"):
        plain, moved = (play("torch", f"{score}({given}) | {head}", table, 12) for given in ("", f"offset={offset}"))
        np.testing.assert_array_equal(moved.actions, plain.actions)


@pytest.mark.parametrize("head", ["power_norm(p=t)", "reweight(p=1+1/t)", "lssar(p=sqrt(t))"])
def test_the_guard_reads_schedules_of_every_power(head: str) -> None:
    policy = parse_policy(f"ucb | {head}")
    assert str(choose_engine(policy, table_of("bernoulli(k=3)"), 9, device="cpu")) == "torch cpu float64"
    assert misfit(policy, table_of("bernoulli(k=3)"), 9) == ""
    why = misfit(parse_policy("ucb | power_norm(p=t)"), table_of("bernoulli(k=3)"), 2000)
    assert "changes a log weight by" in why
