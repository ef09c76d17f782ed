"""Training an agent on several seeds at once, into a folder that can be resumed."""

from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.heads import parse_head
from stau_rl.plugin.plugin_head import head_hashes
from stau_rl.training.folder import TrainFolder
from stau_rl.training.pool import RunPool
from stau_rl.training.run import RunSpec

POLL_SECONDS = 0.2
MOST_SEEDS = 1_000_000


def train(
    agent: str,
    settings: AgentSettings,
    seeds: int,
    out: Path,
    *,
    first_seed: int = 0,
    processes: int = 1,
    resume: bool = False,
    plugins: tuple[Path, ...] = (),
    report: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Train an agent on several seeds and write its curves and scores.

    Args:
        agent: name of the agent.
        settings: of its class.
        seeds: how many; they are first_seed, first_seed + 1, ...
        out: the folder, described in `stau_rl.training.folder`.
        first_seed: the first of them, >= 0.
        processes: how many seeds are trained at a time, in a process of one thread each.
        resume: keep what the folder holds and go on.
        plugins: files of heads that every process loads.
        report: called now and then with the steps done, over all seeds.

    Returns:
        A row per seed: mean, lowest and highest return of the final evaluations, sampled and deterministic.

    Raises:
        ValueError: an argument is out of range, or the folder cannot be used.
    """
    for name, value, least in (("seeds", seeds, 1), ("first_seed", first_seed, 0), ("processes", processes, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")
    if seeds > MOST_SEEDS:
        raise ValueError(f"seeds must be at most {MOST_SEEDS}, got {seeds!r}")
    if first_seed + seeds > 1 << 64:
        raise ValueError(f"seeds must be below 2^64, got {first_seed} + {seeds - 1}")
    runs = [RunSpec(agent, settings.as_dict(), first_seed + number) for number in range(seeds)]
    # Mistakes in the environment or the head show here, before anything is written.
    runs[0].make()
    spec: dict[str, Any] = {"agent": agent, "settings": settings.as_dict(), "seeds": [run.seed for run in runs]}
    if hashes := head_hashes([parse_head(settings.head)]):
        spec["plugins"] = hashes
    with TrainFolder(out, spec, resume) as folder:
        missing = [(slot, run) for slot, run in enumerate(runs) if folder.read(run) is None]
        if missing:
            _play(folder, missing, settings.steps * (seeds - len(missing)), processes, plugins, report)
        results: list[Any] = [folder.read(run) for run in runs]
        return folder.finish(results)


def _play(
    folder: TrainFolder,
    missing: list[tuple[int, RunSpec]],
    done: int,
    processes: int,
    plugins: tuple[Path, ...],
    report: Callable[[int], None] | None,
) -> None:
    slots = max(slot for slot, _ in missing) + 1
    with RunPool(min(processes, len(missing)), slots, plugins) as pool:
        futures = {pool.submit(run, slot, folder.checkpoint(run)): run for slot, run in missing}
        while futures:
            finished, _ = wait(futures, POLL_SECONDS, return_when="FIRST_COMPLETED")
            for future in finished:
                folder.write(futures.pop(future), *pool.result(future))
            if report is not None:
                report(done + pool.steps)
