"""Schedules: text that reads back, values, legality from the first step to the last, and histories on every engine."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stau_rl import match_sharpness, run_regret
from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms import parse_arms
from stau_rl.heads import Softmax, SpecError, STau, parse_head
from stau_rl.kernels.contract import EngineError
from stau_rl.kernels.cpu import loop as numba_loop
from stau_rl.kernels.engines import ENGINES, choose_engine
from stau_rl.kernels.float32 import misfit
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.report import matched_controls
from stau_rl.spec.schedule import BLOCK, FUNCTIONS, MAX_DEPTH, Schedule, depends_on_t

LEGAL = ["softmax(beta=4*log(t))", "s_tau(tau=1+5*log(t))", "softmax(beta=0.5*sqrt(t))", "escort(p=1+log(1+t))"]
TABLE = arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 48)

numbers = st.floats(min_value=0.0, allow_infinity=False)
trees = st.recursive(
    st.just("t") | numbers,
    lambda part: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/", "**"]), part, part),
        st.tuples(st.just("neg"), part),
        st.tuples(st.sampled_from(["log", "log2", "exp", "sqrt"]), part),
        st.tuples(st.sampled_from(["min", "max"]), part, part),
        st.tuples(st.just("max"), part, part, part),
    ),
    max_leaves=12,
)


def play(policy: str, engine: str = "numba", horizon: int = 400, table: Any = TABLE, **options: Any) -> Any:
    options = {"dtype": ENGINES[engine].dtypes[0], "record": True, **options}
    return ENGINES[engine].simulate(
        parse_policy(policy),
        table,
        seed=3,
        first_instance=0,
        horizon=horizon,
        checkpoints=np.array([horizon]),
        **options,
    )


@pytest.mark.parametrize(
    ("text", "t", "value"),
    [
        ("4*log(t)", 1, 0.0),
        ("4*log(t)", 10, 4 * math.log(10)),
        ("1+2*3-t", 2, 5.0),
        ("2-1-t", 3, -2.0),
        ("2-(1-t)", 3, 4.0),
        ("12/t/2", 3, 2.0),
        ("-t**2", 3, -9.0),
        ("2**-t", 2, 0.25),
        ("2**t**2", 2, 16.0),
        ("(2**t)**3", 2, 64.0),
        ("min(t, 3, 7)+max(t, 4)", 5, 8.0),
        ("log2(t)+sqrt(t)+exp(0*t)", 4, 5.0),
        ("+t", 6, 6.0),
    ],
)
def test_value(text: str, t: int, value: float) -> None:
    assert Schedule.parse(text).at(t) == pytest.approx(value, rel=1e-15, abs=0)


@settings(max_examples=300, deadline=None)
@given(trees.filter(depends_on_t))
def test_any_expression_reads_back(tree: Any) -> None:
    schedule = Schedule(tree)
    again = Schedule.parse(str(schedule))
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert str(again) == str(schedule)


@settings(max_examples=100, deadline=None)
@given(trees)
def test_python_reads_the_text_alike(tree: Any) -> None:
    """The text means to Python what the tree means here: precedence and grouping are Python's."""
    schedule = Schedule(tree)
    names = {**FUNCTIONS, "t": np.float64(7.0), "__builtins__": {}}
    with np.errstate(all="ignore"):
        # Constants as NumPy numbers, so that 1/0 is infinity there too.
        expected = eval(_as_numpy(str(schedule)), {**names, "n": np.float64})
    np.testing.assert_array_equal(schedule(np.array([7.0])), [expected])


def _as_numpy(text: str) -> str:
    import ast

    class Wrap(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            return ast.Call(ast.Name("n", ast.Load()), [node], [])

    return ast.unparse(ast.fix_missing_locations(Wrap().visit(ast.parse(text, mode="eval"))))


@pytest.mark.parametrize("text", [*LEGAL, "s_tau(tau=2, eps=1/t)", "softmax(beta=t)"])
def test_a_head_with_a_schedule_reads_back_and_is_legal_from_the_first_step(text: str) -> None:
    head = parse_head(text)
    assert parse_head(str(head)) == head
    assert str(head) == text
    assert len(head.schedules) == 1
    assert not head.at(1).schedules
    head.check_steps(10**6)


def test_a_head_of_one_step_has_numbers() -> None:
    head = parse_head("s_tau(tau=1+5*log(t), eps=1/t)")
    assert head.at(1) == STau(1.0, 1.0)
    assert head.at(8) == STau(1 + 5 * math.log(8), 0.125)
    constant = Softmax(2.0)
    assert constant.at(5) is constant
    with pytest.raises(ValueError, match="counted from t = 1, got 0"):
        head.at(0)


@pytest.mark.parametrize(
    ("text", "plain"), [("softmax(beta=2*3)", "softmax(beta=6)"), ("escort(p=sqrt(16)/-(-2))", "escort(p=2)")]
)
def test_a_constant_expression_is_a_number(text: str, plain: str) -> None:
    assert str(parse_head(text)) == plain
    assert parse_head(text) == parse_head(plain)


def test_constant_expressions_are_numbers_everywhere() -> None:
    assert str(parse_arms("bernoulli(means=[1/2, 2**-2])")) == "bernoulli(means=[0.5, 0.25])"
    assert str(parse_policy("ucb(c=1/4) | argmax")) == "ucb(c=0.25) | argmax"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("softmax(beta=-t)", r"softmax: beta must be finite and >= 0 at every step, got -t = -1 at t = 1"),
        ("s_tau(tau=log(t))", r"s_tau: tau must be finite and >= 1 at every step, got log\(t\) = 0 at t = 1"),
        ("escort(p=log(t))", r"escort: p must be finite and > 0 at every step, got log\(t\) = 0 at t = 1"),
        ("softmax(beta=1/(t-1))", r"got 1/\(t-1\) = inf at t = 1"),
        ("softmax(beta=1/0)", "'1 / 0' is inf, not a finite number"),
        ("softmax(beta=log(1, t))", "log takes one argument"),
        ("softmax(beta=max(t))", "max takes two or more arguments"),
        ("softmax(beta=sin(t))", r"beta must be a number or an expression of t, got sin\(...\)"),
        ("softmax(beta=2*sin(t))", r"'sin\(t\)' is no part of an expression of t"),
        ("softmax(beta=t+x)", "'x' is no part of an expression of t"),
        ("softmax(beta=t//2)", "'t // 2' is no part of an expression of t"),
        ("softmax(beta=t+1j)", "'1j' is no part of an expression of t"),
        ("softmax(beta=t.real*2)", r"'t\.real' is no part of an expression of t"),
        ("softmax(beta=t*1e999)", "a number beyond the range of float64"),
        (f"softmax(beta={'1+' * MAX_DEPTH}t)", f"nested deeper than {MAX_DEPTH}"),
    ],
)
def test_an_error_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_head(text)


@pytest.mark.parametrize("text", ["thompson(sigma=1/t)", "kl_ucb(c=log(t))", "boltzmann_gumbel(c=1/t)"])
def test_other_parameters_take_no_schedule(text: str) -> None:
    with pytest.raises(SpecError, match=r"must be a number, got .*, which changes with t"):
        parse_policy(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("4+4", "does not depend on t"), ("", "cannot read"), ("t t", "cannot read"), ("t" * 9000, "longer than 2000")],
)
def test_python_spelling_errors(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule.parse(text)


def test_values_do_not_depend_on_who_asks() -> None:
    schedule = Schedule.parse("log(t)*sqrt(t)+exp(1/t)-t**0.3")
    whole = schedule.steps(1, 5 * BLOCK)
    for first, last in ((1, 1), (2, 900), (BLOCK - 1, BLOCK), (BLOCK, 2 * BLOCK), (77, 4 * BLOCK + 5)):
        assert np.array_equal(schedule.steps(first, last), whole[first - 1 : last])
    assert [schedule.at(t) for t in (1, 1023, 1024, 3000)] == [whole[t - 1] for t in (1, 1023, 1024, 3000)]
    np.testing.assert_allclose(whole, schedule(np.arange(1, 5 * BLOCK + 1)), rtol=1e-14)


def test_a_million_steps_are_finite() -> None:
    for text in LEGAL:
        (schedule,) = parse_head(text).schedules.values()
        values = schedule.steps(1, 10**6)
        assert values.shape == (10**6,)
        assert np.isfinite(values).all()


@pytest.mark.parametrize("engine", ["torch", "numba"])
@pytest.mark.parametrize(("score", "head"), [("centred_ucb", "softmax(beta=3{})"), ("ucb", "s_tau(tau=5.5{})")])
def test_a_schedule_that_stands_still_is_the_constant(engine: str, score: str, head: str) -> None:
    moving, still = (play(f"{score} | {head.format(tail)}", engine) for tail in ("+0*t", ""))
    assert np.array_equal(moving.actions, still.actions)
    assert np.array_equal(moving.rewards, still.rewards)


POLICIES = [
    *(f"{score} | {head}" for score, head in zip(("centred_ucb", "ucb", "mean", "ucb"), LEGAL, strict=True)),
    "ucb | s_tau(tau=3+log(t), eps=1/t)",
    "gradient_bandit(alpha=0.2, head=softmax(beta=1+1/t))",
]
# The parameter of a score or policy changes -> what stands still instead at the first value.
CHANGING = {
    "ucb(c=1/sqrt(t)) | argmax": "ucb(c=1) | argmax",
    "centred_ucb(c=log(t)/5, offset=-t) | softmax(beta=9)": "centred_ucb(c=0) | softmax(beta=9)",
    "reward_centred_ucb(c=0.3+1/t) | s_tau(tau=2+log(t))": "reward_centred_ucb(c=1.3) | s_tau(tau=2+log(t))",
    "centred_ucb(offset=1-log(t)) | s_tau(tau=5)": "centred_ucb(offset=1) | s_tau(tau=5)",
    "ucb(c=1/t, offset=2/t) | escort(p=2)": "ucb(offset=2) | escort(p=2)",
    "eps_greedy(eps=min(1, 9/t))": "eps_greedy(eps=1)",
}


@pytest.mark.parametrize("policy", POLICIES)
def test_engines_agree(policy: str) -> None:
    exact, compiled = play(policy, "torch"), play(policy, "numba")
    # A uniform within a float32 rounding of a boundary of the CDF may decide otherwise, at about one step in 10^5.
    assert (exact.actions == compiled.actions).all(axis=0).mean() >= 0.95
    # And the schedule takes part: frozen at its first value it gives other histories.
    pipe = parse_policy(policy)
    frozen = str(pipe).replace(str(pipe.head), str(pipe.head.at(1)))
    assert not np.array_equal(play(frozen, "torch").actions, exact.actions)


@pytest.mark.parametrize("policy", CHANGING)
def test_engines_agree_where_a_score_or_eps_changes(policy: str) -> None:
    exact, compiled = play(policy, "torch"), play(policy, "numba")
    assert (exact.actions == compiled.actions).all(axis=0).mean() >= 0.95
    assert not np.array_equal(play(CHANGING[policy], "torch").actions, exact.actions)


def test_a_changing_score_is_that_of_its_step() -> None:
    """Step by step in plain float64: c and offset of step t = N + 1 decide after N steps."""
    policy = "ucb(c=2/t, offset=log(t)) | escort(p=2)"
    got = play(policy, "torch", horizon=60, table=arm_table(parse_arms("gaussian(k=3)"), 0, 0, 1))
    from stau_rl.kernels.philox import ACTION_REWARD, closed_uniform, words

    counts, sums = np.zeros(3), np.zeros(3)
    for step, (arm, reward) in enumerate(zip(got.actions[:, 0], got.rewards[:, 0], strict=True)):
        if step >= 3:
            u = closed_uniform(words(3, np.array([0]), step >> 1, ACTION_REWARD)[2 * (step & 1)])[0]
            bounds = sums / counts + 2 / (step + 1) * np.sqrt(2 * math.log(step) / counts) + math.log(step + 1)
            weights = bounds**2
            assert arm == np.argmax(np.cumsum(weights) > u * weights.sum())
        counts[arm] += 1
        sums[arm] += reward


def test_eps_of_the_step_is_the_share_that_explores() -> None:
    """eps = 1 up to step 9 and 0 from step 10 on: uniform arms, then what greedy does from there."""
    sharp = play("eps_greedy(eps=min(1, max(0, 10-t)))", "torch", horizon=40)
    assert np.array_equal(sharp.actions[:9], play("eps_greedy(eps=1)", "torch", horizon=40).actions[:9])
    means = np.zeros((2, *sharp.actions.shape))
    for arm in (0, 1):
        pulled = sharp.actions == arm
        means[arm] = np.cumsum(sharp.rewards * pulled, 0) / np.maximum(np.cumsum(pulled, 0), 1)
    chosen = np.take_along_axis(means[:, 8:-1], sharp.actions[None, 9:].astype(np.int64), 0)[0]
    np.testing.assert_array_equal(chosen, means[:, 8:-1].max(0))


@pytest.mark.parametrize(
    ("policy", "name"),
    [("centred_ucb(offset=log(t)) | s_tau(tau=5)", "offset=log(t)"), ("eps_greedy(eps=1/t)", "eps=1/t")],
)
def test_a_schedule_that_an_engine_lacks_is_named_and_goes_to_torch(
    policy: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = parse_policy(policy)
    why = f"the triton engine has no schedule for {name.split('=')[0]}, got {name} in {policy}"
    with pytest.raises(EngineError, match=re.escape(f"{why}; engine='torch' runs it")):
        ENGINES["triton"].check(parsed, TABLE, 50)
    # On a GPU, where numba does not run, auto takes torch and says why.
    monkeypatch.setattr("stau_rl.kernels.engines.find_device", lambda *_: "cuda")
    monkeypatch.setattr("stau_rl.kernels.engines.Engine.require", lambda *_: None)
    choice = choose_engine(parsed, TABLE, 50)
    assert (str(choice), choice.note) == ("torch cuda float64", why)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ucb(c=1-t/10) | argmax", r"ucb: c must be finite and >= 0 at every step, got 1-t/10 = -0.1 at t = 11"),
        (
            "ucb(offset=log(11-t)) | argmax",
            r"ucb: offset must be finite at every step, got log\(11-t\) = -inf at t = 11",
        ),
        ("eps_greedy(eps=t/10)", r"eps must be finite and >= 0 and <= 1 at every step, got t/10 = 1.1 at t = 11"),
    ],
)
def test_schedules_of_scores_are_checked_over_the_horizon(text: str, message: str) -> None:
    assert choose_engine(parse_policy(text), TABLE, 10, engine="torch").engine.name == "torch"
    with pytest.raises(ValueError, match=message):
        choose_engine(parse_policy(text), TABLE, 11, engine="torch")


def test_a_score_with_a_schedule_reads_back_and_has_no_values_of_its_own() -> None:
    policy = parse_policy("centred_ucb(c=1/t, offset=-log(t)) | argmax")
    assert parse_policy(str(policy)) == policy
    assert str(policy.score) == "centred_ucb(c=1/t, offset=-log(t))"
    assert str(policy.score.at(4)) == f"centred_ucb(c=0.25, offset={-math.log(4)!r})"
    with pytest.raises(ValueError, match=r"changes with t; score.at\(t\)"):
        policy.score.fixed(policy.score.c)


def test_float32_is_judged_at_the_worst_step_of_a_score() -> None:
    """An offset far below 0 makes s^tau steep, one far above it makes a score long; either end may be the worst."""
    head = "s_tau(tau=90)"
    for offset, fits in (("-30", False), ("0", True), ("30", True), ("30-t", False), ("t/50", True)):
        why = misfit(parse_policy(f"centred_ucb(c=0.1, offset={offset}) | {head}"), TABLE, 60)
        assert (why == "") is fits, offset


def test_a_changing_head_is_that_of_its_step() -> None:
    """Step by step in plain float64: the head of step t decides at step t, counted from 1."""
    got = play(
        "mean | softmax(beta=5*log(t))", "torch", horizon=60, table=arm_table(parse_arms("gaussian(k=3)"), 0, 0, 1)
    )
    from stau_rl.kernels.philox import ACTION_REWARD, closed_uniform, words

    counts, sums = np.zeros(3), np.zeros(3)
    for step, (arm, reward) in enumerate(zip(got.actions[:, 0], got.rewards[:, 0], strict=True)):
        u = closed_uniform(words(3, np.array([0]), step >> 1, ACTION_REWARD)[2 * (step & 1)])[0]
        weights = np.exp(5 * math.log(step + 1) * sums / np.maximum(counts, 1))
        assert arm == np.argmax(np.cumsum(weights) > u * weights.sum())
        counts[arm] += 1
        sums[arm] += reward


def test_history_does_not_depend_on_the_length_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play(POLICIES[0])
    monkeypatch.setattr(numba_loop, "SCHEDULED_STEPS", 7)
    parts = play(POLICIES[0])
    assert np.array_equal(parts.actions, whole.actions)
    assert np.array_equal(parts.regret, whole.regret)


def test_a_vanishing_eps_goes_to_the_reference_engine() -> None:
    policy = parse_policy("ucb | s_tau(tau=2, eps=exp(-t))")
    assert choose_engine(policy, TABLE, 50).engine.name == "numba"
    assert choose_engine(policy, TABLE, 500).engine.name == "torch"
    with pytest.raises(ValueError, match=r"eps=exp\(-t\); engine='torch' runs it"):
        choose_engine(policy, TABLE, 500, engine="numba")


def test_the_whole_horizon_is_checked_before_anything_is_written(tmp_path: Any) -> None:
    policies = ["random", "ucb | softmax(beta=7000-t)"]
    assert run_regret("bernoulli(k=2)", policies, horizon=7000, instances=1, out=tmp_path / "good").regret.shape[0] == 2
    with pytest.raises(ValueError, match=r"softmax: beta must .* got 7000-t = -1 at t = 7001"):
        run_regret("bernoulli(k=2)", policies, horizon=10**5, instances=1, out=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()


def test_what_needs_one_head_refuses_a_schedule() -> None:
    head = parse_head("softmax(beta=t)")
    for call in (
        lambda: head.weights(torch.ones(3)),
        lambda: head.log_weights(torch.ones(3)),
        lambda: head.slope_at_zero(),
        lambda: match_sharpness(head, "s_tau"),
        lambda: match_sharpness(STau(), head),
    ):
        with pytest.raises(ValueError, match=r"softmax\(beta=t\) changes with t.*head.at\(t\)"):
            call()
    assert match_sharpness(head.at(4), "softmax") == Softmax(4.0)


def test_a_changing_head_has_no_matched_control() -> None:
    policies = ["ucb | softmax(beta=4)", "ucb | softmax(beta=4*log(t))", "ucb | s_tau(tau=1+log(t))"]
    assert matched_controls(policies) == {}
    twin = f"ucb | {match_sharpness(Softmax(4.0), 's_tau')}"
    assert matched_controls([*policies, twin]) == {twin: policies[0]}


def test_only_steps_that_are_played_count() -> None:
    """Steps are t = 1, 2, ..., T: 10 - t is legal up to t = 10, where beta is 0, and negative from 11 on."""
    for horizon in (5, 10):
        result = run_regret("bernoulli(k=2)", ["ucb | softmax(beta=10-t)"], horizon, 4, engine="torch")
        assert np.isfinite(result.regret).all()
    for engine in ("torch", "numba"):
        with pytest.raises(ValueError, match=r"must be finite and >= 0 at every step, got 10-t = -1 at t = 11"):
            run_regret("bernoulli(k=2)", ["ucb | softmax(beta=10-t)"], 11, 4, engine=engine)
    # Whoever chooses an engine plays, so the choice looks at every step too.
    table = arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 1)
    assert choose_engine(parse_policy("ucb | softmax(beta=exp(t))"), table, 100, engine="torch").engine.name == "torch"
    with pytest.raises(ValueError, match=r"got exp\(t\) = inf at t = 710"):
        choose_engine(parse_policy("gradient_bandit(head=softmax(beta=exp(t)))"), table, 2000, engine="torch")
