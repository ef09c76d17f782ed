"""Re-weighting: a second stage that sharpens the weights of any head and may leave a row dead."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from stau_rl.heads.base import Head
from stau_rl.heads.normalise import count_entries, log_relu, power_log, prepare, share_log
from stau_rl.heads.parameter import parameter
from stau_rl.heads.registry import HEADS
from stau_rl.heads.softplus_norm import SoftplusNorm
from stau_rl.spec.schedule import Schedule

# Up to this many entries nothing is subtracted.
FEW = 3


def log_reweight(log_weights: Tensor, p: Any, dim: int, mask: Tensor | None) -> Tensor:
    """Log of W ~ relu(A n - O)^p, for A = exp(log_weights) and n entries that count; O = 0 where n <= 3, else 1.

    An excess A n - 1 within rounding of A counts as 0, so that a row of equal weights is dead.
    """
    if log_weights.shape[dim] == 0:
        return log_weights
    n = count_entries(log_weights, dim, mask)
    offset = (n > FEW).to(n.dtype)
    log_excess = log_weights + n.clamp(min=1.0).log()
    excess = log_excess.exp() - offset
    least = 16.0 * torch.finfo(n.dtype).eps
    log_x = torch.where(offset == 0, log_excess, log_relu(torch.where(excess > least, excess, 0.0)))
    return share_log(power_log(p, log_x, dim, mask)[0], dim, mask)


@dataclass(frozen=True, slots=True)
class Reweight(Head):
    """Weights proportional to relu(A n - O)^p of the weights A of another head, n entries in the row that count.

    O = 1 where n > 3, so that an entry must have more than its fair share; else 0. A row of equal weights is dead:
    mass 0 and no gradient. `bind` reaches the parameters of `inner` too, except a `p`.

    Source: Gao and Spratling, "Softplus attention with re-weighting boosts length extrapolation in large
    language models", 2025.

    Attributes:
        inner: the first stage.
        p: exponent, > 0.
    """

    name: ClassVar[str] = "reweight"
    formula: ClassVar[str] = "relu(A n - O)^p, A = inner's weights"
    source: ClassVar[str] = "Gao & Spratling 2025"
    smooth_at_zero: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "sub"

    inner: Head = field(default_factory=SoftplusNorm, metadata={"registry": HEADS, "show": True})
    p: float | Schedule = parameter(3.0, above=0.0)

    @property
    def finite_only(self) -> bool:  # type: ignore[override]
        """Whether a score of -inf is refused, as the first stage does."""
        return self.inner.finite_only

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The parameters of both stages that change with t, by name."""
        inner = {f"inner.{name}": schedule for name, schedule in self.inner.schedules.items()}
        return inner | ({"p": self.p} if isinstance(self.p, Schedule) else {})

    def at(self, t: int) -> Self:
        """The head of step t, both stages; errors as in `Head.at`."""
        p = self.p.at(t) if isinstance(self.p, Schedule) else self.p
        return replace(self, inner=self.inner.at(t), p=p) if self.schedules else self

    def check_steps(self, horizon: int) -> None:
        """Raise a ValueError unless both stages are legal at t = 1, ..., horizon."""
        self.inner.check_steps(horizon)
        if isinstance(self.p, Schedule):
            self._ranges()["p"].check_steps(self.name, "p", self.p, horizon)

    def bind(self, **tensors: Tensor) -> Self:
        """This head with tensors for parameters: `p` is its own, every other name the first stage's."""
        rest = {name: value for name, value in tensors.items() if name != "p"}
        bound = Head.bind(self, **{name: value for name, value in tensors.items() if name == "p"})
        if rest:
            object.__setattr__(bound, "inner", self.inner.bind(**rest))
        return bound

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values."""
        working, full = prepare(scores, mask)
        return log_reweight(self.inner.unchecked_log_weights(working, dim, full), self.fixed(self.p), dim, full)
