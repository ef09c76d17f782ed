"""Softpick: a rectified softmax that may leave mass unspent."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import log_parameter, log_relu, prepare, share_log
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Softpick(Head):
    """Weights relu(exp(s) - 1) / (sum |exp(s) - 1| + eps): negative scores take mass away and get none.

    A score of -inf takes away 1. The gradient at a score of exactly 0 is 0.

    Source: Zuhri, Fuadi, Aji, "Softpick: no attention sink, no massive activations with rectified softmax", 2025.

    Attributes:
        eps: floor of the denominator, >= 0.
    """

    name: ClassVar[str] = "softpick"
    formula: ClassVar[str] = "relu(exp(s) - 1), over sum |exp(s) - 1|"
    source: ClassVar[str] = "Zuhri et al. 2025"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "sub"

    eps: float | Schedule = parameter(1e-8, low=0.0, show=False)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        scores, mask = prepare(scores, mask)
        size = scores.abs()
        # log |exp(s) - 1| = max(s, 0) + log(1 - exp(-|s|)).
        log_size = torch.where(scores > 0, scores, 0.0) + log_relu(-torch.expm1(-size))
        if mask is not None:
            log_size = torch.where(mask, log_size, -torch.inf)
        shares = share_log(log_size, dim, mask, log_parameter(self.fixed(self.eps), scores))
        return torch.where(scores > 0, shares, -torch.inf)
