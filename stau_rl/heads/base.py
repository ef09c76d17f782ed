"""What a head is: scores in, weights out."""

from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.heads.normalise import check_scores, normalise_log, prepare
from stau_rl.text import format_spec


class Head:
    """A decision rule w = f(s) / sum f(s), as a frozen dataclass with a `name`.

    A subclass holds its parameters as fields and defines `log_f`; everything else follows.

    Attributes:
        name: the head's name in the registry and in text.
        formula: f(s), for tables.
        source: where it comes from.
        smooth_at_zero: d log f / ds exists at s = 0, so that slopes there can be matched.
        sharpness: the name of the parameter that sharpens the head, or None.
        finite_only: an unmasked score of -inf is refused; elsewhere it is the limit of ever lower scores.
    """

    __slots__ = ()
    name: ClassVar[str]
    formula: ClassVar[str]
    source: ClassVar[str] = ""
    smooth_at_zero: ClassVar[bool] = True
    sharpness: ClassVar[str | None] = None
    finite_only: ClassVar[bool] = False

    def log_f(self, scores: Tensor) -> Tensor:
        """Log of the non-negative map, elementwise, on float32 or float64 scores of any shape."""
        raise NotImplementedError

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
        """Weights along an axis: exactly 0 under the mask, summing to 1; arguments as in `log_weights`.

        A row whose f is 0 throughout is uniform over its unmasked entries; a fully masked row is all 0.
        """
        check_scores(scores, mask, finite=self.finite_only)
        return self.unchecked_log_weights(scores, dim, mask).exp().to(scores.dtype)

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


def require_finite(head: str, name: str, value: float, *, low: float, strict: bool = False) -> None:
    """Raise a ValueError that names the argument unless `value` is finite and >= low (> low if strict)."""
    in_range = value > low if strict else value >= low
    if not (in_range and value < float("inf")):
        raise ValueError(f"{head}: {name} must be finite and {'>' if strict else '>='} {low:g}, got {value!r}")
