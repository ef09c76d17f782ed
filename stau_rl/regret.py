"""The regret benchmark: policies x arms x horizon x instances x seed -> regrets at checkpoints."""

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl import __version__
from stau_rl.agents import Policy, parse_policy
from stau_rl.burnetas_katehakis import regret_constant
from stau_rl.commit import current_commit
from stau_rl.envs import Arms, EmpiricalArms, parse_arms
from stau_rl.heads import Head
from stau_rl.kernels.contract import ArmTable
from stau_rl.kernels.engines import Choice, choose_engine
from stau_rl.kernels.philox import ARM_MEAN, open_uniform, split_seed, words
from stau_rl.plugin import plugin_hashes
from stau_rl.result import RegretResult
from stau_rl.rundir import RunDirectory

FORMAT = 1
ARM_STEPS_PER_PART = 2 * 10**8
SMALLEST_PART, LARGEST_PART = 1024, 65536
CUDA_PART = 1 << 18
WRITTEN_PER_SECOND = 5e8
MAX_INSTANCES, MAX_HORIZON = 1 << 40, 1 << 32
PER_DECADE = 8

Report = Callable[[str, int, int], None]
"""Called with a policy's text, the instance-steps it has done and all it has to do."""


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
) -> RegretResult:
    """Play every policy on the same instances with the same luck.

    Args:
        arms: such as `bernoulli(k=10)`; text or `Arms`.
        policies: such as `centred_ucb | s_tau(tau=5)` or `thompson`; texts or `Policy`, all different.
        horizon: steps per instance T, in [1, 2^32].
        instances: independent replicates n, in [1, 2^40].
        seed: in [0, 2^64). Instance i's history depends on (seed, i), the arms and the policy alone.
        checkpoints: steps in [1, T] at which regrets are kept; by default about eight per decade and T.
        baseline: the policy that differences are taken from; by default the first. It must be among `policies`.
        engine: `triton`, `numba`, `torch` or `auto`, which takes for each policy the first that runs it.
        device: `cpu`, `cuda`, `cuda:N` or `auto`.
        out: a run directory to fill; it must not exist, be empty, or hold this same run.
        resume: continue (or just load) the run in `out`.
        dtype: type of the scores, `float32`, `float64` or `auto`, the engine's own.
        report: called as the work goes on.

    Returns:
        The regrets of every policy and instance, with tables and plots.

    Raises:
        ValueError: for an argument out of range, text that does not parse, a schedule that is not legal at every step,
            an engine that cannot run a policy, or an output directory that is not free. Nothing is written then.
    """
    arms = parse_arms(arms) if isinstance(arms, str) else arms
    if not isinstance(arms, Arms):
        raise ValueError(f"arms must be a text or Arms, got {arms!r}")
    if not isinstance(device, str):
        raise ValueError(f"device must be a text such as 'cpu' or 'cuda:0', got {device!r}")
    if resume and out is None:
        raise ValueError("resume needs out, the directory of the run to continue")
    parsed = _check_policies(policies)
    horizon = _check_count("horizon", horizon, MAX_HORIZON)
    instances = _check_count("instances", instances, MAX_INSTANCES)
    split_seed(seed)
    steps = _check_checkpoints(checkpoints, horizon)
    for policy in parsed:
        if isinstance(head := getattr(policy, "head", None), Head):
            head.check_steps(horizon)
    names = [str(policy) for policy in parsed]
    base = names[0] if baseline is None else str(parse_policy(baseline) if isinstance(baseline, str) else baseline)
    if base not in names:
        raise ValueError(f"baseline {base!r} is not among the policies ({'; '.join(names)}); add it to them")
    _check_memory(len(names), arms.size, instances, len(steps), horizon)
    sample = arm_table(arms, seed, 0, 1)
    choices = [choose_engine(policy, sample, horizon, engine, device, dtype) for policy in parsed]
    spec = _spec(arms, names, horizon, instances, seed, steps, base, choices, plugin_hashes(parsed))
    run = None if out is None else RunDirectory.open(out, spec, resume)
    try:
        if run is not None:
            # What a resumed run says of commit, versions and device stays what it said at first.
            spec = run.spec if baseline is None else run.spec | {"baseline": base}
        if run is not None and run.finished:
            found = run.load()
            found.spec["baseline"] = spec["baseline"]
            return found
        result = _play(arms, parsed, choices, spec, run, report)
        if run is not None:
            run.finish(result)
        return result
    finally:
        if run is not None:
            run.close()


def _play(
    arms: Arms,
    policies: list[Policy],
    choices: list[Choice],
    spec: dict[str, Any],
    run: RunDirectory | None,
    report: Report | None,
) -> RegretResult:
    horizon, instances, seed = spec["horizon"], spec["instances"], spec["seed"]
    steps = np.asarray(spec["checkpoints"], dtype=np.int64)
    part = part_size(arms.size, horizon, cuda=any(choice.device != "cpu" for choice in choices))
    fixed = arm_table(arms, seed, 0, instances) if arms.fixed_means is not None else None
    best_mean = np.empty(instances)
    result: RegretResult | None = None
    started = time.perf_counter()
    seconds = dict.fromkeys(spec["policies"], 0.0)
    compiling = dict.fromkeys(spec["policies"], 0.0)
    replayed = dict.fromkeys(spec["policies"], 0)
    # Drawn once, as every policy meets the same arms.
    tables = {
        first: arm_table(arms, seed, first, min(part, instances - first), choices[0].device)
        for first in range(0, instances, part)
    }
    for first, table in tables.items():
        best_mean[first : first + table.instances] = table.means.max(axis=0)
    result = RegretResult.allocate(spec, best_mean, arms.size, regret_constant(fixed) if fixed is not None else None)
    for policy, choice, text in zip(policies, choices, spec["policies"], strict=True):
        done = 0

        def advance(count: int, text: str = text) -> None:
            nonlocal done
            done += count
            if report is not None:
                report(text, done, horizon * instances)

        for first, table in tables.items():
            size = table.instances
            block = run.read_part(text, first, size) if run is not None else None
            if block is None:
                if choice.engine.compiles and not replayed[text]:
                    compiling[text] = _compile(policy, choice, arms)
                begun = time.perf_counter()
                block = choice.engine.simulate(
                    policy,
                    table,
                    seed=seed,
                    first_instance=first,
                    horizon=horizon,
                    checkpoints=steps,
                    dtype=choice.dtype,
                    device=choice.device,
                    progress=advance,
                )
                took = time.perf_counter() - begun
                seconds[text] += took
                replayed[text] += size
                # A part is kept unless playing it again is quicker than writing it.
                if run is not None and took * WRITTEN_PER_SECOND > block.nbytes:
                    run.write_part(text, first, block)
            else:
                advance(horizon * size)
            result.put(text, first, block)
    result.timing.update(
        seconds=seconds,
        compile_seconds=compiling,
        arm_steps_per_second={
            text: replayed[text] * arms.size * horizon / seconds[text] for text in seconds if seconds[text] > 0
        },
        total_seconds=time.perf_counter() - started,
        peak_memory_mib=peak_memory_mib(),
        host=platform.node(),
    )
    return result


def _compile(policy: Policy, choice: Choice, arms: Arms) -> float:
    """Seconds that one step on one instance takes, so that compiling does not count as playing."""
    begun = time.perf_counter()
    choice.engine.simulate(
        policy,
        arm_table(arms, 0, 0, 1),
        seed=0,
        first_instance=0,
        horizon=1,
        checkpoints=np.ones(1, dtype=np.int64),
        dtype=choice.dtype,
        device=choice.device,
    )
    return time.perf_counter() - begun


def arm_table(arms: Arms, seed: int, first_instance: int, instances: int, device: str = "cpu") -> ArmTable:
    """The arms of instances first_instance, first_instance + 1, ... as numbers; drawn means come from stream 1.

    A device other than `cpu` makes the random words there; the means are the same.
    """
    fixed = arms.fixed_means
    if fixed is not None:
        means = fixed[:, None]
    else:
        numbers: Any = first_instance + np.arange(instances, dtype=np.int64)
        index: Any = np.arange(arms.size, dtype=np.int64)[:, None]
        if device != "cpu":
            import torch

            numbers, index = torch.as_tensor(numbers, device=device), torch.as_tensor(index, device=device)
        uniforms = open_uniform(words(seed, numbers, index, ARM_MEAN)[0])
        means = arms.mean_quantile(uniforms if isinstance(uniforms, np.ndarray) else uniforms.cpu().numpy())
    return ArmTable(
        kind=arms.reward_kind,
        means=means,
        sigma=arms.noise,
        values=arms.values,
        offsets=arms.offsets,
        binary=arms.binary,
        instances=instances,
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


def _spec(
    arms: Arms,
    policies: list[str],
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
        "policies": policies,
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
    if plugins:
        spec["plugins"] = plugins
    if isinstance(arms, EmpiricalArms):
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
