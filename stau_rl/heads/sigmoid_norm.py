"""Sigmoid normalisation: f(s) = sigmoid(s)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import logsigmoid

from stau_rl.heads.base import Head


@dataclass(frozen=True, slots=True)
class SigmoidNorm(Head):
    """Weights proportional to sigmoid(s): softmax far below 0, saturated far above."""

    name: ClassVar[str] = "sigmoid_norm"
    formula: ClassVar[str] = "1 / (1 + exp(-s))"

    def log_f(self, scores: Tensor) -> Tensor:
        """Return log sigmoid(s)."""
        return logsigmoid(scores)
