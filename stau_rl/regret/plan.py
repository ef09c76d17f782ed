"""The plan of a regret benchmark: its arguments checked, its engines chosen, its spec written."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl.agents.bandit import POLICIES, SCORES, Pipe, Policy, parse_policy
from stau_rl.envs.arms import ARMS, Arms, parse_arms
from stau_rl.heads import HEADS
from stau_rl.kernels.contract import ArmTable
from stau_rl.kernels.engines import Choice, choose_engine
from stau_rl.kernels.philox import split_seed
from stau_rl.machine.ranks import Ranks
from stau_rl.machine.stamp import current_commit, device_name, versions
from stau_rl.machine.version import VERSION
from stau_rl.plugin.plugin_head import plugin_hashes
from stau_rl.plugin.source import own_code
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.files import FORMAT

ARM_STEPS_PER_PART = 2 * 10**8
SMALLEST_PART, LARGEST_PART = 1024, 65536
CUDA_PART = 1 << 18
MAX_INSTANCES, MAX_HORIZON = 1 << 40, 1 << 32
PER_DECADE = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """A run whose settings have been checked.

    Attributes:
        arms: the arms.
        policies: the policies.
        choices: the engine of each.
        spec: the run's spec, JSON-able.
        part: instances per part; the last part of a policy may have fewer.
        tables: the arms of the parts met so far, by first instance; drawn once, as every policy meets the same arms.
    """

    arms: Arms
    policies: list[Policy]
    choices: list[Choice]
    spec: dict[str, Any]
    part: int
    tables: dict[int, ArmTable] = field(default_factory=dict)

    def table(self, first: int, size: int, ranks: Ranks) -> ArmTable:
        """The arms of a part."""
        if first not in self.tables:
            device = ranks.device(self.choices[0].device)
            self.tables[first] = arm_table(self.arms, self.spec["seed"], first, size, device)
        return self.tables[first]

    def parts(self, policy: int) -> Iterator[tuple[int, int, int]]:
        """(number, first instance, instances) of every part of a policy; numbers count over all policies."""
        instances = self.spec["instances"]
        firsts = range(0, instances, self.part)
        for number, first in enumerate(firsts, start=policy * len(firsts)):
            yield number, first, min(self.part, instances - first)


def make_plan(
    arms: str | Arms,
    policies: Sequence[str | Policy],
    horizon: int,
    instances: int,
    seed: int,
    checkpoints: Sequence[int] | None,
    baseline: str | Policy | None,
    engine: str,
    device: str,
    dtype: str,
) -> Plan:
    """Check the arguments of `stau_rl.regret.run.run_regret`, and choose the engine of every policy.

    Raises:
        ValueError: as there.
    """
    arms = parse_arms(arms) if isinstance(arms, str) else arms
    if not isinstance(arms, Arms):
        raise ValueError(f"arms must be a text or Arms, got {arms!r}")
    if not isinstance(device, str):
        raise ValueError(f"device must be a text such as 'cpu' or 'cuda:0', got {device!r}")
    parsed = _check_policies(policies)
    _check_names(arms, parsed)
    horizon = _check_count("horizon", horizon, MAX_HORIZON)
    instances = _check_count("instances", instances, MAX_INSTANCES)
    split_seed(seed)
    steps = _check_checkpoints(checkpoints, horizon)
    names = [str(policy) for policy in parsed]
    base = names[0] if baseline is None else str(parse_policy(baseline) if isinstance(baseline, str) else baseline)
    if base not in names:
        raise ValueError(f"baseline {base!r} is not among the policies ({'; '.join(names)}); add it to them")
    _check_memory(len(names), arms.size, instances, len(steps), horizon)
    sample = arm_table(arms, seed, 0, 1)
    choices = [choose_engine(policy, sample, horizon, engine, device, dtype) for policy in parsed]
    code = {"plugins": plugin_hashes(parsed), "own_code": own_code(arms, *_pieces(parsed))}
    spec = _spec(arms, parsed, horizon, instances, seed, steps, base, choices, code)
    part = part_size(arms.size, horizon, cuda=any(choice.device != "cpu" for choice in choices))
    return Plan(arms, parsed, choices, spec, part)


def part_size(arms: int, horizon: int, cuda: bool = False) -> int:
    """Instances per part of a run: about 2 10^8 arm-steps, in whole steps of 1024 up to 65 536; 2^18 on a GPU."""
    if cuda:
        return CUDA_PART
    wanted = ARM_STEPS_PER_PART // (arms * horizon)
    return min(max(SMALLEST_PART, wanted // SMALLEST_PART * SMALLEST_PART), LARGEST_PART)


def default_checkpoints(horizon: int) -> list[int]:
    """Steps 10^(i/8) up to the horizon, rounded, and the horizon itself."""
    exponents = np.arange(int(np.log10(horizon) * PER_DECADE) + 2) / PER_DECADE
    steps = np.unique(np.rint(10.0**exponents).astype(np.int64))
    return [*steps[steps < horizon].tolist(), horizon]


def _spec(
    arms: Arms,
    parsed: list[Policy],
    horizon: int,
    instances: int,
    seed: int,
    checkpoints: list[int],
    baseline: str,
    choices: list[Choice],
    code: dict[str, dict[str, str]],
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "arms": str(arms),
        "arm_labels": list(arms.labels),
        "policies": [str(policy) for policy in parsed],
        "horizon": horizon,
        "instances": instances,
        "seed": int(seed),
        "checkpoints": checkpoints,
        "engines": [str(choice) for choice in choices],
        "baseline": baseline,
        "commit": current_commit(),
        "versions": versions("numpy", "numba", "torch", "triton"),
        "device_name": device_name(choices[0].device),
    }
    notes = list(dict.fromkeys(choice.note for choice in choices if choice.note))
    if notes:
        spec["engine_note"] = "; ".join(notes)
    if told := [note for policy in parsed if (note := policy.note(arms))]:
        spec["notes"] = told
    spec |= {name: hashes for name, hashes in code.items() if hashes}
    if arms.digest:
        spec["arms_sha256"] = arms.digest
    means: NDArray[np.float64] | None = arms.fixed_means
    if means is not None:
        spec["means"] = means.tolist()
    return spec


def _check_memory(policies: int, arms: int, instances: int, checkpoints: int, horizon: int) -> None:
    """Refuse a result that this machine cannot hold, before anything is written."""
    pulls = 4 if horizon <= np.iinfo(np.int32).max else 8
    needed = instances * (policies * (9 * checkpoints + pulls * arms + 8) + 8)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ValueError(
            f"{instances} instances of {policies} policies at {checkpoints} checkpoints need {needed / 2**30:.3g} GiB "
            f"for their result, this machine has {memory / 2**30:.3g}; ask for fewer"
        )


def _check_policies(policies: Sequence[str | Policy]) -> list[Policy]:
    if isinstance(policies, (str, Policy)) or not isinstance(policies, Iterable):
        raise ValueError(f"policies must be a list of texts or Policy objects, got {policies!r}")
    policies = list(policies)
    if not policies:
        raise ValueError("policies must name at least one policy, got none")
    parsed = [parse_policy(policy) if isinstance(policy, str) else policy for policy in policies]
    seen: set[str] = set()
    for policy in parsed:
        if not isinstance(policy, Policy):
            raise ValueError(f"policies must be texts or Policy objects, got {policy!r}")
        if str(policy) in seen:
            raise ValueError(f"policy {str(policy)!r} is given twice")
        seen.add(str(policy))
    return parsed


def _pieces(policies: Sequence[Policy]) -> list[object]:
    """Policies with their scores and heads."""
    return [part for policy in policies for part in (policy, policy.score, policy.head) if part is not None]


def _check_names(arms: Arms, policies: Sequence[Policy]) -> None:
    """Refuse what bears the name of another: engines would play that one, and tables would tell of it."""
    known: dict[str, Mapping[str, type]] = {
        "arms": ARMS, "policy": {**POLICIES, Pipe.name: Pipe}, "score": SCORES, "head": HEADS
    }  # fmt: skip
    given: list[tuple[str, Any]] = [("arms", arms)]
    for policy in policies:
        given += [("policy", policy), ("score", policy.score), ("head", policy.head)]
    for family, one in given:
        builtin = None if one is None else known[family].get(one.name)
        if builtin is not None and builtin is not type(one):
            raise ValueError(
                f"{family} {type(one).__qualname__} of {type(one).__module__} is called {one.name!r}, as the built-in "
                f"{builtin.__qualname__} is; give the class a name of its own"
            )


def _check_count(name: str, value: int, largest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= largest:
        raise ValueError(f"{name} must be a whole number in [1, {largest}], got {value!r}")
    return int(value)


def _check_checkpoints(checkpoints: Sequence[int] | None, horizon: int) -> list[int]:
    if checkpoints is None:
        return default_checkpoints(horizon)
    if isinstance(checkpoints, str) or not isinstance(checkpoints, Iterable):
        raise ValueError(f"checkpoints must be a list of steps, got {checkpoints!r}")
    steps = sorted({_check_count("every checkpoint", step, horizon) for step in checkpoints})
    if not steps:
        raise ValueError("checkpoints must name at least one step, got none")
    return steps
