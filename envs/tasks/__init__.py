"""The tasks for attention heads; one file each, named by this registry."""

from stau_rl.envs.tasks.mqar import MultiQueryRecall
from stau_rl.envs.tasks.overwrite import Overwrite
from stau_rl.envs.tasks.passkey import Passkey
from stau_rl.envs.tasks.passkey_rivals import PasskeyRivals
from stau_rl.envs.tasks.recall import Recall, Silence
from stau_rl.envs.tasks.task import Task
from stau_rl.spec.registry import Registry

TASKS: Registry[Task] = Registry("task", Recall, Silence, MultiQueryRecall, Passkey, PasskeyRivals, Overwrite)


def parse_task(text: str) -> Task:
    """Read a task for attention heads from text.

    Examples:
        >>> import torch
        >>> from stau_rl import parse_task
        >>> task = parse_task("recall(pairs=2, keys=4, values=3)")
        >>> task.items(seed=0, index=torch.arange(6)).tokens.shape
        torch.Size([6, 5])

    Args:
        text: a name of `TASKS`, with its fields in brackets where they are not the defaults.

    Returns:
        The task; `str` of it reads back to an equal one.

    Raises:
        SpecError: saying which part is wrong and what would be accepted.
    """
    return TASKS.parse(text)
