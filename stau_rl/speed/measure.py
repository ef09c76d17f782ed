"""Speed of the engines beside their peers: correctness first, then arm-steps per second, all in one run.

Every loop lives in a process of its own, so that none takes another's memory, threads or time; they play in turns, so
that a busy moment of the machine hits all alike. Numbers of different machines or runs do not compare; ratios within
a run do.
"""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from stau_rl.machine.stamp import device_name
from stau_rl.machine.threads import cores
from stau_rl.speed.loops import PEERS_ARMS, Case, loops, special_ceiling
from stau_rl.speed.rows import stamp
from stau_rl.speed.worker import SEED, Worker

# A wrong loop shares hardly a history. A right one parts where a uniform falls beside a rounded boundary: hardly ever
# at ten arms, in a tenth of the histories at a thousand.
SAME_HISTORIES, SAME_OF_MANY_ARMS = 0.95, 0.5

Report = Callable[[str], None]


def measure(
    device: str,
    heads: tuple[str, ...],
    arms: tuple[int, ...],
    repeats: int,
    limit: float,
    commit: str | None,
    report: Report,
) -> list[dict[str, Any]]:
    """Check and time every loop of a device.

    Args:
        device: `cpu` or `cuda`.
        heads: of `EXACT_REGRET`.
        arms: numbers of arms; peers play ten.
        repeats: timed runs of every case.
        limit: seconds that a loop may take for one answer before it is left out, if it is a peer.
        commit: to be written where the code is no checkout.
        report: called with a line as the work goes on.

    Returns:
        Rows as in `stau_rl.speed.rows`; of several batch sizes, the fastest.

    Raises:
        ValueError: an engine is wrong, or does not run.
    """
    rows: list[dict[str, Any]] = []
    ceiling = special_ceiling() if device == "cuda" else math.nan
    common = stamp(_with_cores(device), cores(), SEED, repeats, commit)
    workers = []
    for loop in loops(device).values():
        if loop.missing():
            report(f"{loop.name} is left out: the package {loop.needs} is not installed")
        else:
            workers.append(Worker(loop, limit))
    try:
        for head in heads:
            for k in arms:
                ready = _ready(workers, head, k, report)
                times = _turns(ready, repeats, report)
                rows += [common | _row(worker, entry, times, ceiling) for worker, entry in ready.items() if entry]
    finally:
        for worker in workers:
            worker.stop()
    return rows


def _ready(workers: list[Worker], head: str, arms: int, report: Report) -> dict[Worker, dict[Case, dict[str, Any]]]:
    """Check every loop and have it set up its cases; peers that fail to are left out from here on."""
    found: dict[Worker, dict[Case, dict[str, Any]]] = {}
    for worker in list(workers):
        loop = worker.loop
        if arms != PEERS_ARMS and loop.engine is None:
            continue
        report(f"{loop.name}: checking and compiling {head}, {arms} arms")
        try:
            sizes = [loop.case(head, arms, size) for size in loop.sizes(arms)]
            cases = {case: worker.ask("prepare", case) for case in sizes}
            facts = {"regret_z": worker.ask("check", head), "same_histories": math.nan}
            if loop.engine is not None:
                few = max(32, 4096 // arms)
                facts["same_histories"] = worker.ask("same", Case(head, few, arms + 100, arms))
                if not facts["same_histories"] >= (SAME_HISTORIES if arms <= 32 else SAME_OF_MANY_ARMS):
                    share = facts["same_histories"]
                    raise ValueError(f"{loop.name}: only {share:.3f} of the histories are those of the reference")
            found[worker] = {case: facts | measured for case, measured in cases.items()}
        except (TimeoutError, ValueError) as error:
            if loop.engine is not None:
                raise ValueError(str(error)) from None
            worker.stop()
            workers.remove(worker)
            report(f"{error}: left out")
    return found


def _turns(ready: dict[Worker, dict[Case, dict[str, Any]]], repeats: int, report: Report) -> dict[Any, list[float]]:
    """Rates of every loop and case, loops taking turns."""
    rates: dict[Any, list[float]] = {}
    for turn in range(repeats):
        for worker, cases in ready.items():
            for case in cases:
                report(f"round {turn + 1} of {repeats}: {worker.loop.name}, {case.head}, {case.arms} arms")
                seconds = worker.ask("time", case, SEED + turn)
                rates.setdefault((worker, case), []).append(case.instances * case.arms * case.steps / seconds)
    return rates


def _row(worker: Worker, cases: dict[Case, dict[str, Any]], rates: dict[Any, list[float]], ceiling: float) -> Any:
    best = max(cases, key=lambda case: float(np.median(rates[worker, case])))
    p20, median, p80 = np.quantile(rates[worker, best], (0.2, 0.5, 0.8))
    facts = {"settings": "", "special": math.nan} | worker.ask("facts", best)
    return {
        "engine": worker.loop.name,
        "head": best.head,
        "arms": best.arms,
        "instances": best.instances,
        "steps": best.steps,
        "median": median,
        "p20": p20,
        "p80": p80,
        "ceiling_share": facts.pop("special") * median / ceiling,
        **cases[best],
        **facts,
    }


def _with_cores(device: str) -> str:
    """Name of the device; of a processor, with the number of cores that may be used."""
    return device_name(device) if device == "cuda" else f"{device_name()}, {cores()} cores"


def peak_memory(horizon: int, instances: int = 100_000, arms: int = 10) -> float:
    """Peak resident memory, MiB, of the headline's nine policies in a process of its own, files and tables included."""
    code = (
        "import sys, tempfile\n"
        "from stau_rl.cli.regret import HEADLINE_POLICIES\n"
        "from stau_rl.machine.memory import peak_memory_mib\n"
        "from stau_rl.regret.run import run_regret\n"
        "from stau_rl.regret.report import final_rows\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        f"    final_rows(run_regret('bernoulli(k={arms})', HEADLINE_POLICIES, {horizon}, {instances}, out=folder))\n"
        "print(peak_memory_mib())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise ValueError(f"the memory run failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)
