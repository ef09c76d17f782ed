"""Argmax: all weight on the largest score, ties split evenly."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import normalise_log, prepare


@dataclass(frozen=True, slots=True)
class Argmax(Head):
    """All weight on the largest score; m scores tied at the top have weight 1/m each. Its gradient is 0."""

    name: ClassVar[str] = "argmax"
    formula: ClassVar[str] = "1 where s is the maximum"
    smooth_at_zero: ClassVar[bool] = False

    def log_f(self, scores: Tensor) -> Tensor:
        """Argmax looks at a whole row, so it has no elementwise map."""
        raise NotImplementedError("argmax has no elementwise map")

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        scores, mask = prepare(scores, mask)
        if scores.shape[dim] == 0:
            return scores
        counted = scores if mask is None else torch.where(mask, scores, -torch.inf)
        top = counted == counted.amax(dim, keepdim=True)
        # A product with the scores keeps the graph, with a gradient of exactly 0.
        return normalise_log(torch.where(top, 0.0 * torch.where(top, 0.0, scores), -torch.inf), dim, mask)
