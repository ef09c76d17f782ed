"""Training and testing the settings of a probe, group by group."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from stau_rl.files.finished import write_table
from stau_rl.machine.pool import require_guard
from stau_rl.machine.threads import cores
from stau_rl.probe.folder import COLUMNS, SUMMARY, TABLE, Maps, ProbeFolder
from stau_rl.probe.group import split, train_group
from stau_rl.probe.plan import Setting
from stau_rl.probe.pool import Played, ProbePool, named_errors
from stau_rl.probe.summary import summary

Report = Callable[[str, float], None]
"""Called with the name of a group and how many groups are done, the current one in part."""


def run_probe(
    settings: Sequence[Setting],
    device: str = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    plugins: Sequence[str | Path] = (),
    processes: int = 1,
) -> tuple[pd.DataFrame, list[Maps]]:
    """Train and test every setting, or read what the folder has.

    Args:
        settings: what to do.
        device: `cpu`, `cuda` or another torch device. On a GPU up to nine normalisers of a setting train together; on a
            CPU one after the other, each with all its seeds.
        out: a folder to fill.
        resume: the folder may hold finished groups.
        report: called as the work goes on.
        plugins: the files of plug-ins that were loaded; their content is part of a group's identity.
        processes: how many groups are trained at a time, each in a process of its own and on one thread; 1 for this
            process. Where there are more, a script needs the guard `if __name__ == "__main__":`.

    Returns:
        A row per setting, normaliser, seed and length, with the columns of `stau_rl.probe.folder`; and for each group
        its maps: `weights` [normalisers, examples, keys] of the first seed, `masses` [normalisers, 2, bins] of all
        seeds, `normalisers` and `setting`.

    Raises:
        ValueError: the device is not there, the folder is not free, there are no processes, or a group failed; what is
            finished is kept.
    """
    require_guard()
    where = find_device(device)
    if processes < 1:
        raise ValueError(f"--processes must be at least 1, got {processes}")
    groups = split(settings, where)
    digests = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in plugins]
    names = [f"{group.part.replace(' ', '_')}-{group.identity(where.type, digests)}" for group in groups]
    found: dict[int, tuple[pd.DataFrame, Maps]] = {}
    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(ProbeFolder(out, resume))
        told = report or (lambda name, done: None)
        for number, group in enumerate(groups):
            known = folder.read(names[number]) if folder is not None else None
            if known is not None:
                found[number] = known
                told(group.title, len(found))
        missing = [(number, group) for number, group in enumerate(groups) if number not in found]
        if min(processes, len(missing)) > 1:
            # The longest first, so that no process is left alone with it at the end.
            missing.sort(key=lambda one: -one[1].work)
            played = stack.enter_context(ProbePool(processes, where, plugins)).play(missing, names)
        else:
            played = _one_by_one(missing, names, where, lambda name, share: told(name, len(found) + share))
        for number, result, seconds in played:
            found[number] = result
            if folder is not None:
                folder.write(names[number], *result, seconds)
                found[number] = folder.read(names[number]) or result
            told(groups[number].title, len(found))
        tables, maps = zip(*(found[number] for number in range(len(groups))), strict=True)
        rows = pd.concat([table.dropna(axis=1, how="all") for table in tables], ignore_index=True)
        rows = rows.reindex(columns=list(COLUMNS))
        if folder is not None:
            write_table(folder.path / TABLE, rows)
            write_table(folder.path / SUMMARY, summary(rows))
            # Batch machines may lack what draws; a resumed run elsewhere draws from the same files.
            with suppress(ModuleNotFoundError):
                from stau_rl.probe.plot import save_figures

                save_figures(maps, folder.path)
    return rows, list(maps)


def _one_by_one(
    groups: Sequence[tuple[int, Setting]], names: Sequence[str], device: torch.device, report: Report
) -> Iterator[Played]:
    """Play groups in this process; `report` is called with the share that is done of each."""
    for number, group in groups:
        begun = time.perf_counter()
        with named_errors(group):
            found = train_group(group, names[number], device, partial(report, group.title))
        yield number, found, time.perf_counter() - begun


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
        raise ValueError(f"--device {text} is not there ({reason}); cpu always is") from None
    return device


def default_processes(device: str) -> int:
    """How many processes a device's work is shared among: one on a CPU, whose threads are torch's.

    On a GPU every second core drives one, up to 8: a process that trains small models waits for its own launches of
    kernels while the GPU idles.

    Raises:
        ValueError: the device is not there.
    """
    return 1 if find_device(device).type == "cpu" else max(1, min(8, cores() // 2))
