"""Sigmoid attention: each entry is weighed on its own."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import count_entries, prepare, representable
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Sigmoid(Head):
    """Weights sigmoid(s - log n + b), n entries in the row that count; their sum may exceed 1.

    Source: Ramapuram et al., "Theory, analysis, and best practices for sigmoid self-attention", ICLR 2025.

    Attributes:
        b: added to the bias -log n, at which n scores of 0 have a mass just under 1.
    """

    name: ClassVar[str] = "sigmoid"
    formula: ClassVar[str] = "1 / (1 + n exp(-s - b)), not normalised"
    source: ClassVar[str] = "Ramapuram et al. 2025"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "free"

    b: float | Schedule = parameter(0.0, show=False)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        scores, mask = prepare(scores, mask)
        b = representable(self.fixed(self.b), scores.dtype)
        bias = b - count_entries(scores, dim, mask).clamp(min=1.0).log()
        log_f = logsigmoid(scores + bias)
        return log_f if mask is None else torch.where(mask, log_f, -torch.inf)
