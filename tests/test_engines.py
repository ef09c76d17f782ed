"""Every engine against exact histories, exact expectations, published values, and the other engines.

Error rate: a comparison within 4 standard errors fails for a right engine with probability 6e-5; about 120 of them are
made here, with fixed seeds, so they either always hold or never do.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from stau_rl.agents.bandit import parse_policy
from stau_rl.checks import conformance as conform
from stau_rl.checks.conformance import conformance, judge
from stau_rl.checks.divergence import divergences
from stau_rl.envs.arms import parse_arms
from stau_rl.kernels.contract import ArmTable, Block, EngineError
from stau_rl.kernels.engines import ENGINES, choose_engine
from stau_rl.regret.arm_table import arm_table

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_bandits.json").read_text())
every_engine = pytest.mark.parametrize(
    ("engine", "dtype"), [(engine.name, dtype) for engine in ENGINES.values() for dtype in engine.dtypes if engine.cpu]
)
# The compiled engine plays 400 000 instances in the time that the reference takes for these.
INSTANCES = {"torch": 20_000, "numba": 400_000}


def _play(
    engine: str,
    dtype: str,
    policy: str,
    arms: str | ArmTable,
    horizon: int,
    instances: int = 1,
    first: int = 0,
    seed: int = 0,
    checkpoints: tuple[int, ...] = (),
    record: bool = False,
) -> Block:
    table = arms if isinstance(arms, ArmTable) else arm_table(parse_arms(arms), seed, first, instances)
    block: Block = ENGINES[engine].simulate(
        parse_policy(policy),
        table,
        seed=seed,
        first_instance=first,
        horizon=horizon,
        checkpoints=np.array(checkpoints or (horizon,), dtype=np.int64),
        dtype=dtype,
        record=record,
    )
    return block


@every_engine
@pytest.mark.parametrize("row", GOLDEN["histories"]["rows"], ids=lambda row: f"{row['policy']}-{row['instance']}")
def test_exact_histories(engine: str, dtype: str, row: dict[str, Any]) -> None:
    arms = f"bernoulli(means={row['means']})"
    found = _play(engine, dtype, row["policy"], arms, 64, first=row["instance"], seed=row["seed"], record=True)
    assert found.actions is not None
    assert found.rewards is not None
    assert found.actions[:, 0].tolist() == row["arms"]
    assert found.rewards[:, 0].tolist() == row["rewards"]


def _exact_cases() -> list[Any]:
    cases = []
    for row in GOLDEN["exact_regret"]["rows"]:
        # Centring moves neither softmax nor argmax: the exact values are equal, and so is the code of argmax.
        if row["head"].startswith("argmax") and row["centred"]:
            continue
        score = f"{'centred_' * row['centred']}ucb(c={row['c']})"
        head = {
            "softmax": f"softmax(beta={row['param']})",
            "s_tau": f"s_tau(tau={row['param']}, eps=0)",
        }.get(row["head"], "argmax")
        cases.append((f"{score} | {head}", row))
    for row in GOLDEN["exact_regret_classic"]["rows"]:
        name = {
            "eps_greedy": f"eps_greedy(eps={row.get('eps')})",
            "softmax_of_means": f"mean | softmax(beta={row.get('beta')})",
            "thompson_beta11": "thompson",
        }[row["policy"]]
        cases.append((name, row))
    for row in GOLDEN["exact_gradient_bandit"]["rows"]:
        policy = f"gradient_bandit(alpha={row['alpha']}, baseline=none)"
        cases.append((policy, {"means": [0.9, 0.8], **row}))
    return [pytest.param(policy, row, id=f"{policy}-{row['means'][0]}") for policy, row in cases]


def _near(found: np.ndarray, value: float, se: float = 0.0) -> None:
    ours, ours_se = found.mean(), found.std(ddof=1) / np.sqrt(found.size)
    assert abs(ours - value) <= 4.0 * np.hypot(ours_se, se), f"{ours} +- {ours_se}, expected {value} +- {se}"


@every_engine
@pytest.mark.parametrize(("policy", "row"), _exact_cases())
def test_exact_regrets(engine: str, dtype: str, policy: str, row: dict[str, Any]) -> None:
    exact = {int(name[1:]): value for name, value in row.items() if name[0] == "R" and name[1:].isdecimal()}
    if engine == "torch":
        # The later steps follow from the same code; the compiled engine goes the whole way.
        exact = {step: value for step, value in exact.items() if step <= 50}
    size = INSTANCES[engine]
    steps = tuple(exact)
    found = _play(
        engine, dtype, policy, f"bernoulli(means={row['means']})", steps[-1], size, seed=2024, checkpoints=steps
    )
    for place, value in enumerate(exact.values()):
        _near(found.regret[place], value)


def _published() -> list[Any]:
    gaussian, shifted = "gaussian(k=10)", "gaussian(k=10, loc=4)"
    policies = [
        ("eps_greedy(eps=0.1)", gaussian),
        # Their c sqrt(ln t / n) at c = 2 is our c sqrt(2 ln N / n) at c = sqrt(2).
        (f"ucb(c={2**0.5!r}) | argmax", gaussian),
        ("gradient_bandit(alpha=0.1, baseline=mean_including)", shifted),
        ("gradient_bandit(alpha=0.1, baseline=none)", shifted),
    ]
    rows = GOLDEN["sutton_barto_10_armed"]["rows"]
    cases = [
        (policy, arms, 1000, row["regret_at_1000"], row["optimal_at_1000"])
        for (policy, arms), row in zip(policies, rows, strict=True)
    ]
    for row in GOLDEN["kl_ucb_scenario_1"]["rows"]:
        if row["policy"] in ("ucb1", "thompson"):
            cases.append((row["policy"], "bernoulli(means=[0.9, 0.8])", 5000, row["regret"], None))
    return [pytest.param(*case, id=f"{case[0]}-{case[2]}") for case in cases]


@pytest.mark.parametrize(("policy", "arms", "horizon", "regret", "optimal"), _published())
def test_published_values(
    policy: str,
    arms: str,
    horizon: int,
    regret: tuple[float, float],
    optimal: tuple[float, float] | None,
) -> None:
    found = _play("numba", "float32", policy, arms, horizon, 20_000, seed=1)
    _near(found.regret[0], *regret)
    if optimal is not None:
        _near(found.optimal[0].astype(float), *optimal)


SOME_OF_EACH = (
    "centred_ucb | s_tau(tau=5)",
    "ucb1",
    "eps_greedy",
    "thompson",
    "gradient_bandit(baseline=mean_before)",
    "random",
)


@every_engine
@pytest.mark.parametrize(
    ("policy", "arms"), [*((policy, "gaussian(k=4)") for policy in SOME_OF_EACH), ("thompson", "bernoulli(k=2)")]
)
def test_a_history_does_not_know_its_batch(engine: str, dtype: str, policy: str, arms: str) -> None:
    first, size, steps = (1 << 32) - 500, 1000, (1, 7, 40)
    whole = _play(engine, dtype, policy, arms, 40, size, first, 3, steps, record=True)
    # Sizes 1 and 7, parts that straddle 2^32 and vector widths, and the whole in three parts.
    for start, stop in ((0, 1), (999, 1000), (496, 503), (0, 333), (333, 990), (990, 1000)):
        part = _play(engine, dtype, policy, arms, 40, stop - start, first + start, 3, steps, record=True)
        for name in ("regret", "optimal", "late_optimal", "pulls", "reward_sums", "actions", "rewards"):
            assert_array_equal(getattr(part, name), getattr(whole, name)[..., start:stop], err_msg=name)


@every_engine
@pytest.mark.parametrize("policy", SOME_OF_EACH)
def test_the_block_is_the_sum_of_its_history(engine: str, dtype: str, policy: str) -> None:
    table = arm_table(parse_arms("gaussian(k=4)"), 5, 0, 33)
    block = _play(engine, dtype, policy, table, 57, seed=5, checkpoints=(1, 20, 57), record=True)
    gaps = table.gaps()
    assert block.actions is not None
    assert block.rewards is not None
    cost = np.take_along_axis(gaps, block.actions.astype(np.int64), axis=0)
    for place, step in enumerate((1, 20, 57)):
        np.testing.assert_allclose(block.regret[place], cost[:step].sum(axis=0), rtol=1e-12, atol=1e-12)
        assert_array_equal(block.optimal[place], cost[step - 1] == 0.0)
    assert_array_equal(block.late_optimal, (cost[52:] == 0.0).sum(axis=0))
    for arm in range(4):
        assert_array_equal(block.pulls[arm], (block.actions == arm).sum(axis=0))
        sums = np.where(block.actions == arm, block.rewards, 0.0).sum(axis=0)
        np.testing.assert_allclose(block.reward_sums[arm], sums, rtol=1e-12, atol=1e-12)


@every_engine
def test_all_policies_face_the_same_luck(engine: str, dtype: str) -> None:
    # Where two policies pull the same arm at the same step, they get the same reward.
    blocks = [_play(engine, dtype, policy, "gaussian(k=4)", 50, 20, seed=8, record=True) for policy in SOME_OF_EACH]
    for block in blocks[1:]:
        same = block.actions == blocks[0].actions
        assert same.mean() > 0.1
        assert block.rewards is not None
        assert blocks[0].rewards is not None
        assert_array_equal(block.rewards[same], blocks[0].rewards[same])


@every_engine
def test_replicates_do_not_share_their_rewards(engine: str, dtype: str) -> None:
    # 30 x 40 rewards of equal arms: two equal 24-bit uniforms by chance are expected 0.04 times.
    rewards = _play(engine, dtype, "random", "gaussian(means=[0, 0, 0, 0])", 40, 30, seed=8, record=True).rewards
    assert rewards is not None
    assert len(np.unique(rewards)) >= rewards.size - 2
    assert_array_equal(
        _play(engine, dtype, "random", "gaussian(means=[0, 0, 0, 0])", 40, 30, seed=8, record=True).rewards, rewards
    )
    other = _play(engine, dtype, "random", "gaussian(means=[0, 0, 0, 0])", 40, 30, seed=9, record=True).rewards
    assert np.isin(other, rewards).mean() < 0.01


DRAWN = ["centred_ucb | s_tau(tau=5)", "gradient_bandit(baseline=mean_before)"]


def test_the_compiled_engine_agrees_over_a_thousand_steps() -> None:
    table = conformance([*DRAWN, "ucb1"], conform.ARMS, ["numba"], instances=400, horizon=1000)
    assert (table["instances"] == 400).all()
    assert (table["worst_violation"] == 0.0).all(), table.to_string()
    assert (table["identical"] >= 0.99).all(), table.to_string()


def test_all_engines_agree_on_all_kinds_of_policy(tmp_path: Path) -> None:
    arms = ["bernoulli(k=10)", conform.small_table(tmp_path)]
    policies = ["ucb | softmax(beta=64)", *DRAWN, "gradient_bandit", "eps_greedy", "thompson", "random"]
    table = conformance(policies, arms, ["numba", "torch float32"], instances=60, horizon=120)
    assert (table["instances"] == 60).all()
    assert (table["worst_violation"] == 0.0).all(), table.to_string()
    assert (table["identical"] >= 0.98).all(), table.to_string()
    assert (table.loc[table["policy"] == "random", "identical"] == 1.0).all()


def _recorded(actions: np.ndarray, block: Block, rewards: np.ndarray | None = None) -> Block:
    return Block(
        regret=block.regret,
        optimal=block.optimal,
        late_optimal=block.late_optimal,
        pulls=block.pulls,
        reward_sums=block.reward_sums,
        actions=actions,
        rewards=block.rewards if rewards is None else rewards,
    )


SCHEDULED = ["ucb | softmax(beta=4*log(t))", "gradient_bandit(head=s_tau(tau=1+log(t)))"]


@pytest.mark.parametrize("policy", [*SOME_OF_EACH, *SCHEDULED, "mean | escort(p=2)", "greedy"])
def test_a_wrong_engine_is_found_out(policy: str) -> None:
    table = arm_table(parse_arms("bernoulli(k=4)"), 0, 0, 50)
    right = _play("torch", "float64", policy, table, 30, record=True)
    assert right.actions is not None
    assert judge(parse_policy(policy), table, 0, right, right)["worst_violation"] == 0.0
    actions = right.actions.copy()
    actions[17, 31] = (actions[17, 31] + 1) % 4
    wrong = _recorded(actions, right)
    (found,) = divergences(parse_policy(policy), table, 0, right, wrong)
    assert (found.instance, found.step) == (31, 17)
    row = judge(parse_policy(policy), table, 0, right, wrong)
    assert row["identical"] == pytest.approx(0.98)
    assert row["worst_violation"] > 1e-4


def test_without_a_history_there_is_nothing_to_compare() -> None:
    table = arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 5)
    block = _play("torch", "float64", "random", table, 10)
    with pytest.raises(ValueError, match="the block holds no history; play it with record=True"):
        judge(parse_policy("random"), table, 0, block, block)


def test_a_wrong_reward_is_found_out() -> None:
    policy = parse_policy("random")
    for arms, shift, limit in (("bernoulli(k=2)", 1.0, np.inf), ("gaussian(k=2)", 1e-3, 9e-4)):
        table = arm_table(parse_arms(arms), 0, 0, 5)
        right = _play("torch", "float64", "random", table, 10, record=True)
        assert right.rewards is not None
        assert right.actions is not None
        rewards = right.rewards.copy()
        rewards[3, 2] += shift
        row = judge(policy, table, 0, right, _recorded(right.actions, right, rewards))
        assert row["identical"] == 1.0
        assert row["worst_violation"] >= limit


def test_the_distance_to_a_boundary_by_hand() -> None:
    # Before any pull all means are 0, so `mean | softmax` has cdf 1/4, 1/2, 3/4, 1 at step 0.
    table = arm_table(parse_arms("bernoulli(k=4)"), 0, 0, 40)
    policy = "mean | softmax(beta=3)"
    right = _play("torch", "float64", policy, table, 1, record=True)
    uniform = _play("torch", "float64", "random", table, 1, record=True)
    assert right.actions is not None
    assert_array_equal(right.actions, uniform.actions)
    other = _recorded(np.zeros_like(right.actions), right)
    from stau_rl.kernels.philox import closed_uniform, words

    u = closed_uniform(words(0, np.arange(40), 0, 0)[0])
    found = divergences(parse_policy(policy), table, 0, right, other)
    # To arm 0 instead of b > 0, the farthest of the boundaries 1/4, ..., b/4 is 1/4.
    assert [part.instance for part in found] == np.flatnonzero(u >= 0.25).tolist()
    for part in found:
        assert part.distance == pytest.approx(u[part.instance] - 0.25, abs=1e-12)


def test_the_distance_under_a_schedule_is_that_of_its_step() -> None:
    """Histories that part at step 9, where t = 10, as those of no engine would: the boundary is by hand."""
    table = arm_table(parse_arms("bernoulli(means=[0.6, 0.3])"), 0, 0, 20)
    policy = "mean | softmax(beta=4*log(t))"
    right = _play("torch", "float64", policy, table, 12, record=True)
    assert right.actions is not None
    assert right.rewards is not None
    actions = right.actions.copy()
    actions[9] = 1 - actions[9]
    found = divergences(parse_policy(policy), table, 0, right, _recorded(actions, right))
    assert [(part.instance, part.step) for part in found] == [(instance, 9) for instance in range(20)]
    from stau_rl.kernels.philox import closed_uniform, words

    pulled = right.actions[:9, None] == np.arange(2)[None, :, None]
    means = (right.rewards[:9, None] * pulled).sum(0) / np.maximum(pulled.sum(0), 1)
    boundary = 1.0 / (1.0 + 10.0 ** (4 * (means[1] - means[0])))
    # The second of the two steps that share the call 4.
    uniform = closed_uniform(words(0, np.arange(20), 4, 0)[2])
    assert [part.distance for part in found] == pytest.approx(abs(boundary - uniform).tolist(), abs=1e-12)


def test_histories_under_a_schedule_part_at_roundings_alone() -> None:
    """Of 4000 instances some do part, and each is judged by the head of its step."""
    (row,) = conformance(
        ["ucb | softmax(beta=60*log(t))"], ["bernoulli(k=10)"], ["torch float32"], instances=4000, horizon=300
    ).to_dict("records")
    assert 0.99 <= row["identical"] < 1.0
    assert 0.0 < row["largest_distance"] <= row["limit"]


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--instances=20", "--horizon=20", "--engine=torch float32", "--policy=ucb1", "--policy=mean | softmax"]
    assert conform.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "policy", "arms", "engine", "instances", "identical", "largest_distance", "limit", "reward_error",
        "worst_violation",
    ]  # fmt: skip
    assert len(lines) == 1 + 2 * 3
    assert sum("empirical(4 arms)" in line for line in lines) == 2


def test_the_command_takes_a_device_and_replays_a_history(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--instances=5", "--horizon=10", "--engines", "numba", "torch float32", "--device=cpu"]
    assert conform.main([*arguments, "--policy=random", "--replay=500"]) == 0
    shown = capsys.readouterr().out
    assert "numba cpu: Replay(steps=500" in shown
    assert "torch float32 cpu: Replay(steps=500" in shown
    with pytest.raises(SystemExit) as stopped:
        conform.main([*arguments, "--policy=nonsense"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("python -m stau_rl.checks.conformance: error: ")


def test_engines_say_what_they_cannot_run() -> None:
    policy, table = parse_policy("ucb1"), arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 1)
    with pytest.raises(ValueError, match=r"unknown engine 'jax'; known: auto, triton, numba, torch"):
        choose_engine(policy, table, 10, engine="jax")
    with pytest.raises(ValueError, match=r"unknown dtype 'float16'; known: auto, float32, float64"):
        choose_engine(policy, table, 10, dtype="float16")
    with pytest.raises(ValueError, match=r"unknown device 'tpu'; known: auto, cpu, cuda, cuda:N"):
        choose_engine(policy, table, 10, device="tpu")
    with pytest.raises(ValueError, match=r"device 'cuda:99' is not there: torch sees \d+ CUDA devices"):
        choose_engine(policy, table, 10, device="cuda:99")
    with pytest.raises(EngineError, match=r"engine 'numba' has no float64 scores; torch has"):
        choose_engine(policy, table, 10, engine="numba", dtype="float64")
    assert str(choose_engine(policy, table, 10, engine="torch")) == "torch cpu float64"
    assert str(choose_engine(policy, table, 10, engine="torch", dtype="float32")) == "torch cpu float32"
    with pytest.raises(ValueError, match=r"expected an engine and at most one type and one device"):
        conform.choose("torch float32 float64", policy, table, 10)


def test_auto_takes_the_compiled_engine_and_float64_the_reference() -> None:
    policy, table = parse_policy("ucb1"), arm_table(parse_arms("bernoulli(k=2)"), 0, 0, 1)
    assert str(choose_engine(policy, table, 10)) == "numba cpu float32"
    assert str(choose_engine(policy, table, 10, dtype="float64")) == "torch cpu float64"
