"""Training and testing attention heads: `run_probe`, and the same for settings that are given whole."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from stau_rl.envs.tasks import parse_task
from stau_rl.machine.pool import require_guard
from stau_rl.machine.report import Report
from stau_rl.machine.threads import cores, one_torch_thread
from stau_rl.probe.choose import choose
from stau_rl.probe.folder import Maps, ProbeFolder
from stau_rl.probe.group import split, train_group
from stau_rl.probe.plan import Setting
from stau_rl.probe.pool import Played, ProbePool, named_errors
from stau_rl.probe.result import ProbeResult

MOST_PROCESSES = 8
PLACES = 10_000_000
"""Work of a process that is worth its start: places that a layer of a model is trained on, half a minute of a core."""


def run_probe(
    tasks: str | Sequence[str] = (),
    normalisers: str | Sequence[str] = (),
    size: str = "small",
    seeds: int | None = None,
    steps: int | None = None,
    items: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    plugins: Sequence[str | Path] = (),
    processes: int = 1,
    *,
    batch: int | None = None,
    learning_rate: float | None = None,
    width: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
) -> ProbeResult:
    """Train small attention heads and ask: do they find the right slot, and are they silent where there is none?

    Every normaliser is trained from the same starts on the same items, several seeds each.

    Examples:
        >>> import stau_rl
        >>> result = stau_rl.run_probe("silence", ["sm_fir", "pn_fir_tau"], seeds=2, steps=2, items=64, device="cpu")
        >>> rows = result.table()
        >>> float(rows.loc[rows["normaliser"] == "sm_fir", "mass_unanswerable"].min().round(6))
        1.0

    So few steps teach nothing, but softmax's mass is 1 whatever it learns: it cannot be silent.

    Args:
        tasks: parts of the plan such as `silence` or `length`, or tasks such as `recall(distractor_ratio=0.5)`, a
            plug-in's too; one text or several. Empty for the whole plan.
        normalisers: attention heads such as `sm_fir` or `power_norm(p=4)`; one text or several. Empty for the plan's.
        size: of the plan: `small` takes minutes on two cores, `full` minutes on a large GPU.
        seeds: how many, 0, 1, ...; by default 3 for `small`, 5 for `full`.
        steps: optimiser steps, in place of the plan's.
        items: test items per seed, in place of the plan's.
        device: `cpu`, `cuda`, another torch device, or `auto`: a GPU if there is one. On a GPU up to nine normalisers
            of a setting train together; on a CPU one after the other, each with all its seeds.
        out: a folder to fill, which `stau_rl.probe.folder` describes.
        resume: the folder may hold finished groups of models, which are not trained again.
        report: called with a group of models, its steps that are done (its test counts as one), and all of them.
        plugins: the files of plug-ins that were loaded, of heads or tasks; their content is part of a group's identity.
        processes: how many groups are trained at a time, each in a process of its own; 1 for this process. Where there
            are more, a script needs the guard `if __name__ == "__main__":`. Each trains on one thread.
        batch: items per step and model, in place of the plan's.
        learning_rate: its peak, in place of the plan's.
        width: of the residual stream, in place of the plan's.
        layers: attention layers, in place of the plan's.
        heads: attention heads per layer, each of width / heads, in place of the plan's.

    Returns:
        Rows, summary and figures.

    Raises:
        ValueError: a text does not parse, a number is out of range, the device is not there, the folder is not free, or
            a group failed; what is finished is kept.
    """
    settings = choose(size, tasks, normalisers, seeds, steps, items, batch, learning_rate, width, layers, heads)
    return run_settings(settings, device, out, resume, report, plugins, processes)


def run_settings(
    settings: Sequence[Setting],
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    plugins: Sequence[str | Path] = (),
    processes: int = 1,
) -> ProbeResult:
    """Train and test every setting, or read what the folder has; arguments, result and errors as in `run_probe`."""
    require_guard()
    where = find_device(device)
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    groups = split(settings, where)
    digests = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in plugins]
    names = [f"{group.part.replace(' ', '_')}-{group.identity(where.type, digests)}" for group in groups]
    found: dict[int, tuple[pd.DataFrame, Maps]] = {}
    told = report or (lambda title, done, total: None)

    def finished(number: int) -> None:
        told(groups[number].title, groups[number].units, groups[number].units)

    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(ProbeFolder(out, resume))
        for number in range(len(groups)):
            known = folder.read(names[number]) if folder is not None else None
            if known is not None:
                found[number] = known
                finished(number)
        missing = [(number, group) for number, group in enumerate(groups) if number not in found]
        if min(processes, len(missing)) > 1:
            # The longest first, so that no process is left alone with it at the end.
            missing.sort(key=lambda one: -one[1].work)
            pool = stack.enter_context(ProbePool(min(processes, len(missing)), where, plugins))
            played = pool.play(missing, names)
        else:
            played = _one_by_one(missing, names, where, told)
        for number, group, seconds in played:
            found[number] = group
            if folder is not None:
                folder.write(names[number], *group, seconds)
                found[number] = folder.read(names[number]) or group
            finished(number)
        result = ProbeResult.of([found[number] for number in range(len(groups))])
        if folder is not None:
            result.write_tables(folder.path)
    return result


def _one_by_one(
    groups: Sequence[tuple[int, Setting]], names: Sequence[str], device: torch.device, told: Report
) -> Iterator[Played]:
    """Train groups in this process."""

    def tick(group: Setting, done: int) -> None:
        told(group.title, done, group.units)

    for number, group in groups:
        begun = time.perf_counter()
        # Matrices this small gain nothing by threads, which wait for one another wherever a core is busy.
        with named_errors(group), one_torch_thread():
            found = train_group(group, names[number], device, partial(tick, group))
        yield number, found, time.perf_counter() - begun


def count_groups(settings: Sequence[Setting], device: str) -> int:
    """How many groups of models a probe trains."""
    return len(split(settings, find_device(device)))


def find_device(text: str) -> torch.device:
    """The torch device of a name; `auto` is CUDA where there is a GPU.

    Raises:
        ValueError: it is not there.
    """
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {text!r} is not there ({reason}); cpu always is") from None
    return device


def default_processes(device: str, settings: Sequence[Setting] = ()) -> int:
    """How many processes the command shares its work among, at most 8.

    On a CPU one per core, or fewer where the settings are soon trained: a process of its own takes as long to start as
    some groups take. On a GPU every second core drives one: a process that trains small models waits for its own
    launches of kernels while the GPU idles.

    Raises:
        ValueError: the device is not there.
    """
    if find_device(device).type != "cpu":
        return max(1, min(MOST_PROCESSES, cores() // 2))
    most = min(MOST_PROCESSES, cores())
    places = sum(one.work * len(one.seeds) * one.recipe.batch * parse_task(one.task).length for one in settings)
    return max(1, min(most, places // PLACES) if settings else most)
