"""A look at a task of one's own: that its items are what a task's items are, before a model is trained on them."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from stau_rl.envs.tasks.task import Batch, Task

ITEMS = 32
"""So many items are looked at."""
FIELDS = {
    "tokens": (torch.int64, "length"),
    "present": (torch.bool, "length"),
    "query": (torch.int64, "queries"),
    "slot": (torch.int64, "queries"),
    "target": (torch.int64, "queries"),
    "loudness": (torch.float32, "length"),
}
"""Type and last axis of each tensor of a batch."""


def check_task(task: Task) -> None:
    """Look at the first items of a task.

    Raises:
        ValueError: naming the task, and what of its items is wrong: a missing or overlapping range of tokens; a tensor
            of another shape or type; a token, place or answer outside its range; a right slot that its query cannot
            see, or that does not hold the answer; items that depend on the batch, or do not depend on their number or
            seed.
    """
    kinds = _kinds(task)
    index = torch.arange(ITEMS)
    batch = _made(task, 0, index)
    _shapes(task, batch)
    _ranges(task, batch, max(part.stop for part in kinds.values()))
    alone = [_made(task, 0, index[number : number + 1]) for number in (0, ITEMS // 2, ITEMS - 1)]
    seeds = torch.tensor([0, 1])[:, None]
    several = _made(task, seeds, index.expand(2, -1))
    for name, values in batch._asdict().items():
        for number, one in zip((0, ITEMS // 2, ITEMS - 1), alone, strict=True):
            if not torch.equal(getattr(one, name)[0], values[number]):
                _wrong(task, f"{name} of item {number} depends on which other items are made with it")
        if not torch.equal(getattr(several, name)[0], values):
            _wrong(task, f"{name} depends on whether seeds are made together; keep the leading axes of draws")
    if bool((batch.tokens == batch.tokens[:1]).all()):
        _wrong(task, "all items have the same tokens; draw them with draws.below, draws.distinct or draws.uniforms")
    if torch.equal(several.tokens[0], several.tokens[1]):
        _wrong(task, "the seed changes no token; draw with `draws` alone")


def _kinds(task: Task) -> dict[str, range]:
    try:
        kinds, sizes = task.kinds, (task.length, task.queries)
    except Exception as error:
        raise ValueError(f"task {task.name!r}: kinds, length or queries fail ({_reason(error)})") from error
    if not isinstance(kinds, dict) or not {"keys", "values"} <= set(kinds):
        _wrong(
            task, f"kinds must be a dictionary with keys and values, such as ranges(keys=8, values=8), got {kinds!r}"
        )
    spans = sorted((part.start, part.stop) for part in kinds.values())
    if spans[0][0] < 0 or any(first[1] > second[0] for first, second in pairwise(spans)):
        _wrong(task, f"kinds must be ranges that do not overlap, from 0 up, got {kinds}")
    for name, value, least in (("length", sizes[0], 2), ("queries", sizes[1], 1)):
        if not isinstance(value, int) or value < least:
            _wrong(task, f"{name} must be a whole number, at least {least}, got {value!r}")
    return kinds


def _made(task: Task, seed: int | Tensor, index: Tensor) -> Batch:
    try:
        batch = task.items(seed, index)
    except Exception as error:
        raise ValueError(f"task {task.name!r}: items of shape {list(index.shape)} fail ({_reason(error)})") from error
    if not isinstance(batch, Batch):
        _wrong(task, f"items must be a Batch, got {type(batch).__name__}")
    return batch


def _shapes(task: Task, batch: Batch) -> None:
    for name, (dtype, axis) in FIELDS.items():
        values, shape = getattr(batch, name), [ITEMS, getattr(task, axis)]
        if not isinstance(values, Tensor) or values.dtype != dtype or list(values.shape) != shape:
            got = f"{values.dtype} {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            _wrong(task, f"{name} of {ITEMS} items must be {dtype} {shape}, got {got}")


def _ranges(task: Task, batch: Batch, vocabulary: int) -> None:
    for name, values, low, high in (
        ("tokens", batch.tokens, 0, vocabulary),
        ("query", batch.query, 0, task.length),
        ("slot", batch.slot, -1, task.length),
        ("target", batch.target, 0, vocabulary),
    ):
        bad = (values < low) | (values >= high)
        if bool(bad.any()):
            _wrong(task, f"{name} must lie in [{low}, {high}), got {int(values[bad][0])}")
    there = batch.slot >= 0
    slot = batch.slot.clamp(min=0)
    unseen = there & (~batch.present.gather(-1, slot) | (slot >= batch.query))
    if bool(unseen.any()):
        _wrong(task, f"slot {int(slot[unseen][0])} is padding, or not before its query {int(batch.query[unseen][0])}")
    other = there & (batch.tokens.gather(-1, slot) != batch.target)
    if bool(other.any()):
        _wrong(
            task,
            f"slot {int(slot[other][0])} must hold the answer {int(batch.target[other][0])}, but holds "
            f"{int(batch.tokens.gather(-1, slot)[other][0])}",
        )
    if not bool((batch.loudness.isfinite() & (batch.loudness > 0)).all()):
        _wrong(task, "loudness must be finite and > 0")


def _wrong(task: Task, what: str) -> Any:
    raise ValueError(f"task {task.name!r}: {what}")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
