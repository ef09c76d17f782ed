"""Multi-query associative recall: all pairs first, then every key again somewhere among fillers."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from stau_rl.envs.tasks.task import Batch, Task, loudness, ranges
from stau_rl.envs.tasks.task_draws import Draws


@dataclass(frozen=True)
class MultiQueryRecall(Task):
    """Multi-query associative recall, after Zoology's generator.

    Pairs k v k v ... with distinct keys and distinct values, then every key once more at an even place, its value being
    the answer there. The places are drawn without replacement with P(gap g) ~ (g + 1)^(power - 1), a key's gap
    counted in pairs of places. Every other place is filler. All of it follows from the seed, the fillers too.

    Attributes:
        places: tokens of an item, even.
        pairs: pairs, each asked once.
        tokens: vocabulary; number 0 is nothing, the lower half are keys, the upper half values.
        power: exponent of the gaps' law; small values put queries early.
        filler: `any` draws fillers from the whole vocabulary, as Zoology does, keys and values included; `nothing`
            leaves token 0.

    Raises:
        ValueError: a field is out of its range, or the pairs do not fit.

    Source: Arora et al., "Zoology: Measuring and improving recall in efficient language models", 2023.
    """

    name: ClassVar[str] = "mqar"
    formula: ClassVar[str] = "k v k v ... then every key again among fillers: its value"
    places: int = 64
    pairs: int = 4
    tokens: int = 256
    power: float = 0.01
    filler: str = "any"

    def __post_init__(self) -> None:
        """Check the fields."""
        self._at_least(pairs=1, tokens=2 * self.pairs + 2, places=4 * self.pairs)
        self._one_of("filler", "any", "nothing")
        if not 0 < self.power < float("inf"):
            raise ValueError(f"{self.name}: power must be finite and > 0, got {self.power!r}")
        if self.places % 2 or self.tokens % 2:
            raise ValueError(f"{self.name}: places and tokens must be even, got {self.places} and {self.tokens}")

    @property
    def queries(self) -> int:
        """One per pair."""
        return self.pairs

    @property
    def length(self) -> int:
        """All places."""
        return self.places

    @property
    def kinds(self) -> dict[str, range]:
        """Token 0, keys, values."""
        return ranges(nothing=1, keys=self.tokens // 2 - 1, values=self.tokens // 2)

    def _items(self, draws: Draws) -> Batch:
        kinds, context = self.kinds, 2 * self.pairs
        keys = draws.distinct(0, self.pairs, len(kinds["keys"])) + kinds["keys"].start
        values = draws.distinct(1, self.pairs, len(kinds["values"])) + kinds["values"].start
        space = (self.places - context) // 2
        # Gumbel's trick: the largest of log p + Gumbel are draws without replacement in proportion to p.
        log_law = (self.power - 1) * torch.arange(1, space + 1, device=draws.device).double().log()
        gaps = (log_law - (-draws.uniforms(2, space).log()).log()).topk(self.pairs, dim=-1).indices
        query = context + 2 * gaps
        if self.filler == "any":
            rest = draws.below(3, self.places - context, self.tokens)
        else:
            rest = draws.words(3, self.places - context) * 0
        tokens = torch.cat([torch.stack([keys, values], -1).flatten(-2), rest], -1).scatter(-1, query, keys)
        slot = (2 * torch.arange(self.pairs, device=draws.device) + 1).expand_as(query)
        return Batch(
            tokens,
            torch.ones_like(tokens, dtype=torch.bool),
            query,
            slot,
            values,
            loudness(draws, 8, self.places, 0.0),
        )
