"""Heads x tasks x seeds, every head tuned on an equal grid and on seeds of its own.

For each task and family of heads, every point of the grid (sharpness x learning rate) is played on the tuning seeds;
the point of the best mean score is then played on the evaluation seeds, which no tuning has seen. A score is the mean
return of the last evaluation with sampled actions; of points with equal scores the one that learned faster is taken.
Beside each head the first family is played on the same seeds at the sharpness and learning rate that were chosen for
that head, as its control: what is left between the two is not a matter of temperature. Runs are independent, in worker
processes of one thread; each leaves a file, so the study goes on where it was stopped.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stau_rl.agents.policy_gradient.finite import NonFiniteError
from stau_rl.machine.pool import require_guard
from stau_rl.machine.report import Report
from stau_rl.machine.stamp import current_commit, device_name
from stau_rl.machine.threads import cores
from stau_rl.rl_study.folder import RLStudyFolder, write_tables
from stau_rl.rl_study.plan import estimate
from stau_rl.rl_study.result import RLStudyResult
from stau_rl.rl_study.runs import StudyRun, best_point, control_runs, curve_rows, row_of, tuning_runs
from stau_rl.rl_study.tasks import FAMILIES, TASKS, Family, Task, distinct, parse_family, task_named
from stau_rl.training.pool import RunPool
from stau_rl.training.run import Played

TUNING_SEEDS, SEEDS = 3, 10
POLL_SECONDS = 0.5


def run_rl_study(
    tasks: Sequence[str | Task] = TASKS,
    families: Sequence[str | Family] = FAMILIES,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    processes: int | None = None,
    tuning_seeds: int = TUNING_SEEDS,
    seeds: int = SEEDS,
    shorter: int = 1,
    plugins: Sequence[str | Path] = (),
    report: Report | None = None,
) -> RLStudyResult:
    """Compare heads in policy-gradient agents: each tuned on an equal grid and seeds of its own, scored on others.

    Workers read the main script anew, so a script needs the guard `if __name__ == "__main__":`.

    Args:
        tasks: what is learned, by name: `ppo-cartpole`, `ppo-acrobot`, `a2c-cartpole`, `reinforce-cartpole`,
            `ppo-lunarlander`; or `Task`. Default: all.
        families: heads with {x} for the sharpness that is tuned, such as `escort(p={x}) + 1`, + NUMBER for the initial
            scores; or `Family`. The first is the reference.
        out: the study's folder; created if it is not there. None keeps no files.
        resume: `out` may hold finished runs, which are not played again.
        processes: runs played at a time, in a worker of one thread each. None: one per core.
        tuning_seeds: seeds per point of the grids.
        seeds: evaluation seeds.
        shorter: divides the steps of every task, to try a study out.
        plugins: files of heads that every worker loads.
        report: called with what is counted, the runs done, and all of them. Rows that ask for the same run share it.

    Returns:
        The rows of all runs, with tables, a figure and files.

    Raises:
        ValueError: an argument is out of range, or the folder is not free.
        NonFiniteError: a run met a number that is not finite; it names the run. Finished runs are kept.

    Examples:
        >>> result = run_rl_study(["reinforce-cartpole"], seeds=5, shorter=10, out="runs/heads")  # doctest: +SKIP
        >>> result.table()[["family", "head", "sampled"]]                                        # doctest: +SKIP
    """
    require_guard()
    if processes is not None and processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes!r}")
    if resume and out is None:
        raise ValueError("resume needs out, the folder of the study to continue")
    chosen = tuple(dict.fromkeys(task_named(task) if isinstance(task, str) else task for task in tasks))
    heads = distinct([parse_family(family) if isinstance(family, str) else family for family in families])
    total = estimate(chosen, heads, tuning_seeds, seeds, shorter)[0]
    # What cannot be made, for want of an environment say, shows before anything is written.
    for task in chosen:
        for family in heads:
            tuning_runs(task, family, 1, shorter)[0].spec.make()
    with ExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory()) if out is None else out)
        folder = stack.enter_context(RLStudyFolder(path, resume))
        pool = stack.enter_context(RunPool(processes or cores(), plugins=tuple(map(Path, plugins)), work="study"))
        study = _Study(folder, pool, processes or cores(), heads[0], seeds, shorter)
        tell = report or (lambda what, done, total: None)
        pairs = [(task, family) for task in chosen for family in heads]
        study.play(pairs, tuning_seeds, lambda done: tell("runs", done, total))

        def place(run: StudyRun) -> tuple[Any, ...]:
            where = chosen.index(run.task), heads.index(run.family)
            return *where, run.role, run.control_of, run.head, run.rate, run.seed

        results = {run: study.found[study.wanted[run]] for run in sorted(study.wanted, key=place)}
        write_tables(path, [row_of(run, kept) for run, kept in results.items()], list(curve_rows(results)))
        return RLStudyResult.load(path)


class _Study:
    """A study under way: tuning runs are played, and the evaluation of a pair begins when its tuning is complete.

    Attributes:
        wanted: every row's run, and the name of its file.
        found: what the files hold, by name.
    """

    def __init__(
        self, folder: RLStudyFolder, pool: RunPool, processes: int, reference: Family, seeds: int, shorter: int
    ) -> None:
        self.folder, self.pool, self.processes = folder, pool, processes
        self.reference, self.seeds, self.shorter = reference, seeds, shorter
        self.wanted: dict[StudyRun, str] = {}
        self.found: dict[str, dict[str, Any]] = {}
        self._queue: list[StudyRun] = []

    def play(self, pairs: Sequence[tuple[Task, Family]], tuning_seeds: int, tell: Callable[[int], None]) -> None:
        """Play what the folder does not hold; `tell` is called with the rows done."""
        waiting = {pair: tuning_runs(*pair, tuning_seeds, self.shorter) for pair in pairs}
        about = _about()
        futures: dict[Future[Played], StudyRun] = {}
        self._want(run for runs in waiting.values() for run in runs)
        self._evaluate_tuned(waiting)
        tell(self._done())
        while futures or self._queue:
            # A few more than there are workers, so that none waits for this process.
            while self._queue and len(futures) < self.processes + self.processes // 8 + 1:
                run = self._queue.pop()
                futures[self.pool.play(run.spec)] = run
            finished, _ = wait(futures, POLL_SECONDS, return_when="FIRST_COMPLETED")
            # Those that failed last, so that what is finished is kept.
            for future in sorted(finished, key=lambda one: one.exception() is not None):
                run = futures.pop(future)
                self.found[self.wanted[run]] = self.folder.write(run, *self._result(future, run), about)
            if finished:
                self._evaluate_tuned(waiting)
                tell(self._done())

    def _want(self, runs: Iterable[StudyRun]) -> None:
        """Take up what is there, and queue the rest: long runs first, so that none is left over at the end."""
        known = set(self.wanted.values())
        for run in runs:
            self.wanted[run] = name = run.file_name
            if name in known:
                continue
            known.add(name)
            kept = self.folder.read(run)
            if kept is None:
                self._queue.append(run)
            else:
                self.found[name] = kept
        self._queue.sort(key=lambda run: run.task.seconds)

    def _evaluate_tuned(self, waiting: dict[tuple[Task, Family], list[StudyRun]]) -> None:
        """Queue the evaluation and the control of every pair whose tuning is complete; it waits no longer."""
        for pair in [pair for pair, runs in waiting.items() if all(self.wanted[run] in self.found for run in runs)]:
            head, rate = best_point([row_of(run, self.found[self.wanted[run]]) for run in waiting.pop(pair)])
            self._want(StudyRun(*pair, head, rate, "evaluation", seed, self.shorter) for seed in range(self.seeds))
            self._want(control_runs(*pair, self.reference, (head, rate), self.seeds, self.shorter))

    def _done(self) -> int:
        return sum(name in self.found for name in self.wanted.values())

    def _result(self, future: "Future[Played]", run: StudyRun) -> Played:
        try:
            return self.pool.result(future)
        except NonFiniteError as error:
            about = f"{run.task.name}, {run.head}, learning_rate={run.rate:g}, {run.role} seed {run.seed}"
            raise error.at(error.env, 0, about, error.phase) from None


def _about() -> dict[str, str]:
    from importlib.metadata import version

    names = ("gymnasium", "numpy", "torch")
    versions = " ".join([f"python {sys.version.split()[0]}", *(f"{name} {version(name)}" for name in names)])
    return {"commit": current_commit(), "versions": versions, "device": device_name()}
