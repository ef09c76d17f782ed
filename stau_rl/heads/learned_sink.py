"""Softmax with a sink: one more entry, of a score of its own, that nobody can choose."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import prepare, share_log
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule


@dataclass(frozen=True, slots=True)
class LearnedSink(Head):
    """Weights exp(s) / (exp(b) + sum exp(s)); b is meant to be learned, per head.

    Source: the sinks of OpenAI's gpt-oss models, 2025; exp(b) = n gives `softmax_off_by_one(n)`.

    Attributes:
        b: score of the sink.
    """

    name: ClassVar[str] = "learned_sink"
    formula: ClassVar[str] = "exp(s), with exp(b) added to the sum"
    source: ClassVar[str] = "gpt-oss 2025"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "sub"

    b: float | Schedule = parameter(0.0)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        scores, mask = prepare(scores, mask)
        return share_log(scores, dim, mask, self.fixed(self.b))
