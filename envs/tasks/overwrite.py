"""Overwritten keys: the last value counts."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from stau_rl.envs.tasks.task import Batch, Task, loudness, ranges
from stau_rl.envs.tasks.task_draws import Draws


@dataclass(frozen=True)
class Overwrite(Task):
    """Recall from a memory that is written to more often than it has keys: the answer is what was written last.

    The item's keys are written in turns of random order, so that each is written once before any is overwritten.

    Attributes:
        pairs: distinct keys of an item.
        writes: pairs k v of an item, at least `pairs`.
        keys: tokens that are keys.
        values: tokens that are values; those of one item are distinct.

    Raises:
        ValueError: a field is out of its range.
    """

    name: ClassVar[str] = "overwrite"
    formula: ClassVar[str] = "k v k v ... with keys that come again, then k?: its last value"
    pairs: int = 4
    writes: int = 8
    keys: int = 32
    values: int = 32

    def __post_init__(self) -> None:
        """Check the fields."""
        self._at_least(pairs=1, writes=self.pairs, keys=self.pairs, values=self.writes)

    @property
    def length(self) -> int:
        """Two places for each write, and the query."""
        return 2 * self.writes + 1

    @property
    def kinds(self) -> dict[str, range]:
        """Keys and values."""
        return ranges(keys=self.keys, values=self.values)

    def _items(self, draws: Draws) -> Batch:
        chosen = draws.distinct(0, self.pairs, self.keys)
        turns = -(-self.writes // self.pairs)
        order = torch.cat([draws.distinct(16 + turn, self.pairs, self.pairs) for turn in range(turns)], -1)
        written = order[..., : self.writes]
        values = draws.distinct(1, self.writes, self.values) + self.kinds["values"].start
        asked = draws.below(2, 1, self.pairs)
        # The last write of the key that is asked for.
        number = torch.arange(self.writes, device=draws.device)
        last = torch.where(written == asked, number, -1).max(-1, keepdim=True).values
        query = chosen.gather(-1, asked)
        tokens = torch.cat([torch.stack([chosen.gather(-1, written), values], -1).flatten(-2), query], -1)
        here = torch.ones_like(tokens, dtype=torch.bool)
        at = torch.full_like(query, self.length - 1)
        return Batch(tokens, here, at, 2 * last + 1, values.gather(-1, last), loudness(draws, 8, self.length, 0.0))
