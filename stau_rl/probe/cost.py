"""How long a probe will take on a GPU, from one counted step of each group: kernels it starts, bytes it moves.

The GPU is busy for a shortest time per kernel and for every byte that it reads or writes; a process needs longer than
that to start a kernel, so a few processes keep a GPU busy. The numbers of the machine fit an H200 on which eight
processes trained the whole plan; other machines differ, the order of the groups hardly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.envs.tasks import parse_task
from stau_rl.machine.threads import one_torch_thread
from stau_rl.probe.group import split
from stau_rl.probe.model import ProbeModels
from stau_rl.probe.plan import Setting
from stau_rl.probe.train import items

LAUNCH = 1e-5
"""Seconds that a process needs to start a kernel, autograd's share included."""
SHORTEST = 4e-6
"""Seconds that a GPU needs for a kernel however small."""
BANDWIDTH = 2.5e12
"""Bytes per second that small kernels reach."""
# A forward pass moves about a third of what a training step does.
_FORWARD = 1 / 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What one group takes.

    Attributes:
        group: the group.
        kernels: that a training step starts.
        launching: seconds that a process spends starting them.
        busy: seconds that it keeps the GPU busy.
    """

    group: Setting
    kernels: int
    launching: float
    busy: float

    @property
    def seconds(self) -> float:
        """Of the group alone on the GPU."""
        return max(self.launching, self.busy)


class _Counted(TorchDispatchMode):
    """Counts kernels and the bytes of what they read and write; a view is none."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels, self.bytes = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do it and count it."""
        found = func(*args, **(kwargs or {}))
        returns = func._schema.returns
        if not any(part.alias_info is not None and not part.alias_info.is_write for part in returns):
            self.kernels += 1
            self.bytes += _size((args, found))
        return found


def _size(parts: Any) -> int:
    if isinstance(parts, torch.Tensor):
        return parts.numel() * parts.element_size()
    return sum(_size(part) for part in parts) if isinstance(parts, tuple | list) else 0


def cost(group: Setting) -> Cost:
    """Count one step of a group, with one seed and one item per step, and scale it."""
    task, recipe = parse_task(group.task), group.recipe
    specs = [parse_attention(text) for text in group.normalisers]
    models = ProbeModels(task, specs, group.seeds[:1], group.shape, torch.device("cpu"))
    with one_torch_thread(), _Counted() as counted:
        batch = items(models, task, 0, 1)
        logits, _ = models.forward(batch)
        target = batch.target.repeat(len(specs), 1, 1)
        cross_entropy(logits.flatten(0, 2), target.flatten(), reduction="sum").backward()
    # Weights are read once a step whatever the batch: a part of the bytes that a single item overstates.
    weights = 3 * sum(_size(part) for part in models.trained())
    each = max(0, counted.bytes - weights) * len(group.seeds)
    step = each * recipe.batch + weights * len(group.seeds)
    lengths = sum((1, *group.factors))
    tests = math.ceil(group.items / recipe.batch)
    kernels = counted.kernels * (recipe.steps + _FORWARD * tests * len((1, *group.factors)))
    moved = step * recipe.steps + _FORWARD * each * group.items * lengths
    return Cost(group, counted.kernels, LAUNCH * kernels, SHORTEST * kernels + moved / BANDWIDTH)


def costs(settings: Sequence[Setting], device: str = "cuda") -> list[Cost]:
    """The cost of every group that the settings are cut into on a device."""
    return [cost(group) for group in split(settings, torch.device(device))]


def together(found: Sequence[Cost], processes: int) -> float:
    """Seconds of all groups with that many processes: they share out the launches, and take turns on one GPU."""
    if not found:
        return 0.0
    launching = max(sum(one.launching for one in found) / processes, max(one.launching for one in found))
    return max(launching, sum(one.busy for one in found))


def estimate(settings: Sequence[Setting], processes: int) -> str:
    """A line per group in the order of the plan, and the time of all; a ValueError for less than one process."""
    if processes < 1:
        raise ValueError(f"processes must be at least 1, got {processes}")
    found = costs(settings)
    lines = [
        f"{one.seconds:6.0f} s  {one.kernels:5} kernels a step  {len(one.group.normalisers) * len(one.group.seeds):4} "
        f"models  {one.group.part}: {one.group.title}"
        for one in found
    ]
    return "\n".join(
        [
            *lines,
            f"{len(found)} groups, about {together(found, processes):.0f} s on one H200 with {processes} processes",
        ]
    )
