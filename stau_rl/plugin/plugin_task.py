"""Tasks of your own for attention heads: a class with items is enough.

>>> import torch
>>> from stau_rl.plugin.plugin_task import Draws, Task, forget_task, one_query, ranges, task
>>> @task("last")
... class Last(Task):
...     "Values, then a mark: the value before it."
...     places: int = 4
...     @property
...     def length(self):
...         return self.places + 1
...     @property
...     def kinds(self):
...         return ranges(keys=1, values=8)
...     def _items(self, draws: Draws):
...         values = 1 + draws.below(0, self.places, 8)
...         slot = torch.full_like(values[..., :1], self.places - 1)
...         return one_query(torch.cat([values, 0 * slot], -1), slot)
>>> str(Last(places=6))
'last(places=6)'
>>> forget_task("last")
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from stau_rl.envs.tasks import TASKS
from stau_rl.envs.tasks.check import check_task
from stau_rl.envs.tasks.task import Batch, Task, one_query, ranges
from stau_rl.envs.tasks.task_draws import Draws
from stau_rl.plugin.source import Source, source_of


def task(name: str, /) -> Callable[[type[Task]], type[Task]]:
    """Decorator that registers a task of your own, so that `stau-rl probe --task NAME` trains heads on it.

    The class becomes a frozen dataclass: its annotated fields, each with a default, are the task's parameters. It
    defines `length`, `kinds` and `_items(draws)`; `stau_rl.envs.tasks.task.Task` says what else it may. The first line
    of its docstring is the task in tables. Items are looked at before the task is registered.

    Args:
        name: the task's name in text.

    Returns:
        The class. The same code again gives the same class.

    Raises:
        ValueError: the name is taken or no identifier, a field has no default, or the items are not what a task's items
            are; the message says which.
    """

    def register(made: type[Task]) -> type[Task]:
        if not (isinstance(made, type) and issubclass(made, Task)):
            raise ValueError(f"task {name!r}: decorate a class derived from stau_rl.plugin.Task, got {made!r}")
        method = next((vars(made)[part] for part in ("_items", "items") if part in vars(made)), None)
        if not inspect.isfunction(method):
            raise ValueError(f"task {name!r}: the class needs a method _items(self, draws)")
        origin = source_of(method)
        known = TASKS.get(name)
        if known is not None:
            there = own_source(known)
            if there == origin:
                return known
            raise ValueError(
                f"task {name!r} is already registered{f' from {there.file}' if there else ''}; take another name, or "
                f"stau_rl.plugin.forget_task({name!r}) for a plug-in that has changed"
            )
        try:
            if not is_dataclass(made) or "__dataclass_fields__" not in vars(made):
                made = dataclass(frozen=True)(made)
            values: dict[str, Any] = {
                "name": name,
                "formula": (inspect.getdoc(made) or "a plug-in task").splitlines()[0].rstrip("."),
                "plugin": origin,
            }
            for attribute, value in values.items():
                setattr(made, attribute, value)
            sample = made()
        except TypeError as error:
            raise ValueError(f"task {name!r}: every field needs a default ({error})") from None
        check_task(sample)
        return TASKS.register(made)

    return register


def own_source(kind: type[Task]) -> Source | None:
    """Where the code of a task of your own comes from; None for a built-in one."""
    return getattr(kind, "plugin", None)


def forget_task(name: str) -> None:
    """Unregister a task of your own, so that changed code may register it again.

    Raises:
        ValueError: no such task has this name.
    """
    if name not in TASKS or own_source(TASKS[name]) is None:
        raise ValueError(f"no plug-in task is called {name!r}")
    TASKS.unregister(name)


__all__ = ["Batch", "Draws", "Task", "forget_task", "one_query", "own_source", "ranges", "task"]
