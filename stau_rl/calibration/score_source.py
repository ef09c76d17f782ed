"""Captured scores read a few rows at a time: which entries count, and a look at them before anything is computed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.calibration.optimal_tau import LARGEST_SCORE
from stau_rl.calibration.tau_problem import Each, Rows

ENTRIES = 1 << 16
"""Scores that are worked on at a time: what is made of them stays in a core's cache."""
KEPT = 1 << 20
"""Scores of which everything is kept from one pass over them to the next."""
LOOKS_MASKED = -1000.0
"""Unmasked scores below this look like somebody's mask: -1e4, float16's -65504, finfo.min, or one added to scores."""
Place = tuple[int, int]


class Array(Protocol):
    """What scores are held in: a tensor, an array, or a file that gives a head at a time."""

    @property
    def shape(self) -> Sequence[int]:
        """Layers, heads, queries, keys."""

    def __getitem__(self, place: Any, /) -> Any:
        """The scores of a layer and head, [queries, keys]."""


@dataclass(slots=True)
class Part:
    """Some rows of one head.

    Attributes:
        read: gives their scores, float64 [rows, keys], and which entries count.
        eps: floor of s^tau's map.
        keep: what is made of them is kept.
    """

    read: Callable[[], tuple[Tensor, Tensor]]
    eps: float
    keep: bool
    _rows: Rows | None = field(default=None, init=False)

    def rows(self) -> Rows:
        """The rows for the nearest tau."""
        if self._rows is not None:
            return self._rows
        scores, counted = self.read()
        made = Rows(scores[None], counted[None], self.eps)
        if self.keep:
            self._rows = made
        return made


@dataclass(frozen=True, slots=True)
class Look:
    """What a first look at the scores of a head found.

    Attributes:
        alive: which of the rows have a key, numbers of queries.
        counted: how many scores count.
        suspects: how many of them look masked.
        lowest: the lowest of these, or 0.
    """

    alive: Tensor
    counted: int
    suspects: int
    lowest: float


class Source:
    """Scores [layers, heads, queries, keys] and the rule which of them count.

    Args:
        scores: the scores.
        mask: boolean, in their shape; True where an entry counts.
        causal: query i of Q may look at keys up to i + K - Q only.
        masked_below: scores lower than this do not count; None for all.
    """

    def __init__(self, scores: Array, mask: Array, causal: bool, masked_below: float | None) -> None:
        self.scores, self.mask, self.causal, self.masked_below = scores, mask, causal, masked_below
        self.layers, self.heads, self.queries, self.keys = scores.shape

    @property
    def places(self) -> list[Place]:
        """Layer and head of each head, in order."""
        return [(layer, head) for layer in range(self.layers) for head in range(self.heads)]

    def look(self, place: Place, rows: Tensor, each: Each) -> Look:
        """Look at some rows of a head.

        Raises:
            ValueError: a score that counts is NaN, +inf or beyond +-1e300.
        """
        found = each(partial(self._look, place), self._pieces(rows))
        bad = sum(count for count, _ in found)
        if bad:
            layer, head = place
            raise ValueError(f"scores of layer {layer}, head {head} hold {bad} NaN or +inf where unmasked")
        looks = [look for _, look in found]
        return Look(
            torch.cat([look.alive for look in looks]),
            sum(look.counted for look in looks),
            sum(look.suspects for look in looks),
            min(look.lowest for look in looks),
        )

    def parts(self, rows: Mapping[Place, Tensor], eps: float) -> list[Part]:
        """Some rows of some heads in parts; every one of them has a key that counts."""
        keep = sum(map(len, rows.values())) * self.keys <= KEPT
        pieces = [(place, piece) for place, some in rows.items() for piece in self._pieces(some)]
        return [Part(partial(self._read, place, piece), eps, keep) for place, piece in pieces]

    def _pieces(self, rows: Tensor) -> Iterator[Tensor]:
        yield from rows.split(max(1, ENTRIES // self.keys)) if len(rows) else ()

    def _read(self, place: Place, rows: Tensor) -> tuple[Tensor, Tensor]:
        part = _taken(self.scores[place], rows, torch.float64)
        counted = _taken(self.mask[place], rows, torch.bool) & ~torch.isneginf(part)
        if self.causal:
            counted &= torch.arange(self.keys) <= rows[:, None] + (self.keys - self.queries)
        if self.masked_below is not None:
            # What is NaN is not lower, and is reported.
            counted &= ~(part < self.masked_below)
        return part, counted

    def _look(self, place: Place, rows: Tensor) -> tuple[int, Look]:
        part, counted = self._read(place, rows)
        bad = int((counted & ~torch.isfinite(part)).sum())
        if bool((counted & (part.abs() > LARGEST_SCORE) & part.isfinite()).any()):
            raise ValueError(f"scores must lie within +-{LARGEST_SCORE:g} where finite, or their covariance overflows")
        suspect = counted & (part < LOOKS_MASKED)
        lowest = float(torch.where(suspect, part, 0.0).min())
        return bad, Look(rows[counted.any(-1)], int(counted.sum()), int(suspect.sum()), lowest)


def _taken(values: Tensor | NDArray[Any], rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Some rows as a tensor of its own on the CPU: arrays may be read-only, reversed, or of another byte order."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    # Rows that follow one another are read in one go.
    some: Any = slice(first, last) if last - first == len(rows) else rows.numpy()
    if isinstance(values, Tensor):
        chosen = values[some] if isinstance(some, slice) else values[rows.to(values.device)]
        return chosen.detach().to("cpu", dtype, copy=True)
    return torch.from_numpy(np.array(values[some], dtype=np.bool_ if dtype == torch.bool else np.float64))


def drawn_rows(count: int, wanted: int, seed: int, number: int) -> Tensor:
    """Numbers of `wanted` of `count` rows in rising order, drawn without replacement by seed and number of the head."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, number))))
    return torch.from_numpy(np.sort(generator.choice(count, wanted, replace=False)))
