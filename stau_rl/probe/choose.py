"""Which settings of a plan a probe trains, chosen by task and normaliser."""

from collections.abc import Sequence
from dataclasses import replace

from stau_rl.envs.tasks import parse_task
from stau_rl.probe.group import split
from stau_rl.probe.plan import PART, Setting, plan
from stau_rl.probe.run import find_device


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


def count_groups(settings: Sequence[Setting], device: str) -> int:
    """How many groups of models a probe trains."""
    return len(split(settings, find_device(device)))
