"""Heads as modules: scores in, logits out, with learnable parameters of their own.

>>> import torch
>>> from stau_rl import STauHead
>>> head = STauHead(tau=5.0)
>>> logits = head(torch.tensor([[0.3, -1.2, 2.0, 0.0]]))
>>> torch.distributions.Categorical(logits=logits).probs.detach().round(decimals=4)
tensor([[0.0103, 0.0000, 0.9860, 0.0036]])
>>> sorted(head.state_dict())
['log_tau']
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from stau_rl.heads import Head, parse_head
from stau_rl.heads.normalise import check_scores
from stau_rl.heads.parameter import Range
from stau_rl.heads.s_tau import EPS
from stau_rl.kernels.fused_head import head_log_weights

if TYPE_CHECKING:
    from stau_rl.head_categorical import HeadCategorical


class HeadModule(nn.Module):
    """Any head as a module: logits are the log-weights of `scores + score_offset` along the last axis.

    A learned parameter with a lower bound b is `b + softplus(log_NAME)`, one with an upper bound
    `b - softplus(log_NAME)`, one with both `low + (high - low) sigmoid(raw_NAME)`, one with none `raw_NAME` itself;
    `log_NAME` or `raw_NAME` is the `nn.Parameter`. Since the logits contain it, whatever stores logits (or
    log-probabilities) stores its effect.

    Args:
        head: text such as `s_tau(tau=2)`, or a head; plug-in heads included. A learned parameter starts at its value.
        learn: names of the parameters to learn.
        shape: shape of each learned parameter; it broadcasts against the scores without their last axis, so that
            `(heads,)` gives one value per head to scores [..., heads, entries].
        score_offset: constant added to the scores, finite; it moves heads that are not shift-invariant.
        validate: refuse NaN and +inf scores outside the mask, which waits for the device; never inside `torch.compile`.

    Raises:
        ValueError: an unknown head or parameter, a starting value on its bound, a schedule, a `shape` with nothing to
            learn, or an offset that is not finite.
    """

    def __init__(
        self,
        head: str | Head,
        learn: tuple[str, ...] = (),
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        validate: bool = True,
    ) -> None:
        super().__init__()
        self.head = parse_head(head) if isinstance(head, str) else head
        self.learn = tuple(learn)
        self.shape = tuple(shape)
        self.score_offset = float(score_offset)
        self.validate = validate
        if self.head.schedules:
            raise ValueError(f"{self.head} changes with t; give a module the head of one step, head.at(t)")
        if not math.isfinite(self.score_offset):
            raise ValueError(f"score_offset must be finite, got {score_offset!r}")
        if self.shape and not self.learn:
            raise ValueError(f"shape={self.shape} is that of learned parameters, and {self.head} has none here")
        self._limits: dict[str, Range] = {}
        for name in self.learn:
            known = self.head._ranges()
            if name not in known:
                raise ValueError(
                    f"learn: {self.head.name} has no parameter {name!r}; it has {', '.join(known) or 'none'}"
                )
            self._limits[name] = known[name]
            start = _raw(self.head.name, name, getattr(self.head, name), known[name])
            self.register_parameter(self._key(name), nn.Parameter(torch.full(self.shape, start)))

    def _key(self, name: str) -> str:
        limits = self._limits[name]
        return f"log_{name}" if (limits.lower is None) != (limits.upper is None) else f"raw_{name}"

    def raw(self, name: str) -> nn.Parameter:
        """The unbounded `nn.Parameter` behind a learned parameter; a KeyError if it is not learned here."""
        parameter: nn.Parameter = getattr(self, self._key(name))
        return parameter

    def value(self, name: str) -> Tensor:
        """The value of a learned parameter, [*shape], float32 or float64; gradients reach `log_NAME` or `raw_NAME`.

        Raises:
            KeyError: it is not learned here.
        """
        limits, kept = self._limits[name], self.raw(name)
        raw = kept if kept.dtype == torch.float64 else kept.float()
        low, high = limits.lower, limits.upper
        if low is not None and high is not None:
            return low + (high - low) * raw.sigmoid()
        if low is not None:
            return low + softplus(raw)
        return raw if high is None else high - softplus(raw)

    def bound_head(self) -> Head:
        """The head with its learned parameters bound as tensors that broadcast against the scores."""
        if not self.learn:
            return self.head
        values = {name: self.value(name) for name in self.learn}
        return self.head.bind(**{name: value.unsqueeze(-1) if self.shape else value for name, value in values.items()})

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of the scores: log-weights along the last axis.

        Args:
            scores: floating-point, [..., entries].
            mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.

        Returns:
            Log-weights [..., entries], -inf under the mask; float64 for float64 scores, else float32, as
            half-precision logits would move probabilities by a percent.

        Raises:
            ValueError: bad scores, where `validate`.
        """
        if self.validate:
            check_scores(scores, mask, finite=self.head.finite_only)
        return head_log_weights(self.bound_head(), self.shifted(scores), mask)

    def shifted(self, scores: Tensor) -> Tensor:
        """The scores with the offset added, then float32 or float64."""
        if not self.score_offset:
            return scores
        return (scores if scores.dtype == torch.float64 else scores.float()) + self.score_offset

    def distribution(self, scores: Tensor, mask: Tensor | None = None) -> "HeadCategorical":
        """The distribution over the entries; for a head of mass below 1, abstaining is its last outcome."""
        from stau_rl.head_categorical import HeadCategorical

        return HeadCategorical(scores, self, mask)

    def extra_repr(self) -> str:
        """The head, what is learned, the offset."""
        parts = [str(self.head)]
        parts += [f"learn={self.learn}"] if self.learn else []
        parts += [f"shape={self.shape}"] if self.shape else []
        parts += [f"score_offset={self.score_offset:g}"] if self.score_offset else []
        return ", ".join(parts)


class STauHead(HeadModule):
    """s^tau as a module, tau = 1 + softplus(log_tau): logits tau log(softplus(s + score_offset) + eps) - log sum.

    A tau learned by the policy gradient alone tends to sharpen onto whatever is likely now; `stau_rl.remedies` has a
    learning rate of its own, a warm-up and an entropy target for it.

    Args:
        tau: exponent, or where it starts; >= 1, and > 1 if learned.
        learnable: learn it.
        shape: shape of the learned tau, as in `HeadModule`.
        score_offset: constant added to the scores; above 0 it moves small scores to the power-law side.
        eps: floor of the map, >= 0.
        validate: as in `HeadModule`.

    Raises:
        ValueError: an argument is out of range; the message names it.
    """

    def __init__(
        self,
        tau: float = 2.0,
        learnable: bool = True,
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        eps: float = EPS,
        validate: bool = True,
    ) -> None:
        from stau_rl.heads import STau

        super().__init__(STau(tau, eps), ("tau",) if learnable else (), shape, score_offset, validate)


class SoftmaxHead(HeadModule):
    """Softmax as a module, beta = softplus(log_beta) if learned: logits beta s - log sum.

    Args:
        beta: inverse temperature, or where it starts; >= 0, and > 0 if learned.
        learnable: learn it.
        shape: shape of the learned beta, as in `HeadModule`.
        score_offset: constant added to the scores, which changes nothing here: softmax is shift-invariant.
        validate: as in `HeadModule`.

    Raises:
        ValueError: an argument is out of range; the message names it.
    """

    def __init__(
        self,
        beta: float = 1.0,
        learnable: bool = False,
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        validate: bool = True,
    ) -> None:
        from stau_rl.heads import Softmax

        super().__init__(Softmax(beta), ("beta",) if learnable else (), shape, score_offset, validate)


class EscortHead(HeadModule):
    """Escort as a module, p = softplus(log_p) if learned: logits p log|s + score_offset| - log sum.

    Args:
        p: exponent, or where it starts; > 0.
        learnable: learn it.
        shape: shape of the learned p, as in `HeadModule`.
        score_offset: constant added to the scores.
        validate: as in `HeadModule`.

    Raises:
        ValueError: an argument is out of range; the message names it.
    """

    def __init__(
        self,
        p: float = 2.0,
        learnable: bool = False,
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        validate: bool = True,
    ) -> None:
        from stau_rl.heads import Escort

        super().__init__(Escort(p), ("p",) if learnable else (), shape, score_offset, validate)


def _raw(head: str, name: str, value: float, limits: Range) -> float:
    """Where the unbounded parameter starts, so that its value is `value`."""
    low, high = limits.lower, limits.upper
    if (low is not None and value <= low) or (high is not None and value >= high):
        inside = " and ".join(f"{sign} {end:g}" for sign, end in ((">", low), ("<", high)) if end is not None)
        raise ValueError(f"{head}: a learned {name} must start inside its range, {inside}, got {value!r}")
    if low is not None and high is not None:
        share = (value - low) / (high - low)
        return math.log(share) - math.log1p(-share)
    if low is not None or high is not None:
        excess = value - low if low is not None else high - value  # type: ignore[operator]
        # Inverse of softplus: log(expm1(x)) = x + log(1 - exp(-x)).
        return excess + math.log(-math.expm1(-excess))
    return float(value)
