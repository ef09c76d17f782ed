"""Do the engines agree? Recorded histories of every engine against the float64 reference.

Run `python -m stau_rl.checks.conformance` for the table. Engines agree if their histories are equal except where
rounding decides: where two histories of an instance part, the uniform lies within `CDF_LIMIT` of a boundary between
the two arms or, for policies that take the largest of some numbers, the two arms' numbers are within `SCORE_LIMIT`
relative.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from stau_rl.agents.bandit import Policy, parse_policy
from stau_rl.checks.divergence import divergences, first_differences, history, takes_largest
from stau_rl.checks.replay import Replay, replay
from stau_rl.envs.arms import Arms, EmpiricalArms, parse_arms
from stau_rl.kernels.contract import ArmTable, Block, EngineError
from stau_rl.kernels.engines import Choice, choose_engine
from stau_rl.plugin.load import load_plugins
from stau_rl.regret.arm_table import arm_table
from stau_rl.terminal.counts import whole_number

CDF_LIMIT, SCORE_LIMIT = 2e-5, 1e-5
# A Gaussian reward is a quantile that compiled engines take in float32; in standard deviations.
REWARD_LIMIT = 1e-5

REFERENCE = "torch float64"
ENGINES = ("torch float32", "numba")
POLICIES = (
    "centred_ucb | softmax(beta=1)",
    "centred_ucb | softmax(beta=64)",
    "centred_ucb | s_tau(tau=5)",
    "centred_ucb | s_tau(tau=88.7)",
    "ucb | s_tau(tau=5)",
    "mean | escort(p=2)",
    "reward_centred_ucb | clamp_power(tau=15)",
    "reward_centred_ucb(offset=-1) | s_tau(tau=5)",
    "mean | softplus_norm",
    "ucb | sigmoid_norm",
    "ucb1",
    "greedy",
    "eps_greedy",
    "thompson",
    "boltzmann_gumbel",
    "ucb1_tuned",
    "ucb_v",
    "moss",
    "moss_anytime",
    "kl_ucb",
    "kl_ucb_plus",
    "imed",
    "bayes_ucb",
    "gradient_bandit(baseline=mean_before)",
    "gradient_bandit(head=s_tau(tau=2))",
    "random",
    "centred_ucb | softmax(beta=4*log(t))",
    "centred_ucb | s_tau(tau=1+5*log(t))",
    "centred_ucb(offset=2) | s_tau(tau=5)",
    "ucb(offset=-3) | s_tau(tau=5)",
)
ARMS = ("bernoulli(k=10)", "gaussian(k=10)")
TABLE = {"a": (0.0, 0.5, 1.0), "b": (-0.3, 0.1, 0.2, 2.5, 0.7), "c": (0.25,), "d": (0.9, -1.1, 0.4, 0.4, 3.0, 0.8, 0.1)}


def conformance(
    policies: Sequence[str | Policy],
    arms: Sequence[str | Arms],
    engines: Sequence[str],
    *,
    instances: int = 1000,
    horizon: int = 1000,
    seed: int = 0,
    reference: str = REFERENCE,
) -> pd.DataFrame:
    """Play the same instances on several engines and judge where their histories part.

    Args:
        policies: texts or `Policy`.
        arms: texts or `Arms`.
        engines: such as `numba`, `torch float32` or `torch float32 cuda`: an engine, a type, a device.
        instances: instances per row.
        horizon: steps per instance.
        seed: in [0, 2^64).
        reference: the engine that the others are held against.

    Returns:
        A row per arms, policy and engine with the columns `policy`, `arms`, `engine`; `instances`, 0 where the engine
        cannot run the policy; `identical`, the share of equal histories; `largest_distance` of a first difference
        (see `stau_rl.checks.divergence`) and its `limit`; `reward_error`, the largest difference of a reward up to
        there, in standard deviations of Gaussian rewards, infinite for any other reward that differs at all; and
        `worst_violation`, by how much distance or reward error exceed their limits, 0 where the engines agree.

    Raises:
        ValueError: for text that does not parse, an unknown engine, type or device.
    """
    rows = []
    for cell in (parse_arms(text) if isinstance(text, str) else text for text in arms):
        table = arm_table(cell, seed, 0, instances)
        for policy in (parse_policy(text) if isinstance(text, str) else text for text in policies):
            expected = play(policy, table, choose(reference, policy, table, horizon), seed, horizon)
            for name in engines:
                row: dict[str, object] = {"policy": str(policy), "arms": str(cell), "engine": name, "instances": 0}
                try:
                    choice = choose(name, policy, table, horizon)
                except EngineError:
                    rows.append(row)
                    continue
                rows.append(row | judge(policy, table, seed, expected, play(policy, table, choice, seed, horizon)))
    return pd.DataFrame(rows)


def choose(name: str, policy: Policy, table: ArmTable, horizon: int) -> Choice:
    """The engine, type and device named by words such as `torch float32 cuda`; errors as in `choose_engine`."""
    engine, *rest = name.split() or [name]
    dtypes = [word for word in rest if word.startswith("float")]
    devices = [word for word in rest if not word.startswith("float")]
    if len(dtypes) > 1 or len(devices) > 1:
        raise ValueError(f"engine {name!r}: expected an engine and at most one type and one device")
    return choose_engine(
        policy,
        table,
        horizon,
        engine,
        device=devices[0] if devices else "auto",
        dtype=dtypes[0] if dtypes else "auto",
    )


def play(policy: Policy, table: ArmTable, choice: Choice, seed: int, horizon: int) -> Block:
    """A recorded block of the instances 0, 1, ... of `table`."""
    block: Block = choice.engine.simulate(
        policy,
        table,
        seed=seed,
        first_instance=0,
        horizon=horizon,
        checkpoints=np.array([horizon], dtype=np.int64),
        dtype=choice.dtype,
        device=choice.device,
        record=True,
    )
    return block


def judge(policy: Policy, table: ArmTable, seed: int, expected: Block, found: Block) -> dict[str, object]:
    """Compare two recorded blocks; the numbers of one row of `conformance`, from `instances` on."""
    (_, rewards), (_, others) = history(expected), history(found)
    first = first_differences(expected, found)
    error = abs(rewards - others)[np.arange(len(rewards))[:, None] < first].max(initial=0.0)
    if table.kind == "gaussian":
        error = error / (table.sigma or 1.0)
    elif error > 0.0:
        error = np.inf
    distance = max((part.distance for part in divergences(policy, table, seed, expected, found)), default=0.0)
    limit = SCORE_LIMIT if takes_largest(policy) else CDF_LIMIT
    return {
        "instances": table.instances,
        "identical": float(np.mean(first == len(rewards))),
        "largest_distance": distance,
        "limit": limit,
        "reward_error": float(error),
        "worst_violation": max(distance - limit, float(error) - REWARD_LIMIT, 0.0),
    }


def small_table(folder: Path) -> EmpiricalArms:
    """Four empirical arms of 3, 5, 1 and 7 observations, from a file written into `folder`."""
    file = folder / "observations.csv"
    lines = [f"{arm},{reward!r}" for arm, rewards in TABLE.items() for reward in rewards]
    file.write_text("\n".join(["arm,reward", *lines, ""]), encoding="utf-8")
    return EmpiricalArms(str(file), "arm", "reward")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit code 1 if two engines do not agree, 2 for what cannot be run."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.checks.conformance", description="Do the engines agree?")
    parser.add_argument("--instances", type=whole_number, default=1000, help="instances per row")
    parser.add_argument("--horizon", type=whole_number, default=1000, help="steps per instance")
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of every draw")
    parser.add_argument(
        "--engine", "--engines", action="extend", nargs="+",
        help=f"such as triton or 'torch float32'; default: {', '.join(ENGINES)}",
    )  # fmt: skip
    parser.add_argument("--device", default="", help="where engines run that name no device, such as cuda or cpu")
    parser.add_argument("--policy", action="append", help="a policy; repeat it; default: one of each kind")
    parser.add_argument("--plugin", action="append", default=[], help="a file with heads of your own; repeat it")
    parser.add_argument(
        "--replay", type=whole_number, default=0, help="also replay one history of so many steps in float64"
    )
    given = parser.parse_args(arguments)
    try:
        load_plugins(given.plugin)
        engines = [_on(name, given.device) for name in given.engine or ENGINES]
        with tempfile.TemporaryDirectory() as folder:
            table = conformance(
                given.policy or POLICIES,
                [*ARMS, small_table(Path(folder))],
                engines,
                instances=given.instances,
                horizon=given.horizon,
                seed=given.seed,
                reference=_on(REFERENCE, given.device),
            )
        table["arms"] = table["arms"].str.replace(r"empirical\(.*", "empirical(4 arms)", regex=True)
        with pd.option_context("display.width", 250, "display.max_colwidth", 60):
            print(table.to_string(index=False, float_format="{:.4g}".format))
        wrong = bool((table["worst_violation"] > 0.0).any())
        for name in engines if given.replay else []:
            found = replay_one(name, given.seed, given.replay)
            print(f"{name}: {found}")
            wrong |= not (found.counts_equal and found.mean_error <= 1e-6 and found.largest_distance <= CDF_LIMIT)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    return int(wrong)


def _on(name: str, device: str) -> str:
    """An engine's words with a device, unless they name one."""
    named = any(not word.startswith("float") for word in name.split()[1:])
    return name if named or not device else f"{name} {device}"


def replay_one(name: str, seed: int, horizon: int) -> Replay:
    """Replay a history of instance 0: centred UCB and s^tau on three Bernoulli arms that lie close together."""
    policy = parse_policy("centred_ucb | s_tau(tau=5)")
    table = arm_table(parse_arms("bernoulli(means=[0.55, 0.5, 0.45])"), seed, 0, 1)
    return replay(policy, table, seed, 0, play(policy, table, choose(name, policy, table, horizon), seed, horizon))


if __name__ == "__main__":
    sys.exit(main())
