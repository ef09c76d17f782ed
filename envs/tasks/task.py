"""What a task for an attention head is: contexts of slots, queries, and the slot that each query asks for."""

from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from stau_rl.envs.tasks.task_draws import Draws
from stau_rl.spec.grammar import format_spec

LARGEST = 1 << 20
"""Sizes beyond this fit no memory; numbers are drawn below 2^31."""


class Batch(NamedTuple):
    """Items of a task; `[...]` is the shape of the index that they were made for, n the length, q the queries of each.

    Attributes:
        tokens: int64 [..., n], the context and its queries.
        present: bool [..., n], False where a place is padding.
        query: int64 [..., q], the place of each query among the tokens.
        slot: int64 [..., q], the place of the value that is asked for; -1 where the key is absent.
        target: int64 [..., q], the token to answer with.
        loudness: float32 [..., n], factor on what each place says; 1 without amplitude noise.
    """

    tokens: Tensor
    present: Tensor
    query: Tensor
    slot: Tensor
    target: Tensor
    loudness: Tensor


class Task:
    """A task, as a frozen dataclass with a `name`.

    Item i of a seed is a function of (seed, i) and the fields alone: never of the batch, the device or what else is
    drawn.

    Attributes:
        name: the name in the registry and in text.
        formula: the task in a line, for tables.
        queries: questions per item.
        attends_itself: a query may attend to its own place.
    """

    __slots__ = ()
    name: ClassVar[str]
    formula: ClassVar[str]
    attends_itself: bool = True

    @property
    def queries(self) -> int:
        """Questions per item."""
        return 1

    @property
    def length(self) -> int:
        """Places of an item, queries and padding included."""
        raise NotImplementedError

    @property
    def kinds(self) -> dict[str, range]:
        """Token numbers by what they are, disjoint; `keys` and `values` always among them."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return max(part.stop for part in self.kinds.values())

    @property
    def chance(self) -> float:
        """Probability that a value drawn at random answers an answerable query."""
        return 1 / len(self.kinds["values"])

    @property
    def slot_chance(self) -> float:
        """Probability that a place drawn at random, of all before the last query, is the right slot."""
        return 1 / (self.length - 1)

    @property
    def loudness_spread(self) -> float:
        """Standard deviation of the logarithm of each place's loudness; 0 without amplitude noise."""
        return float(getattr(self, "amplitude", 0.0))

    @property
    def twins(self) -> tuple[range, range] | None:
        """Tokens made to look like others, and those others; None where there are none."""
        return None

    def items(self, seed: int | Tensor, index: Tensor) -> Batch:
        """Make items on the device of `index`.

        Args:
            seed: whole number in [0, 2^63), or int64 tensor that broadcasts against `index`.
            index: which items, int64 tensor of any shape.
        """
        return self._items(Draws(seed, index))

    def _items(self, draws: Draws) -> Batch:
        raise NotImplementedError

    def longer(self, factor: int) -> Self:
        """This task at `factor` times the length, over the same vocabulary.

        Raises:
            ValueError: the task has no longer form, or not by that factor.
        """
        raise ValueError(f"{self.name} has no longer form, got factor = {factor}")

    def _at_least(self, **bounds: float) -> None:
        """Raise a ValueError that names the first field below its bound, or that is no finite number; or too large."""
        for name, low in bounds.items():
            value = getattr(self, name)
            if not low <= value < float("inf"):
                raise ValueError(f"{self.name}: {name} must be finite and >= {low:g}, got {value!r}")
            if value > LARGEST:
                raise ValueError(f"{self.name}: {name} must be at most {LARGEST}, got {value!r}")

    def _share(self, name: str) -> None:
        value = getattr(self, name)
        if not 0 <= value <= 1:
            raise ValueError(f"{self.name}: {name} must lie in [0, 1], got {value!r}")

    def _one_of(self, name: str, *words: str) -> None:
        value = getattr(self, name)
        if value not in words:
            raise ValueError(f"{self.name}: {name} must be one of {', '.join(words)}, got {value!r}")

    def __str__(self) -> str:
        """Text of the task, which parses back to it."""
        return format_spec(self)


def ranges(**sizes: int) -> dict[str, range]:
    """Adjacent token ranges of the given sizes, in order; kinds of size 0 are left out."""
    found, start = {}, 0
    for name, size in sizes.items():
        if size:
            found[name] = range(start, start + size)
            start += size
    return found


def one_query(tokens: Tensor, slot: Tensor) -> Batch:
    """A batch of items of one query, the last of their places, none of which is padding or louder than others.

    Args:
        tokens: int64 [..., n].
        slot: int64 [..., 1], the place of the value that is asked for, which is the answer.
    """
    here = torch.ones_like(tokens, dtype=torch.bool)
    query = torch.full_like(slot, tokens.shape[-1] - 1)
    return Batch(tokens, here, query, slot, tokens.gather(-1, slot), here.float())


def loudness(draws: Draws, stream: int, length: int, amplitude: float) -> Tensor:
    """exp(amplitude z), z standard normal, for every place but the last: float32 [..., length]."""
    if amplitude == 0:
        like = draws.words(stream, 1)
        return torch.ones((*like.shape[:-1], length), device=draws.device)
    normal = torch.special.ndtri(draws.uniforms(stream, length)).float()
    normal[..., -1] = 0.0
    return (amplitude * normal).exp()
