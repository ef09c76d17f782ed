"""Power norm: a power of what exceeds a threshold, with a gate that may switch the row off."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from stau_rl.heads.base import Head
from stau_rl.heads.look import seen_finite
from stau_rl.heads.normalise import count_entries, log_parameter, log_relu, power_log, prepare, representable, share_log
from stau_rl.heads.parameter import parameter
from stau_rl.spec.schedule import Schedule

GATES = ("hill", "sink", "clamp", "none")
CENTRES = ("none", "mean")


@dataclass(frozen=True, slots=True)
class PowerNorm(Head):
    """Weights g x^p / sum x^p, with x = relu(s - threshold) and a gate g in [0, 1] on the row.

    With m = max x: `hill` has g = m^p / (1 + m^p); `sink` g = sum x^p / (c^p + sum x^p); `clamp` g = min(1, m);
    `none` g = 1. A row with no score above the threshold has no weight and no gradient (a dead row).

    Attributes:
        p: exponent, > 0.
        threshold: what a score must exceed.
        gate: `hill`, `sink`, `clamp` or `none`.
        c: half-way point of the sink, > 0; for `gate=sink` alone.
        centre: `mean` subtracts the mean of the row's scores first (those that count and are not -inf); or `none`.
    """

    name: ClassVar[str] = "power_norm"
    formula: ClassVar[str] = "relu(s - threshold)^p, times a gate"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "sub"

    p: float | Schedule = parameter(10.0, above=0.0)
    threshold: float | Schedule = parameter(0.0)
    gate: str = field(default="clamp", metadata={"show": True})
    c: float | Schedule = parameter(1.0, above=0.0, show=False)
    centre: str = "none"

    def __post_init__(self) -> None:
        """Check the parameters."""
        Head.__post_init__(self)
        for name, value, known in (("gate", self.gate, GATES), ("centre", self.centre, CENTRES)):
            if value not in known:
                raise ValueError(f"power_norm: {name} must be one of {', '.join(known)}, got {value!r}")
        if self.gate != "sink" and self.c != 1.0:
            raise ValueError(f"power_norm: c belongs to gate=sink, got c={self.c} with gate={self.gate}")

    @property
    def idle(self) -> tuple[str, ...]:
        """The half-way point, where there is no sink."""
        return () if self.gate == "sink" else ("c",)

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        scores, mask = prepare(scores, mask)
        if scores.shape[dim] == 0:
            return scores
        log_x = self._log_excess(scores, dim, mask)
        if mask is not None:
            log_x = torch.where(mask, log_x, -torch.inf)
        p = representable(self.fixed(self.p), scores.dtype)
        if self.gate == "sink":
            # x^p / (c^p + sum x^p) = (x / c)^p / (1 + sum (x / c)^p).
            log_f, shift = power_log(p, log_x - log_parameter(self.fixed(self.c), scores), dim, mask, above=0.0)
            return share_log(log_f, dim, mask, -(p * shift))
        log_f, _ = power_log(p, log_x, dim, mask)
        return share_log(log_f, dim, mask) + self._log_gate(p, log_x.amax(dim, keepdim=True))

    def _log_excess(self, scores: Tensor, dim: int, mask: Tensor | None) -> Tensor:
        """Log of relu(s - threshold), also where the difference overflows."""
        threshold = representable(self.fixed(self.threshold), scores.dtype)
        x = self.centred(scores, dim, mask) - threshold
        if seen_finite(x):
            return log_relu(x)
        # A quarter of each term: their sum is finite.
        quarter = scores / 4 - threshold / 4
        if self.centre == "mean":
            quarter = quarter - _mean(scores, dim, mask, part=0.25)
        lost = ~x.isfinite() & ~torch.isneginf(scores)
        far = log_relu(torch.where(lost, quarter, 1.0)) + math.log(4.0)
        return torch.where(lost, far, log_relu(torch.where(lost, 1.0, x)))

    def centred(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """What the threshold is compared with: the scores, less their row's mean if `centre` says so."""
        return scores - _mean(scores, dim, mask) if self.centre == "mean" else scores

    def _log_gate(self, p: Any, log_m: Tensor) -> Tensor:
        if self.gate == "none":
            return torch.zeros_like(log_m)
        # A dead row has no weight, whatever its gate.
        log_m = torch.where(torch.isneginf(log_m), 0.0, log_m)
        return logsigmoid(p * log_m) if self.gate == "hill" else torch.where(log_m < 0, log_m, 0.0)


def _mean(scores: Tensor, dim: int, mask: Tensor | None, part: float = 1.0) -> Tensor:
    """Mean of the scores of each row that count and are finite, with size 1 along `dim`; 0 where there are none.

    A `part` of it below 1 is formed from terms whose sum is finite.
    """
    counted = ~torch.isneginf(scores) if mask is None else mask & ~torch.isneginf(scores)
    n = count_entries(scores, dim, counted).clamp(min=1.0)
    if part != 1.0:
        return (torch.where(counted, scores, 0.0) * (part / n)).sum(dim, keepdim=True)
    # From the largest, so that scores that are all equal have exactly their own mean, and nothing above it.
    top = torch.where(counted, scores, -torch.inf).detach().amax(dim, keepdim=True)
    top = torch.where(top.isneginf(), 0.0, top)
    return top + torch.where(counted, scores - top, 0.0).sum(dim, keepdim=True) / n
