"""Training an agent on several seeds at once, into a folder that can be resumed."""

from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.machine.pool import require_guard
from stau_rl.machine.report import Report
from stau_rl.machine.threads import cores
from stau_rl.training.board import BOARD, require_board
from stau_rl.training.folder import TrainFolder
from stau_rl.training.policies import Policies, about_policies, policy_file, write_about
from stau_rl.training.pool import RunPool
from stau_rl.training.request import asked_for
from stau_rl.training.result import TrainResult
from stau_rl.training.run import RunSpec

POLL_SECONDS = 0.2


def train(
    agent: str | None = None,
    settings: AgentSettings | Mapping[str, Any] | None = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    *,
    first_seed: int | None = None,
    processes: int | None = None,
    resume: bool = False,
    plugins: Sequence[str | Path] = (),
    tensorboard: bool = False,
    device: str | None = None,
    report: Report | None = None,
) -> TrainResult:
    """Train a policy-gradient agent on several seeds.

    Seeds are trained in worker processes of one thread each. Workers read the main script anew, so a script needs the
    guard `if __name__ == "__main__":`.

    With `resume`, what is not given is read from the folder, and more seeds are added. More steps than it has go on
    from where its seeds stand, to the same bytes as a training of that length; `stau_rl.training.request` says when
    that is possible.

    Args:
        agent: `reinforce`, `a2c` or `ppo`. Default: `ppo`.
        settings: the agent's settings, or some of them by name; the others are at their defaults.
        seeds: how many; they are first_seed, first_seed + 1, ... Default: 1.
        out: the folder, described in `stau_rl.training.folder`. None keeps no files.
        first_seed: the first of them, >= 0. Default: 0.
        processes: how many seeds are trained at a time. None: one per core.
        resume: keep what the folder holds and go on, to more steps if they are given.
        plugins: files of heads that every worker loads.
        tensorboard: write the learning curves into `out` for TensorBoard too, while seeds are trained.
        device: that learns, `cpu`, `cuda`, `cuda:N` or `auto`, a GPU where there is one; environments and actions stay
            on the CPU. Numbers differ between the two by rounding. Default: `cpu`.
        report: called now and then with what is trained, the environment steps done over all seeds, and all of them.

    Returns:
        Final scores, learning curves and policies of every seed.

    Raises:
        ValueError: an argument is out of range, the folder cannot be used, or a worker was killed.
        NonFiniteError: an observation, reward, action probability, loss or parameter is not finite; it names the
            environment, the step and the value. Finished seeds and points of learning curves are kept.

    Examples:
        >>> from stau_rl import train
        >>> result = train("ppo", {"head": "s_tau(tau=2)", "steps": 100_000}, seeds=4)    # doctest: +SKIP
        >>> result.table()[["seed", "sampled", "deterministic"]]                          # doctest: +SKIP
    """
    require_guard()
    if processes is not None and processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes!r}")
    if resume and out is None:
        raise ValueError("resume needs out, the folder of the training to continue")
    if tensorboard:
        if out is None:
            raise ValueError("tensorboard needs out, the folder of the training")
        require_board()
    folder_there = Path(out) if resume and out is not None else None
    request = asked_for(agent, settings, first_seed, seeds, folder_there, device)
    settings, seeds, spec = request.settings, request.seeds, request.spec
    runs = [RunSpec(request.agent, settings.as_dict(), seed, request.device) for seed in spec["seeds"]]
    # Mistakes in the environment or the head show here, before anything is written.
    about = about_policies(runs[0].make())
    with ExitStack() as stack:
        path = stack.enter_context(TemporaryDirectory()) if out is None else out
        folder = stack.enter_context(TrainFolder(path, spec, resume))
        missing = [(slot, run) for slot, run in enumerate(runs) if folder.read(run) is None]
        if missing:
            write_about(folder.path, about)
            pool = RunPool(min(processes or cores(), len(missing)), seeds, tuple(map(Path, plugins)))
            with pool:
                _play(folder, pool, missing, settings, seeds, tensorboard, report)
        kept: list[Any] = [folder.read(run) for run in runs]
        result = TrainResult(spec, kept, Policies.read(folder.path, spec["seeds"]))
        result.write_tables(folder.path)
        return result


def _play(
    folder: TrainFolder,
    pool: RunPool,
    missing: Sequence[tuple[int, RunSpec]],
    settings: AgentSettings,
    seeds: int,
    tensorboard: bool,
    report: Report | None,
) -> None:
    """Train the seeds that the folder does not hold."""
    done = settings.steps * (seeds - len(missing))
    futures = {}
    for slot, run in missing:
        policy = policy_file(folder.path, run.seed)
        board = folder.path / BOARD / f"seed-{run.seed}" if tensorboard else None
        futures[pool.play(run, slot, folder.checkpoint(run), policy=policy, board=board)] = run
    while futures:
        finished, _ = wait(futures, POLL_SECONDS, return_when="FIRST_COMPLETED")
        # Those that failed last, so that what is finished is kept.
        for future in sorted(finished, key=lambda one: one.exception() is not None):
            folder.write(futures.pop(future), *pool.result(future))
        if report is not None:
            report(f"{missing[0][1].agent} {settings.env}", done + pool.steps, settings.steps * seeds)
