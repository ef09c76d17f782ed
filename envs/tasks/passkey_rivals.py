"""Passkey among rivals: one pair is asked for, and pairs of other keys become more as the item grows."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from stau_rl.envs.tasks.task import Batch, Task, loudness, ranges
from stau_rl.envs.tasks.task_draws import Draws


@dataclass(frozen=True)
class PasskeyRivals(Task):
    """Passkey retrieval in which what competes grows with the length.

    The places are pairs of two: one holds the marker that is asked for and its value, every `spacing` places one more
    holds a rival, another marker with a value of its own, and the rest is noise, all in random order; then comes the
    marker again, and the answer is its value. An item of n places has n / spacing pairs, one of them the right one.
    Rivals' markers differ from the one asked for, but may repeat; values are drawn with replacement.

    Attributes:
        places: tokens before the query, even.
        keys: tokens that are markers.
        values: tokens that are values.
        noise: tokens that mean nothing.
        spacing: places per pair.

    Raises:
        ValueError: a field is out of its range, or no pair fits.

    Source: Mohtashami and Jaggi, "Landmark attention", 2023, for the idea of a passkey.
    """

    name: ClassVar[str] = "passkey_rivals"
    formula: ClassVar[str] = "noise, k v once, other k' v' at a fixed density, then k?: its value"
    places: int = 32
    keys: int = 32
    values: int = 32
    noise: int = 32
    spacing: int = 8

    def __post_init__(self) -> None:
        """Check the fields."""
        self._at_least(spacing=2, places=self.spacing, keys=2, values=1, noise=1)
        if self.places % 2:
            raise ValueError(f"{self.name}: places must be even, got {self.places}")

    @property
    def pairs(self) -> int:
        """Pairs of an item, the right one included."""
        return self.places // self.spacing

    @property
    def length(self) -> int:
        """The places and the query."""
        return self.places + 1

    @property
    def kinds(self) -> dict[str, range]:
        """Markers, values, noise."""
        return ranges(keys=self.keys, values=self.values, noise=self.noise)

    def longer(self, factor: int) -> "PasskeyRivals":
        """`factor` times the places, and as many times the pairs."""
        if factor < 1:
            raise ValueError(f"{self.name}: factor must be at least 1, got {factor}")
        return replace(self, places=factor * self.places)

    def _items(self, draws: Draws) -> Batch:
        kinds, pairs = self.kinds, self.pairs
        key = draws.below(1, 1, self.keys)
        # A rival's marker is any other one: a step of 1 to keys - 1 around the circle.
        others = (key + 1 + draws.below(4, pairs - 1, self.keys - 1)) % self.keys
        values = draws.below(2, pairs, self.values) + kinds["values"].start
        noise = draws.below(0, self.places, self.noise).unflatten(-1, (-1, 2)) + kinds["noise"].start
        written = torch.stack([torch.cat([key, others], -1) + kinds["keys"].start, values], -1)
        # The first places in random order are the right pair's and the rivals'.
        where = draws.distinct(3, pairs, self.places // 2)
        units = noise.scatter(-2, where[..., None].expand_as(written), written)
        query = key + kinds["keys"].start
        tokens = torch.cat([units.flatten(-2), query], -1)
        here = torch.ones_like(tokens, dtype=torch.bool)
        at = torch.full_like(query, self.length - 1)
        slot = 2 * where[..., :1] + 1
        return Batch(tokens, here, at, slot, values[..., :1], loudness(draws, 8, self.length, 0.0))
