"""A head with parameters that are learned, each kept as an unbounded number."""

import torch
from torch import Tensor, nn

from stau_rl.heads import Head, parse_head
from stau_rl.heads.parameter import Range
from stau_rl.kernels.gpu.fused_head import head_log_weights
from stau_rl.nn.parameter_map import to_legal, to_raw


class LearnedHead(nn.Module):
    """A head whose learned parameters are `nn.Parameter`s; `bound_head` is the head they make.

    A learned parameter with a lower bound b is `b + softplus(log_NAME)`, one with an upper bound
    `b - softplus(log_NAME)`, one with both `low + (high - low) sigmoid(raw_NAME)`, one with none `raw_NAME` itself
    (`stau_rl.nn.parameter_map`); `log_NAME` or `raw_NAME` is the `nn.Parameter`.

    Args:
        head: text such as `s_tau(tau=2)`, or a head; plug-in heads included. A learned parameter starts at its value.
        learn: names of the parameters to learn.
        shape: shape of each learned parameter; it broadcasts against the scores without their last axis, so that
            `(heads,)` gives one value per head to scores [..., heads, entries].

    Raises:
        ValueError: an unknown head or parameter, one without an effect, a starting value on its bound, a schedule, or
            a `shape` with nothing to learn.
    """

    def __init__(self, head: str | Head, learn: tuple[str, ...] = (), shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.head = parse_head(head) if isinstance(head, str) else head
        self.learn = tuple(learn)
        self.shape = tuple(shape)
        if self.head.schedules:
            raise ValueError(f"{self.head} changes with t; give a module the head of one step, head.at(t)")
        if self.shape and not self.learn:
            raise ValueError(f"shape={self.shape} is that of learned parameters, and {self.head} has none here")
        # Learned parameters that no gradient moves, but an entropy control.
        self.controlled: set[str] = set()
        self._limits: dict[str, Range] = {}
        for name in self.learn:
            known = self.head._ranges()
            if name not in known:
                raise ValueError(
                    f"learn: {self.head.name} has no parameter {name!r}; it has {', '.join(known) or 'none'}"
                )
            if name in self.head.idle:
                raise ValueError(f"learn: {name!r} has no part in {self.head}, so nothing could learn it")
            self._limits[name] = known[name]
            start = to_raw(self.head.name, name, float(getattr(self.head, name)), known[name])
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
        return to_legal(raw, limits)

    def bound_head(self, dtype: torch.dtype | None = None) -> Head:
        """The head with its learned parameters bound as tensors that broadcast against the scores.

        Args:
            dtype: of the bound tensors, that of the scores they meet; None leaves them as `value` gives them.
        """
        if not self.learn:
            return self.head
        values = {name: self.value(name).to(dtype) if dtype else self.value(name) for name in self.learn}
        return self.head.bind(**{name: value.unsqueeze(-1) if self.shape else value for name, value in values.items()})

    def unchecked(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-weights [..., entries] along the last axis, float64 for float64 scores, else float32; values unseen."""
        working = torch.float64 if scores.dtype == torch.float64 else torch.float32
        return head_log_weights(self.bound_head(working), scores, mask)
