"""The tasks for attention heads; one file each, named by this registry."""

from stau_rl.envs.tasks.mqar import MultiQueryRecall
from stau_rl.envs.tasks.overwrite import Overwrite
from stau_rl.envs.tasks.passkey import Passkey
from stau_rl.envs.tasks.recall import Recall, Silence
from stau_rl.envs.tasks.task import Task
from stau_rl.spec.registry import Registry

TASKS: Registry[Task] = Registry("task", Recall, Silence, MultiQueryRecall, Passkey, Overwrite)


def parse_task(text: str) -> Task:
    """Read a task from text such as `recall(distractor_ratio=0.2)`; a SpecError says what is wrong."""
    return TASKS.parse(text)
