"""Associative recall in one question: which value stood behind this key, and does the head stay silent without one?"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.envs.tasks.task import Batch, Task, loudness, ranges
from stau_rl.envs.tasks.task_draws import Draws


@dataclass(frozen=True)
class Recall(Task):
    """Associative recall: k v k v ..., then a key; the answer is its value.

    Keys of an item are distinct, values are drawn with replacement. Distractors stand between the pairs in random
    order; a ratio that makes no whole number of them is met on average, by one more or one fewer.

    Attributes:
        pairs: pairs of an item.
        keys: tokens that are keys.
        values: tokens that are values.
        distractor_ratio: distractors per pair.
        distractors: what they are. `noise`: two tokens that mean nothing. `decoy`: a key that is never asked for, with
            a value. `near`: a value behind the twin of a key of the item, a token made to look like that key.
        amplitude: standard deviation of the logarithm of each place's loudness.
        unanswerable: share of the items whose query is a key that they do not hold.
        silence: what is to be answered to those. `residual`: the query itself, so that the head may add nothing.
            `null`: a token that says so.

    Raises:
        ValueError: a field is out of its range, or there are too few keys.
    """

    name: ClassVar[str] = "recall"
    formula: ClassVar[str] = "k v k v ... k?: the value behind the key"
    pairs: int = 8
    keys: int = 32
    values: int = 32
    distractor_ratio: float = 0.0
    distractors: str = "noise"
    amplitude: float = 0.0
    unanswerable: float = 0.0
    silence: str = "residual"

    def __post_init__(self) -> None:
        """Check the fields."""
        self._at_least(pairs=1, values=1, distractor_ratio=0, amplitude=0, keys=self.pairs + 1)
        # Normal draws are within 8.3 standard deviations: exp(8.3 amplitude) and its square are finite in float32.
        if self.amplitude > 5:
            raise ValueError(f"{self.name}: amplitude must be at most 5, got {self.amplitude!r}")
        self._share("unanswerable")
        self._one_of("distractors", "noise", "decoy", "near")
        self._one_of("silence", "residual", "null")

    @property
    def attends_itself(self) -> bool:  # type: ignore[override]
        """Not where silence is asked for: a query that sees itself could put its mass there."""
        return self.unanswerable == 0

    @property
    def most_distractors(self) -> int:
        """The most distractors that an item can have."""
        return math.ceil(round(self.distractor_ratio * self.pairs, 9))

    @property
    def length(self) -> int:
        """Two places for each pair and distractor, and the query."""
        return 2 * (self.pairs + self.most_distractors) + 1

    @property
    def kinds(self) -> dict[str, range]:
        """Keys, values, the tokens of distractors, `null` and `padding`, as far as they occur."""
        some = self.most_distractors > 0
        return ranges(
            keys=self.keys,
            values=self.values,
            **{self.distractors: self.keys if some else 0},
            null=int(self.silence == "null" and self.unanswerable > 0),
            padding=int(self.most_distractors != self.distractor_ratio * self.pairs),
        )

    @property
    def twins(self) -> tuple[range, range] | None:
        """The twins of keys, and the keys."""
        return (self.kinds["near"], self.kinds["keys"]) if "near" in self.kinds else None

    def longer(self, factor: int) -> "Recall":
        """`factor` times the pairs, drawn from the same keys."""
        if factor < 1 or factor * self.pairs >= self.keys:
            raise ValueError(
                f"{self.name}: factor = {factor} needs more than {factor * self.pairs} keys, of {self.keys}"
            )
        return replace(self, pairs=factor * self.pairs)

    def _items(self, draws: Draws) -> Batch:
        kinds = self.kinds
        keys = draws.distinct(0, self.pairs + 1, self.keys)
        held, absent = keys[..., :-1], keys[..., -1:]
        values = draws.below(1, self.pairs, self.values) + kinds["values"].start
        asked = draws.below(2, 1, self.pairs)
        silent = draws.uniforms(3, 1) < self.unanswerable
        query = torch.where(silent, absent, held.gather(-1, asked))
        units, present, places = self._units(draws, torch.stack([held, values], -1))
        target = torch.full_like(query, kinds["null"].start) if "null" in kinds else query
        target = torch.where(silent, target, values.gather(-1, asked))
        slot = torch.where(silent, -1, 2 * places.gather(-1, asked) + 1)
        tokens = torch.cat([units.flatten(-2), query], -1)
        here = torch.cat([present.repeat_interleave(2, -1), torch.ones_like(silent)], -1)
        at = torch.full_like(query, self.length - 1)
        return Batch(tokens, here, at, slot, target, loudness(draws, 8, self.length, self.amplitude))

    def _units(self, draws: Draws, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs and distractors in their order [..., units, 2], which are there, and where each pair went."""
        extra = self.most_distractors
        here = torch.ones_like(pairs[..., 0], dtype=torch.bool)
        if not extra:
            return pairs, here, torch.arange(self.pairs, device=pairs.device).expand_as(here)
        mean = self.distractor_ratio * self.pairs
        # All of them, or all but one: as often as the mean asks for.
        last = draws.uniforms(4, 1) >= extra - mean
        there = torch.cat([torch.ones_like(last).expand(*last.shape[:-1], extra - 1), last], -1)
        units = torch.cat([pairs, self._distractors(draws, pairs, extra)], -2)
        present = torch.cat([here, there], -1)
        # What is absent goes to the end, behind the rest in random order.
        order = torch.where(present, draws.words(5, units.shape[-2]) >> 1, torch.iinfo(torch.int64).max).argsort(-1)
        present = present.gather(-1, order)
        units = units.gather(-2, order[..., None].expand_as(units))
        if "padding" in self.kinds:
            units = torch.where(present[..., None], units, self.kinds["padding"].start)
        return units, present, order.argsort(-1)[..., : self.pairs]

    def _distractors(self, draws: Draws, pairs: Tensor, extra: int) -> Tensor:
        start = self.kinds[self.distractors].start
        values = draws.below(7, extra, self.values) + self.kinds["values"].start
        if self.distractors == "noise":
            return draws.below(6, 2 * extra, self.keys).unflatten(-1, (extra, 2)) + start
        if self.distractors == "decoy":
            return torch.stack([draws.below(6, extra, self.keys) + start, values], -1)
        of = draws.below(6, extra, self.pairs)
        return torch.stack([pairs[..., 0].gather(-1, of) + start, values], -1)


@dataclass(frozen=True)
class Silence(Recall):
    """Associative recall in which a share of the queries has no answer; the fields are those of `recall`."""

    name: ClassVar[str] = "silence"
    formula: ClassVar[str] = "recall, and silence where the key is absent"
    unanswerable: float = 0.5

    @property
    def attends_itself(self) -> bool:  # type: ignore[override]
        """Never, so that models trained on any share of unanswerable queries have the same keys to attend to."""
        return False
