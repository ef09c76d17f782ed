"""Rectified linear attention: weights relu(s), with no normalisation at all."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import log_relu, prepare


@dataclass(frozen=True, slots=True)
class Rela(Head):
    """Weights relu(s); their sum is any non-negative number, and what they are applied to is normalised downstream.

    Source: Zhang, Titov, Sennrich, "Sparse attention with linear units", EMNLP 2021.
    """

    name: ClassVar[str] = "rela"
    formula: ClassVar[str] = "relu(s), not normalised"
    source: ClassVar[str] = "Zhang et al. 2021"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "free"

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        scores, mask = prepare(scores, mask)
        log_f = log_relu(scores)
        return log_f if mask is None else torch.where(mask, log_f, -torch.inf)
