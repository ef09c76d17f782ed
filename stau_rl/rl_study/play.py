"""Heads x tasks x seeds, every head tuned on an equal grid and on seeds of its own.

For each task and family of heads, every point of the grid (sharpness x learning rate) is played on the tuning seeds;
the point of the best mean score is then played on the evaluation seeds, which no tuning has seen. A score is the mean
return of the last evaluation with sampled actions; of points with equal scores the one that learned faster is taken.
Beside each head the first family is played on the same seeds at the sharpness and learning rate that were chosen for
that head, as its control: what is left between the two is not a matter of temperature. Runs are independent processes
of one thread; each leaves a file, so the study goes on where it was stopped.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stau_rl.files.identity import identity
from stau_rl.files.lock import DirectoryLock
from stau_rl.files.whole import refuse_link, whole_file, write_json
from stau_rl.heads import parse_head
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.machine.stamp import current_commit, device
from stau_rl.plugin.plugin_head import head_hashes
from stau_rl.rl_study.plan import estimate
from stau_rl.rl_study.tasks import (
    FAMILIES,
    TASKS,
    Family,
    Task,
    distinct,
    has_control,
    points,
    settings,
    task_named,
)
from stau_rl.training.pool import RunPool
from stau_rl.training.run import RunSpec, read_result

TUNING_SEEDS, SEEDS = 3, 10
RUN_FILES, RUNS, CURVES = "runs", "rl_runs.csv", "rl_curves.csv"
CONTROL = "control"
POLL_SECONDS = 0.5
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of the study.

    Attributes:
        task: what is learned.
        family: whose head.
        head: text of the head.
        rate: learning rate.
        role: `tuning`, `evaluation`, or `control`, which has the seeds of the evaluation.
        seed: number of the seed within its role.
        shorter: divides the steps; 1 in a study that counts.
        control_of: name of the family whose control this is.
    """

    task: Task
    family: Family
    head: str
    rate: float
    role: str
    seed: int
    shorter: int = 1
    control_of: str = ""

    @property
    def spec(self) -> RunSpec:
        """What the run's process is given."""
        seed = purpose_seed(self.seed, "tuning" if self.role == "tuning" else "evaluation")
        return RunSpec(self.task.agent, settings(self.task, self.family, self.head, self.rate, self.shorter), seed)

    @property
    def file_name(self) -> str:
        """Name of its file, with a digest of everything that decides its numbers."""
        spec = self.spec
        decides: dict[str, Any] = {"agent": spec.agent, "settings": spec.settings, "seed": spec.seed}
        if hashes := head_hashes([parse_head(self.head)]):
            decides["plugins"] = hashes
        text = json.dumps(identity(decides), sort_keys=True)
        return f"{self.task.name}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def tuning_runs(task: Task, family: Family, seeds: int, shorter: int) -> list[StudyRun]:
    """Every point of the grid on every tuning seed."""
    return [
        StudyRun(task, family, head, rate, "tuning", seed, shorter)
        for head, rate in points(task, family)
        for seed in range(seeds)
    ]


def control_runs(
    task: Task, family: Family, reference: Family, point: tuple[str, float], seeds: int, shorter: int = 1
) -> list[StudyRun]:
    """The reference at the sharpness and learning rate of a family's point; none for itself or on another grid."""
    if not has_control(family, reference):
        return []
    head, rate = dict(zip(points(task, family), points(task, reference), strict=True))[point]
    return [StudyRun(task, reference, head, rate, CONTROL, seed, shorter, family.name) for seed in range(seeds)]


def best_point(rows: Sequence[Row]) -> tuple[str, float]:
    """Head and learning rate of the best mean sampled score; ties go to the higher mean of the learning curve."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["head"], row["learning_rate"]), []).append(row)

    def quality(point: tuple[str, float]) -> tuple[float, float]:
        members = groups[point]
        return _mean([row["sampled"] for row in members]), _mean([row["curve_mean"] for row in members])

    return max(groups, key=quality)


def row_of(run: StudyRun, kept: dict[str, Any]) -> Row:
    """A finished run as a row of the study's table."""
    returns = [point["train_return"] for point in kept["curve"] if point["train_return"] is not None]
    return {
        "task": run.task.name,
        "agent": run.task.agent,
        "env": run.task.env,
        "steps": kept["settings"]["steps"],
        "family": run.family.name,
        "head": run.head,
        "score_offset": run.family.offset,
        "learning_rate": run.rate,
        "role": run.role,
        "control_of": run.control_of,
        "seed": run.seed,
        "sampled": kept["sampled"],
        "deterministic": kept["deterministic"],
        "curve_mean": _mean(returns) if returns else float("-inf"),
        "episodes": kept["settings"]["episodes"],
        "seconds": kept["seconds"],
        "commit": kept["commit"],
        "versions": kept["versions"],
        "device": kept["device"],
    }


class RunFolder:
    """The study's folder: a file per finished run under `runs/`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, run: StudyRun) -> dict[str, Any] | None:
        """A finished run; None if it is not there or not whole."""
        return read_result(self.path / RUN_FILES / run.file_name)

    def write(self, run: StudyRun, result: dict[str, Any], seconds: float, about: dict[str, str]) -> dict[str, Any]:
        """Keep a run."""
        kept = {**result, "seconds": round(seconds, 2), **about}
        write_json(self.path / RUN_FILES / run.file_name, kept)
        return kept


def play_study(
    out: Path,
    tasks: Sequence[Task] = TASKS,
    families: Sequence[Family] = FAMILIES,
    *,
    processes: int,
    tuning_seeds: int = TUNING_SEEDS,
    seeds: int = SEEDS,
    shorter: int = 1,
    plugins: tuple[Path, ...] = (),
    report: Callable[[int, int, float], None] | None = None,
) -> tuple[list[Row], list[Row]]:
    """Play what the folder does not hold yet.

    Args:
        out: the study's folder; created if it is not there.
        tasks: what is learned.
        families: the heads; the first is the reference.
        processes: runs played at a time.
        tuning_seeds: seeds per point of the grids.
        seeds: evaluation seeds.
        shorter: divides the steps of every task, to try a study out.
        plugins: files of heads that every process loads.
        report: called with the rows done, all rows, and the seconds that all runs so far took together. Rows that ask
            for the same run share it.

    Returns:
        A row per run, and a row per point of the evaluation runs' learning curves.

    Raises:
        ValueError: an argument is out of range, or the folder is in use or cannot be written.
    """
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes!r}")
    families = distinct(families)
    total = estimate(tasks, families, tuning_seeds, seeds, shorter)[0]
    pairs = [(task, family) for task in tasks for family in families]
    waiting = {pair: tuning_runs(*pair, tuning_seeds, shorter) for pair in pairs}
    # What cannot be made, for want of an environment say, shows before anything is written.
    for runs in waiting.values():
        runs[0].spec.make()
    folder, about = RunFolder(out), _about()
    # Rows by the file of their run, and what the files hold.
    wanted: dict[StudyRun, str] = {}
    found: dict[str, dict[str, Any]] = {}
    try:
        refuse_link(out / RUN_FILES)
        (out / RUN_FILES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{out} cannot be used: {error.strerror or error}") from error
    with DirectoryLock(out), RunPool(processes, 0, plugins) as pool:
        futures: dict[Any, StudyRun] = {}
        queue: list[StudyRun] = []

        def start(runs: Sequence[StudyRun]) -> None:
            """Take up what is there, and queue the rest: long runs first, so that none is left over at the end."""
            known = set(wanted.values())
            for run in runs:
                wanted[run] = name = run.file_name
                if name in known:
                    continue
                known.add(name)
                kept = folder.read(run)
                if kept is None:
                    queue.append(run)
                else:
                    found[name] = kept
            queue.sort(key=lambda run: run.task.seconds)

        def advance() -> None:
            """Start the evaluation of every pair whose tuning is complete."""
            for pair in [pair for pair, runs in waiting.items() if all(wanted[run] in found for run in runs)]:
                head, rate = best_point([row_of(run, found[wanted[run]]) for run in waiting.pop(pair)])
                start([StudyRun(*pair, head, rate, "evaluation", seed, shorter) for seed in range(seeds)])
                start(control_runs(*pair, families[0], (head, rate), seeds, shorter))
            if report is not None:
                done = sum(name in found for name in wanted.values())
                report(done, total, sum(kept["seconds"] for kept in found.values()))

        start([run for runs in waiting.values() for run in runs])
        advance()
        while futures or queue:
            # A few more than there are processes, so that none waits for this one.
            while queue and len(futures) < processes + processes // 8 + 1:
                run = queue.pop()
                futures[pool.submit(run.spec)] = run
            finished, _ = wait(futures, POLL_SECONDS, return_when="FIRST_COMPLETED")
            for future in finished:
                run = futures.pop(future)
                result, seconds = pool.result(future)
                found[wanted[run]] = folder.write(run, result, seconds, about)
            if finished:
                advance()

    def place(run: StudyRun) -> tuple[Any, ...]:
        return tasks.index(run.task), families.index(run.family), run.role, run.control_of, run.head, run.rate, run.seed

    results = {run: found[wanted[run]] for run in sorted(wanted, key=place)}
    return [row_of(run, kept) for run, kept in results.items()], list(_curves(results))


def write_tables(folder: Path, rows: Sequence[Row], curves: Sequence[Row]) -> None:
    """Write `rl_runs.csv`, a row per run, and `rl_curves.csv`, a row per evaluation run and point of its curve."""
    import pandas as pd

    for name, table in ((RUNS, rows), (CURVES, curves)):
        with whole_file(folder / name) as temporary:
            pd.DataFrame(table).to_csv(temporary, index=False, float_format="%.8g", lineterminator="\n")


def unused_runs(folder: Path, rows: Sequence[Row], families: Sequence[Family], shorter: int) -> int:
    """How many finished runs a study's folder holds that its rows, as `play_study` returns them, do not use."""
    named = {family.name: family for family in families}
    used = {
        StudyRun(
            task_named(row["task"]),
            named[row["family"]],
            row["head"],
            row["learning_rate"],
            row["role"],
            row["seed"],
            shorter,
        ).file_name
        for row in rows
    }
    return len({file.name for file in (folder / RUN_FILES).glob("*.json")} - used)


def unused_text(folder: Path, unused: int) -> str:
    """A line about them."""
    return (
        f"{unused} finished run{'s' * (unused != 1)} in {folder} belong{'s' * (unused == 1)} to other tasks, heads, "
        f"seeds or lengths and {'is' if unused == 1 else 'are'} not in the tables"
    )


def _curves(results: dict[StudyRun, dict[str, Any]]) -> Iterator[Row]:
    for run, kept in results.items():
        if run.role == "evaluation":
            for number, point in enumerate(kept["curve"], 1):
                yield {
                    "task": run.task.name,
                    "family": run.family.name,
                    "seed": run.seed,
                    "point": number,
                    "step": point["step"],
                    "train_return": point["train_return"],
                }


def _about() -> dict[str, str]:
    from importlib.metadata import version

    names = ("gymnasium", "numpy", "torch")
    versions = " ".join([f"python {sys.version.split()[0]}", *(f"{name} {version(name)}" for name in names)])
    return {"commit": current_commit(), "versions": versions, "device": device()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
