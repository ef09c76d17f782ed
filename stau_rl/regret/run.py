"""The regret benchmark: policies x arms x horizon x instances x seed -> regrets at checkpoints."""

import platform
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stau_rl.agents.bandit import Policy
from stau_rl.envs.arms import Arms
from stau_rl.files.identity import first_difference, identity
from stau_rl.kernels.contract import Block
from stau_rl.machine.memory import peak_gpu_memory_mib, peak_memory_mib
from stau_rl.machine.phases import Phases
from stau_rl.machine.ranks import Ranks, current_ranks
from stau_rl.machine.report import Report
from stau_rl.machine.wake import wake_gpu
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.burnetas_katehakis import regret_constant
from stau_rl.regret.directory import RunDirectory, explained
from stau_rl.regret.files import GrowingFiles
from stau_rl.regret.parts import collect_shares, play_share, timing
from stau_rl.regret.plan import Plan, make_plan
from stau_rl.regret.result import RegretResult


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
        report: called with a policy, its instance-steps that are done, and all of them.
        phases: a clock that the caller has started, if time spent before this call is to count; `timing["phases"]` of
            the result has its split.

    Returns:
        The regrets of every policy and instance, with tables and plots.

    Raises:
        ValueError: for an argument out of range, text that does not parse, a schedule that is not legal at every step,
            an engine that cannot run a policy, or an output directory that is not free. Nothing is written then.
        ConnectionError: a process that shares the run has ended.

    Examples:
        >>> import stau_rl
        >>> policies = ["centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)"]
        >>> result = stau_rl.run_regret("bernoulli(k=10)", policies, horizon=1000, instances=64)
        >>> print(result)
        RegretResult(2 policies on bernoulli(k=10), 64 instances, 1000 steps, seed 0)
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
        plans.append(make_plan(arms, policies, horizon, instances, seed, checkpoints, baseline, engine, device, dtype))
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
        work = ranks.together(lambda: (play_share(plan, run, ranks, put, report, phases), _gpu_memory(plan, ranks)))

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


def _gpu_memory(plan: Plan, ranks: Ranks) -> float:
    """Most GPU memory, MiB, that this process has held for a plan."""
    return peak_gpu_memory_mib(ranks.device(choice.device) for choice in plan.choices)
