"""The regret benchmark: policies x arms x horizon x instances x seed -> regrets at checkpoints."""

import os
import platform
import resource
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl import __version__
from stau_rl.agents.bandit import Policy, parse_policy
from stau_rl.envs.arms import Arms, parse_arms
from stau_rl.files.identity import first_difference, identity
from stau_rl.kernels.contract import Block
from stau_rl.kernels.engines import Choice, choose_engine
from stau_rl.kernels.philox import split_seed
from stau_rl.machine.phases import Phases
from stau_rl.machine.ranks import Ranks, current_ranks
from stau_rl.machine.stamp import current_commit
from stau_rl.machine.wake import wake_gpu
from stau_rl.plugin.plugin_head import plugin_hashes
from stau_rl.regret.burnetas_katehakis import regret_constant
from stau_rl.regret.directory import RunDirectory, explained
from stau_rl.regret.files import FORMAT, GrowingFiles
from stau_rl.regret.parts import Plan, Report, arm_table, collect_shares, play_share, timing
from stau_rl.regret.result import RegretResult

ARM_STEPS_PER_PART = 2 * 10**8
SMALLEST_PART, LARGEST_PART = 1024, 65536
CUDA_PART = 1 << 18
MAX_INSTANCES, MAX_HORIZON = 1 << 40, 1 << 32
PER_DECADE = 8


def run_regret(
    arms: str | Arms,
    policies: Sequence[str | Policy],
    horizon: int,
    instances: int,
    seed: int = 0,
    checkpoints: Sequence[int] | None = None,
    baseline: str | Policy | None = None,
    engine: str = "auto",
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    dtype: str = "auto",
    report: Report | None = None,
    phases: Phases | None = None,
) -> RegretResult:
    """Play every policy on the same instances with the same luck.

    Under torchrun the processes share the work (`stau_rl.machine.ranks`): all make the same call and get the result.

    Args:
        arms: such as `bernoulli(k=10)`; text or `Arms`.
        policies: such as `centred_ucb | s_tau(tau=5)` or `thompson`; texts or `Policy`, all different.
        horizon: steps per instance T, in [1, 2^32].
        instances: independent replicates n, in [1, 2^40].
        seed: in [0, 2^64). Instance i's history depends on (seed, i), the arms and the policy alone.
        checkpoints: steps in [1, T] at which regrets are kept; by default about eight per decade and T.
        baseline: the policy that differences are taken from; by default the first. It must be among `policies`.
        engine: `triton`, `numba`, `torch` or `auto`, which takes for each policy the first that runs it.
        device: `cpu`, `cuda`, `cuda:N` or `auto`. Processes that share a run take the devices of `cuda` in turn.
        out: a run directory to fill; it must not exist, be empty, or hold this same run. Processes that share a run
            need one that all of them see.
        resume: continue (or just load) the run in `out`.
        dtype: type of the scores, `float32`, `float64` or `auto`, the engine's own.
        report: called as the work goes on.
        phases: a clock that the caller has started, if time spent before this call is to count; `timing["phases"]` of
            the result has its split.

    Returns:
        The regrets of every policy and instance, with tables and plots.

    Raises:
        ValueError: for an argument out of range, text that does not parse, a schedule that is not legal at every step,
            an engine that cannot run a policy, or an output directory that is not free. Nothing is written then.
        ConnectionError: a process that shares the run has ended.
    """
    phases = phases or Phases()
    ranks = current_ranks()
    if ranks.size > 1 and out is None:
        raise ValueError(f"{ranks.size} processes share this run and need out, a directory that all of them see")
    if resume and out is None:
        raise ValueError("resume needs out, the directory of the run to continue")
    if isinstance(device, str) and isinstance(engine, str):
        wake_gpu(device, engine)
    plans: list[Plan] = []

    def prepare() -> dict[str, Any]:
        plans.append(_plan(arms, policies, horizon, instances, seed, checkpoints, baseline, engine, device, dtype))
        return identity(plans[0].spec)

    _check_same(ranks.together(prepare))
    plan = plans[0]
    run = None if out is None else _open(out, plan.spec, resume, ranks)
    try:
        if run is not None:
            # What a resumed run says of commit, versions and device stays what it said at first.
            spec = run.spec if baseline is None else run.spec | {"baseline": plan.spec["baseline"]}
            plan = replace(plan, spec=spec)
        if run is not None and run.finished:
            found = run.load(RegretResult)
            found.spec["baseline"] = plan.spec["baseline"]
            return found
        result = _play(plan, run, ranks, report, phases)
        if result is None:
            assert run is not None
            return run.load(RegretResult)
        return result
    except Exception:
        # A plug-in that fails, say, leaves no folder behind where nothing was played; Ctrl-C does, for a resumption.
        if run is not None:
            run.abandon()
        raise
    finally:
        if run is not None:
            run.close()


def _plan(
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
    arms = parse_arms(arms) if isinstance(arms, str) else arms
    if not isinstance(arms, Arms):
        raise ValueError(f"arms must be a text or Arms, got {arms!r}")
    if not isinstance(device, str):
        raise ValueError(f"device must be a text such as 'cpu' or 'cuda:0', got {device!r}")
    parsed = _check_policies(policies)
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
    spec = _spec(arms, parsed, horizon, instances, seed, steps, base, choices, plugin_hashes(parsed))
    part = part_size(arms.size, horizon, cuda=any(choice.device != "cpu" for choice in choices))
    return Plan(arms, parsed, choices, spec, part)


def _check_same(identities: list[dict[str, Any]]) -> None:
    """Refuse processes that would play different runs."""
    for rank, other in enumerate(identities):
        difference = first_difference(identities[0], other)
        if difference:
            where, here, there = difference
            raise ValueError(f"processes must share one run, but {where} is {here} in process 0 and {there} in {rank}")


def _open(out: str | Path, spec: dict[str, Any], resume: bool, ranks: Ranks) -> RunDirectory:
    """Have rank 0 take the directory and the others join it."""
    runs: list[RunDirectory] = []

    def take() -> None:
        runs.append(RunDirectory.open(out, spec, resume))

    def join() -> None:
        if not ranks.first:
            runs.append(RunDirectory.join(out, spec))

    try:
        ranks.by_first(take)
        ranks.together(join)
    except BaseException:
        for run in runs:
            run.close()
        raise
    return runs[0]


def _play(
    plan: Plan, run: RunDirectory | None, ranks: Ranks, report: Report | None, phases: Phases
) -> RegretResult | None:
    """Play this rank's parts; on rank 0 also put all together and write the files. None on other ranks."""
    result = _allocate(plan, ranks) if ranks.first else None
    with ExitStack() as stack:
        growing: GrowingFiles | None = None
        if result is not None and run is not None and ranks.size == 1:
            # The files grow while later parts are played; where several processes play, parts come in no such order.
            growing = stack.enter_context(run.growing(result))

        def grow(policy: str, first: int, block: Block) -> None:
            assert run is not None
            assert growing is not None
            with explained(run.path):
                growing.put(policy, first, block)

        put = grow if growing is not None else result.put if result is not None else None
        work = ranks.together(
            lambda: (play_share(plan, run, ranks, put, report, phases), peak_gpu_memory_mib(plan.choices, ranks))
        )

        def finish() -> None:
            assert result is not None
            phases.enter("files")
            result.timing.update(
                **timing(plan, [share for share, _ in work]),
                peak_memory_mib=peak_memory_mib(),
                host=platform.node(),
            )
            if any(choice.device != "cpu" for choice in plan.choices):
                result.timing["peak_gpu_memory_mib"] = max(peak for _, peak in work)
            if run is None:
                split = phases.seconds()
                result.timing.update(phases=split, total_seconds=sum(split.values()))
                return
            if ranks.size > 1:
                collect_shares(plan, run, ranks, result)
            run.finish(result, growing, phases)

        ranks.by_first(finish)
    return result


def _allocate(plan: Plan, ranks: Ranks) -> RegretResult:
    """A result that waits for its blocks."""
    instances, seed = plan.spec["instances"], plan.spec["seed"]
    best_mean = np.empty(instances)
    for _, first, size in plan.parts(0):
        table = plan.table(first, size, ranks)
        best_mean[first : first + size] = table.means.max(axis=0)
    fixed = arm_table(plan.arms, seed, 0, instances) if plan.arms.fixed_means is not None else None
    return RegretResult.allocate(
        plan.spec, best_mean, plan.arms.size, regret_constant(fixed) if fixed is not None else None
    )


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


def peak_memory_mib() -> float:
    """Largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0 * 1024.0) if sys.platform == "darwin" else peak / 1024.0


def peak_gpu_memory_mib(choices: list[Choice], ranks: Ranks) -> float:
    """Most memory that torch has held on this process's GPUs at once, in MiB; the driver's own is not in it."""
    devices = {ranks.device(choice.device) for choice in choices} - {"cpu"}
    if not devices:
        return 0.0
    import torch

    return sum(torch.cuda.max_memory_allocated(device) for device in devices) / 2.0**20


def _spec(
    arms: Arms,
    parsed: list[Policy],
    horizon: int,
    instances: int,
    seed: int,
    checkpoints: list[int],
    baseline: str,
    choices: list[Choice],
    plugins: dict[str, str],
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "format": FORMAT,
        "version": __version__,
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
        "versions": _versions(),
        "device_name": _device_name(choices),
    }
    notes = list(dict.fromkeys(choice.note for choice in choices if choice.note))
    if notes:
        spec["engine_note"] = "; ".join(notes)
    if told := [note for policy in parsed if (note := policy.note(arms))]:
        spec["notes"] = told
    if plugins:
        spec["plugins"] = plugins
    if arms.digest:
        spec["arms_sha256"] = arms.digest
    means: NDArray[np.float64] | None = arms.fixed_means
    if means is not None:
        spec["means"] = means.tolist()
    return spec


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("numpy", "numba", "torch", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _device_name(choices: list[Choice]) -> str:
    device = choices[0].device
    if device == "cpu":
        return f"{platform.machine()} CPU"
    import torch

    return torch.cuda.get_device_name(device)


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
