"""Passkey: one value hidden in a long stretch of noise."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from stau_rl.envs.tasks.task import Batch, Task, loudness, ranges
from stau_rl.envs.tasks.task_draws import Draws


@dataclass(frozen=True)
class Passkey(Task):
    """Passkey retrieval: noise, somewhere in it a marker and a value, then the marker again; the answer is the value.

    Attributes:
        places: tokens before the query.
        keys: tokens that are markers.
        values: tokens that are values.
        noise: tokens that mean nothing.

    Raises:
        ValueError: a field is out of its range.

    Source: Mohtashami and Jaggi, "Landmark attention", 2023, for the idea.
    """

    name: ClassVar[str] = "passkey"
    formula: ClassVar[str] = "noise, once k v at any depth, then k?: the value"
    places: int = 32
    keys: int = 8
    values: int = 32
    noise: int = 32

    def __post_init__(self) -> None:
        """Check the fields."""
        self._at_least(places=2, keys=1, values=1, noise=1)

    @property
    def length(self) -> int:
        """The places and the query."""
        return self.places + 1

    @property
    def kinds(self) -> dict[str, range]:
        """Markers, values, noise."""
        return ranges(keys=self.keys, values=self.values, noise=self.noise)

    def longer(self, factor: int) -> "Passkey":
        """`factor` times the noise."""
        if factor < 1:
            raise ValueError(f"{self.name}: factor must be at least 1, got {factor}")
        return replace(self, places=factor * self.places)

    def _items(self, draws: Draws) -> Batch:
        kinds = self.kinds
        tokens = draws.below(0, self.length, self.noise) + kinds["noise"].start
        key = draws.below(1, 1, self.keys) + kinds["keys"].start
        value = draws.below(2, 1, self.values) + kinds["values"].start
        depth = draws.below(3, 1, self.places - 1)
        query = torch.full_like(depth, self.length - 1)
        tokens = tokens.scatter(-1, depth, key).scatter(-1, depth + 1, value).scatter(-1, query, key)
        here = torch.ones_like(tokens, dtype=torch.bool)
        return Batch(tokens, here, query, depth + 1, value, loudness(draws, 8, self.length, 0.0))
