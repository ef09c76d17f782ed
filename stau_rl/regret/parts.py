"""Playing a run part by part: one policy on one stretch of instances at a time, by one process or shared by several."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stau_rl.agents.bandit import Policy
from stau_rl.envs.arms import Arms
from stau_rl.kernels.contract import Block
from stau_rl.kernels.engines import Choice
from stau_rl.machine.phases import Phases
from stau_rl.machine.ranks import Ranks
from stau_rl.machine.report import Report
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.directory import RunDirectory
from stau_rl.regret.plan import Plan
from stau_rl.regret.regrets import Regrets

# A network file system may go on saying for about a minute that a file it was asked for before is not there.
PATIENCE_SECONDS = 90.0
WRITTEN_PER_SECOND = 5e8

Put = Callable[[str, int, Block], None]
"""Called with a policy's text, a part's first instance and what was played."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one process did for one policy.

    Attributes:
        seconds: time spent playing.
        compile_seconds: time spent compiling before that.
        instances: how many it played itself.
    """

    seconds: float = 0.0
    compile_seconds: float = 0.0
    instances: int = 0


def play_share(
    plan: Plan, run: RunDirectory | None, ranks: Ranks, put: Put | None, report: Report | None, phases: Phases
) -> dict[str, Work]:
    """Play the parts of this rank that the run directory does not hold yet.

    Args:
        plan: what to play.
        run: where parts are kept, if anywhere.
        ranks: the processes that share the run, seen from this one.
        put: gets the blocks, in order of policy and instance, if given.
        report: called with a policy, its instance-steps that are done, and all of them.
        phases: the clock; at the end it stands in `kernels`, as what comes next is waiting for other ranks.

    Returns:
        What was done, by policy.

    Raises:
        ValueError: the directory cannot be written.
    """
    horizon, seed = plan.spec["horizon"], plan.spec["seed"]
    steps = np.asarray(plan.spec["checkpoints"], dtype=np.int64)
    work = {}
    for p, (policy, choice, text) in enumerate(zip(plan.policies, plan.choices, plan.spec["policies"], strict=True)):
        device = ranks.device(choice.device)
        share = [(first, size) for number, first, size in plan.parts(p) if ranks.owns(number)]
        total = horizon * sum(size for _, size in share)
        seconds, compiling, played, done = 0.0, 0.0, 0, 0

        def advance(count: int, text: str = text, total: int = total) -> None:
            nonlocal done
            done += count
            if report is not None:
                report(text, done, total)

        for first, size in share:
            block = run.read_part(text, first, size) if run is not None else None
            if block is None:
                if choice.engine.compiles and not played:
                    compiling = _compile(policy, choice, device, plan.arms, horizon)
                table = plan.table(first, size, ranks)
                with phases.inside("kernels"):
                    begun = time.perf_counter()
                    block = choice.engine.simulate(
                        policy,
                        table,
                        seed=seed,
                        first_instance=first,
                        horizon=horizon,
                        checkpoints=steps,
                        dtype=choice.dtype,
                        device=device,
                        progress=advance,
                    )
                    took = time.perf_counter() - begun
                seconds += took
                played += size
                # A part is kept unless playing it again is quicker than writing it; with nowhere to put it, the file
                # is the only way on.
                if run is not None and (put is None or took * WRITTEN_PER_SECOND > block.nbytes):
                    with phases.inside("files"):
                        run.write_part(text, first, block)
            else:
                advance(horizon * size)
            if put is not None:
                # It waits where the thread that writes the block before is not done.
                with phases.inside("files"):
                    put(text, first, block)
        work[text] = Work(seconds, compiling, played)
    phases.enter("kernels")
    return work


def collect_shares(plan: Plan, run: RunDirectory, ranks: Ranks, result: Regrets) -> None:
    """Put the parts of the other ranks, all of them written, into the result.

    Raises:
        ValueError: a part is not to be seen from here, or damaged.
    """
    for p, text in enumerate(plan.spec["policies"]):
        for number, first, size in plan.parts(p):
            if not ranks.owns(number):
                result.put(text, first, _wait_for_part(run, text, first, size))


def timing(plan: Plan, work: list[dict[str, Work]]) -> dict[str, Any]:
    """Seconds and speed by policy, over all ranks: the longest time of any, the sum of their speeds."""
    seconds, compiling, speed = {}, {}, {}
    for text in plan.spec["policies"]:
        shares = [share[text] for share in work]
        seconds[text] = max(share.seconds for share in shares)
        compiling[text] = max(share.compile_seconds for share in shares)
        if seconds[text] > 0:
            plays = plan.arms.size * plan.spec["horizon"]
            speed[text] = sum(share.instances * plays / share.seconds for share in shares if share.seconds > 0)
    found: dict[str, Any] = {"seconds": seconds, "compile_seconds": compiling, "arm_steps_per_second": speed}
    return found | ({"processes": len(work)} if len(work) > 1 else {})


def _wait_for_part(run: RunDirectory, text: str, first: int, size: int) -> Block:
    until = time.monotonic() + PATIENCE_SECONDS
    while (block := run.read_part(text, first, size)) is None:
        if time.monotonic() > until:
            raise ValueError(
                f"run directory {run.path} lacks instances {first} to {first + size - 1} of {text!r}, which another "
                "process has written; all processes must see one directory. Repeat the command with --resume"
            )
        time.sleep(1.0)
    return block


def _compile(policy: Policy, choice: Choice, device: str, arms: Arms, horizon: int) -> float:
    """Seconds that a first few steps on one instance take, so that compiling does not count as playing."""
    begun = time.perf_counter()
    choice.engine.load(policy, arm_table(arms, 0, 0, 1), horizon=horizon, dtype=choice.dtype, device=device)
    return time.perf_counter() - begun
