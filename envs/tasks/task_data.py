"""A task as a torch data set."""

import torch
from torch.utils.data import Dataset

from stau_rl.envs.tasks.task import Batch, Task
from stau_rl.envs.tasks.task_draws import check_seed


class TaskDataset(Dataset[Batch]):
    """The first `size` items of a task, made when they are asked for.

    Item i is that of `task.items(seed, i)`: a named tuple of tensors without a batch axis, which PyTorch's loaders
    stack.

    Args:
        task: the task.
        size: how many items.
        seed: whole number in [0, 2^63).

    Raises:
        ValueError: the size or the seed is out of range.
    """

    def __init__(self, task: Task, size: int, seed: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"size must be a whole number, at least 1, got {size!r}")
        self.task, self.size, self.seed = task, size, check_seed(seed)

    def __len__(self) -> int:
        """How many items."""
        return self.size

    def __getitem__(self, index: int) -> Batch:
        """Item number `index`, counted from the end if negative."""
        if not -self.size <= index < self.size:
            raise IndexError(f"index must lie in [{-self.size}, {self.size}), got {index}")
        return self.task.items(self.seed, torch.tensor(index % self.size))
