"""`python -m stau_rl.probe.choose` does what `stau-rl probe` does, without the packages of the command line."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stau_rl.envs.tasks import parse_task
from stau_rl.plugin.load import load_plugins
from stau_rl.probe.group import split
from stau_rl.probe.plan import PART, SIZES, Setting, plan
from stau_rl.probe.run import default_processes, find_device, run_probe
from stau_rl.probe.summary import render
from stau_rl.terminal.console import wide_console
from stau_rl.terminal.counts import whole_number
from stau_rl.terminal.progress import nothing_yet, settings_bar


def chosen(
    size: str, tasks: Sequence[str], normalisers: Sequence[str], seeds: int | None = None, items: int | None = None
) -> list[Setting]:
    """The settings that some options ask for.

    Args:
        size: of the plan.
        tasks: names of its parts or of tasks, whose settings are kept; or full texts of tasks, which make settings of
            their own. Empty for all.
        normalisers: what is trained in place of the plan's; empty for the plan's.
        seeds: how many; 3 for small and 5 for full if not given.
        items: test items per seed, in place of the plan's.

    Raises:
        ValueError: a task is none, nothing is left, or a text does not parse.
    """
    settings = plan(size, (3 if size == "small" else 5) if seeds is None else seeds)
    kept: list[Setting] = [] if tasks else list(settings)
    for text in tasks:
        mine = [setting for setting in settings if setting.part == text]
        mine = mine or [setting for setting in settings if setting.task == text]
        if not mine:
            task = parse_task(text)
            # A task that the size leaves out is trained as the whole plan trains it.
            known = [*settings, *plan("full", len(settings[0].seeds))]
            like = next(setting for setting in known if parse_task(setting.task).name == task.name)
            mine = [replace(like, part=PART, task=text, factors=())]
        kept += [setting for setting in mine if setting not in kept]
    if normalisers:
        kept = [replace(setting, normalisers=tuple(dict.fromkeys(normalisers))) for setting in kept]
    if items is not None:
        if items < 1:
            raise ValueError(f"items must be at least 1, got {items}")
        kept = [replace(setting, items=items) for setting in kept]
    return kept


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.probe.choose", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--task", action="append", default=[], help="part of the plan, or text of a task; repeat it")
    parser.add_argument("--normaliser", action="append", default=[], help="attention head as text; repeat it")
    parser.add_argument("--seeds", type=whole_number, default=None, help="default: 3 for small, 5 for full")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    count = "groups trained at a time; default: 1 on the CPU, half the cores and at most 8 on a GPU"
    parser.add_argument("--processes", type=whole_number, default=None, help=count)
    parser.add_argument("--plugin", action="append", default=[], type=Path, help="a Python file; repeat it")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--resume", action="store_true", help="keep the groups that --out holds already")
    options = parser.parse_args(arguments)
    try:
        load_plugins(options.plugin)
        settings = chosen(options.size, options.task, options.normaliser, options.seeds)
        total = count_groups(settings, options.device)
        processes = default_processes(options.device) if options.processes is None else options.processes
        where = (options.device, options.out, options.resume)
        with settings_bar(total, nothing_yet(options.out, options.resume)) as report:
            rows, _ = run_probe(settings, *where, report, options.plugin, processes)
    except KeyboardInterrupt:
        parser.exit(130, "stopped; finished groups are kept: repeat the command with --resume to go on\n")
    except (OSError, ValueError) as error:
        parser.error(" ".join(str(error).split()))
    wide_console().print(render(rows))
    print(f"all rows: {options.out / 'probe.csv'}")


def count_groups(settings: Sequence[Setting], device: str) -> int:
    """How many groups of models a probe trains."""
    return len(split(settings, find_device(device)))


if __name__ == "__main__":
    main()
