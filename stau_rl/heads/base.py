"""What a head is: scores in, weights out."""

from dataclasses import fields
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from stau_rl.heads.normalise import check_scores, normalise_log, power_log, prepare, scaled_log
from stau_rl.heads.parameter import Range, Scheduled
from stau_rl.spec.grammar import format_spec
from stau_rl.spec.schedule import Schedule

MASS = {"simplex": "1", "sub": "at most 1", "free": "any"}
"""What the weights of a row sum to, in words, by `Head.mass_kind`."""


class Head(Scheduled):
    """A decision rule w = f(s) / sum f(s), as a frozen dataclass with a `name`.

    A subclass holds its parameters as fields, made by `stau_rl.heads.parameter`, and defines `log_f`, or
    `unchecked_log_weights` where a weight is no share of an elementwise map; everything else follows. A parameter may
    be a schedule; `at(t)` is the head of step t, and only that has weights.

    Attributes:
        name: the head's name in the registry and in text.
        formula: f(s), for tables.
        source: where it comes from.
        smooth_at_zero: d log f / ds exists at s = 0, so that slopes there can be matched.
        sharpness: the name of the parameter that sharpens the head, or None.
        finite_only: an unmasked score of -inf is refused; elsewhere it is the limit of ever lower scores.
        mass_kind: what the weights of a row sum to. `simplex`: 1. `sub`: between 0 and 1, the rest is the probability
            of abstaining. `free`: any non-negative number.
    """

    __slots__ = ()
    name: ClassVar[str]
    formula: ClassVar[str]
    source: ClassVar[str] = ""
    smooth_at_zero: ClassVar[bool] = True
    sharpness: ClassVar[str | None] = None
    finite_only: ClassVar[bool] = False
    mass_kind: ClassVar[Literal["simplex", "sub", "free"]] = "simplex"

    @property
    def idle(self) -> tuple[str, ...]:
        """Names of parameters that have no part in the head as it is."""
        return ()

    def __post_init__(self) -> None:
        """Check the parameters; schedules at a few steps."""
        self._check_ranges()

    def bind(self, **tensors: Tensor) -> Self:
        """This head with tensors in place of some parameters, so that gradients reach them.

        Args:
            **tensors: by parameter; each broadcasts against the scores, with size 1 along the axis of the entries.
                Their values are not checked.

        Raises:
            ValueError: the head has no such parameter.
        """
        if not torch.compiler.is_compiling():
            unknown = [name for name in tensors if name not in self._ranges()]
            if unknown:
                known = ", ".join(self._ranges()) or "none"
                raise ValueError(f"{self.name} has no parameter {unknown[0]!r}; its parameters: {known}")
        # Field by field, as torch.compile follows this and not copy.copy.
        bound = object.__new__(type(self))
        for field in fields(self):  # type: ignore[arg-type]
            object.__setattr__(bound, field.name, tensors.get(field.name, getattr(self, field.name)))
        return bound

    def fixed(self, value: Any) -> Any:
        """The value of a parameter, a number or a bound tensor, for use in `log_f`; a ValueError for a schedule."""
        if isinstance(value, Schedule):
            raise ValueError(f"{self} changes with t; head.at(t) is the head of step t")
        return value

    def log_f(self, scores: Tensor) -> Tensor:
        """Log of the non-negative map, elementwise, on float32 or float64 scores of any shape.

        Raises:
            NotImplementedError: the head looks at whole rows.
        """
        raise NotImplementedError(f"{self.name} has no elementwise map")

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values; for inner loops."""
        scores, mask = prepare(scores, mask)
        return normalise_log(self.log_f(scores), dim, mask)

    def log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights along an axis.

        Args:
            scores: floating-point tensor of any shape; computed in float64 if float64, else in float32.
            dim: the axis of the arms, actions or keys.
            mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.

        Returns:
            Log-weights in the dtype of `scores`; -inf under the mask.

        Raises:
            ValueError: for NaN or +inf (-inf too if `finite_only`) where unmasked, or a dtype that is no float.
        """
        check_scores(scores, mask, finite=self.finite_only)
        return self.unchecked_log_weights(scores, dim, mask).to(scores.dtype)

    def weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Weights along an axis: exactly 0 under the mask; arguments as in `log_weights`.

        They sum to the row's mass: to 1 for a simplex head, whose row of f = 0 throughout is uniform over its unmasked
        entries. A fully masked row is all 0.
        """
        check_scores(scores, mask, finite=self.finite_only)
        return self.unchecked_log_weights(scores, dim, mask).exp().to(scores.dtype)

    def weights_and_mass(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Weights along an axis and what they sum to; arguments and errors as in `log_weights`.

        Returns:
            The weights, and the mass of each row without the axis `dim`: exactly 1 for a simplex head, 0 for a row that
            has no unmasked entry. Both are differentiable.
        """
        check_scores(scores, mask, finite=self.finite_only)
        weights = self.unchecked_log_weights(scores, dim, mask).exp()
        if self.mass_kind != "simplex":
            return weights.to(scores.dtype), weights.sum(dim).to(scores.dtype)
        counted = torch.ones_like(weights, dtype=torch.bool) if mask is None else mask.expand(weights.shape)
        return weights.to(scores.dtype), counted.any(dim).to(scores.dtype)

    def slope_at_zero(self) -> float:
        """Slope d log f / ds at s = 0, by automatic differentiation in float64.

        Raises:
            ValueError: if the head is not smooth there.
        """
        if not self.smooth_at_zero:
            raise ValueError(f"{self.name} is not smooth at score 0, so it has no slope there; match the entropy")
        return float(self.slope(torch.zeros(1, dtype=torch.float64)))

    def slope(self, scores: Tensor) -> Tensor:
        """Slope d log f / ds at each score, in the shape and dtype of `scores` (float32 or float64)."""
        with torch.enable_grad():
            scores = scores.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.log_f(scores).sum(), scores)
        return slope

    def __str__(self) -> str:
        """Text of the head, which parses back to it."""
        return format_spec(self)


class PowerHead(Head):
    """A head with f(s) = x(s)^sharpness, sharpness > 0 (or 0: uniform): a subclass defines `log_x`."""

    __slots__ = ()
    sharpness: ClassVar[str]

    @property
    def exponent(self) -> Any:
        """The value of the sharpness, a number or a bound tensor."""
        return self.fixed(getattr(self, self.sharpness))

    def log_x(self, scores: Tensor) -> Tensor:
        """Log of x(s), elementwise, on float32 or float64 scores of any shape."""
        raise NotImplementedError(f"{self.name} has no log_x")

    def log_f(self, scores: Tensor) -> Tensor:
        """Sharpness times log x(s), elementwise; infinite where that overflows."""
        return scaled_log(self.exponent, self.log_x(scores))

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype without looking at the values; right where `log_f` overflows too."""
        scores, mask = prepare(scores, mask)
        log_f, _ = power_log(self.exponent, self.log_x(scores), dim, mask)
        return normalise_log(log_f, dim, mask)


def require_finite(head: str, name: str, value: float, *, low: float, strict: bool = False) -> None:
    """Raise a ValueError that names the argument unless `value` is finite and >= low (> low if strict)."""
    (Range(above=low) if strict else Range(low=low)).check(head, name, value)
