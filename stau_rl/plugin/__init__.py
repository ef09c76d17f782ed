"""What a user brings in one file: heads, which `head` makes of functions of scores, and tasks, made by `task`."""

from stau_rl.plugin.plugin_head import PluginHead, forget, head, parameter
from stau_rl.plugin.plugin_task import Batch, Draws, Task, forget_task, one_query, ranges, task

__all__ = [
    "Batch",
    "Draws",
    "PluginHead",
    "Task",
    "forget",
    "forget_task",
    "head",
    "one_query",
    "parameter",
    "ranges",
    "task",
]
