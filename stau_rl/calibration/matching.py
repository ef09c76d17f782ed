"""Parameters that make one head as sharp as another."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from scipy.optimize import brentq
from torch import Tensor

from stau_rl.heads import Head, parse_head
from stau_rl.heads.normalise import check_scores

# The sharpness parameter is searched for between these.
SMALLEST, LARGEST = 1e-12, 1e12
# Two mean entropies closer than this, relative to max(1, entropy), are equal.
ENTROPY_TOLERANCE = 1e-13


def match_sharpness(
    reference: Head | str,
    family: Head | str,
    on: Literal["slope", "entropy"] = "slope",
    scores: Tensor | None = None,
    mask: Tensor | None = None,
    dim: int = -1,
) -> Head:
    """A head of a family with its sharpness parameter set so that it is as sharp as a reference head.

    `on="slope"` matches d log f / ds at s = 0: softmax matched to s_tau(tau, eps=0) has beta = tau / (2 ln 2). It needs
    heads smooth at 0, whose log f is proportional to the parameter. `on="entropy"` matches the mean entropy on given
    scores by bracketed root finding in the logarithm of the parameter; it serves every head with one.

    Args:
        reference: the head to match, or its text, such as `s_tau(tau=5)`.
        family: a head whose other parameters are kept, or its text, such as `softmax` or `s_tau(eps=0)`.
        on: what is matched, `slope` or `entropy`.
        scores: for `on="entropy"` alone: floating-point tensor of any shape.
        mask: for `on="entropy"` alone: boolean tensor that broadcasts against `scores`, True where an entry counts.
        dim: the axis of the arms, actions or keys in `scores`.

    Returns:
        The family's head with its `sharpness` field replaced. If every value of it matches, `family` itself.

    Raises:
        ValueError: if the family has no sharpness parameter, a head is not smooth at 0, no legal parameter reaches the
            target (the message gives the reachable range), or the arguments do not fit `on`.

    Examples:
        >>> import stau_rl
        >>> print(stau_rl.match_sharpness("s_tau(tau=5, eps=0)", "softmax"))
        softmax(beta=3.6067376022224087)
    """
    reference = parse_head(reference) if isinstance(reference, str) else reference
    family = parse_head(family) if isinstance(family, str) else family
    for head in (reference, family):
        if head.schedules:
            raise ValueError(f"{head} changes with t, so its sharpness does; match head.at(t), the head of one step")
    if family.sharpness is None:
        raise ValueError(f"{family.name} has no sharpness parameter to set")
    if on == "slope":
        if scores is not None or mask is not None:
            raise ValueError("scores and mask belong to on='entropy'; on='slope' looks at score 0 alone")
        return _match_slope(reference, family, family.sharpness)
    if on != "entropy":
        raise ValueError(f"on must be 'slope' or 'entropy', got {on!r}")
    if scores is None:
        raise ValueError("on='entropy' needs scores")
    return match_entropy(reference, family, lambda head: mean_entropy(head, scores, dim, mask))


def mean_entropy(head: Head, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> float:
    """Mean over the rows of the entropy -sum w log w of a head's weights, in nats, computed in float64.

    Args:
        head: the head.
        scores: floating-point tensor of any shape.
        dim: the axis of the arms, actions or keys.
        mask: boolean tensor that broadcasts against `scores`, True where an entry counts. Fully masked rows are
            left out.

    Raises:
        ValueError: for a head whose weights need not sum to 1, NaN or +inf where unmasked, or where no row has an
            unmasked entry.
    """
    if head.mass_kind != "simplex":
        raise ValueError(f"the weights of {head} need not sum to 1, so they have no entropy to match")
    check_scores(scores, mask, finite=head.finite_only)
    with torch.no_grad():
        log_weights = head.unchecked_log_weights(scores.double(), dim, mask)
        entropy = torch.special.entr(log_weights.exp()).sum(dim)
        counted = torch.ones_like(log_weights, dtype=torch.bool) if mask is None else mask.expand_as(log_weights)
        rows = entropy[counted.any(dim)]
    if rows.numel() == 0:
        raise ValueError(f"scores must have a row with an unmasked entry, got shape {tuple(scores.shape)}")
    return float(rows.mean())


def _match_slope(reference: Head, family: Head, name: str) -> Head:
    target = reference.slope_at_zero()
    value = target / _with(family, name, 1.0).slope_at_zero()
    try:
        return _with(family, name, value)
    except ValueError as error:
        raise ValueError(
            f"no {family.name} has the slope {target:g} of {reference} at score 0: it would need {name}={value:g}, "
            f"but {error}"
        ) from None


def match_entropy(reference: Head, family: Head, entropy: Callable[[Head], float]) -> Head:
    """The family's head with its sharpness set so that `entropy` gives what it gives for the reference.

    Raises:
        ValueError: the family has no sharpness parameter, or no value of it will do.
    """
    name = family.sharpness
    if name is None:
        raise ValueError(f"{family.name} has no sharpness parameter to set")
    target = entropy(reference)
    tolerance = ENTROPY_TOLERANCE * max(1.0, target)

    def excess(value: float) -> float:
        return entropy(_with(family, name, value)) - target

    if abs(entropy(family) - target) <= tolerance:
        return family
    low = _smallest_legal(family, name)
    high = max(1.0, low)
    while excess(high) > 0 and high < LARGEST:
        high = min(2.0 * high, LARGEST)
    at_low, at_high = excess(low), excess(high)
    for value, gap in ((low, at_low), (high, at_high)):
        if abs(gap) <= tolerance:
            return _with(family, name, value)
    if at_low < 0 or at_high > 0:
        raise ValueError(
            f"no {family.name} has the mean entropy {target:g} of {reference} on these scores: "
            f"{name} from {low:g} to {high:g} reaches {at_low + target:g} to {at_high + target:g}"
        )
    root = brentq(lambda log_value: excess(math.exp(log_value)), math.log(low), math.log(high), xtol=1e-15, rtol=1e-15)
    return _with(family, name, max(low, math.exp(root)))


def _with(head: Head, name: str, value: float) -> Head:
    changed: dict[str, Any] = {name: value}
    return replace(head, **changed)  # type: ignore[type-var]


def _smallest_legal(head: Head, name: str) -> float:
    """Smallest value >= SMALLEST that the head accepts, by bisection from the one it has."""

    def legal(value: float) -> bool:
        try:
            _with(head, name, value)
        except ValueError:
            return False
        return True

    if legal(SMALLEST):
        return SMALLEST
    low, high = SMALLEST, float(getattr(head, name))
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (low, middle) if legal(middle) else (middle, high)
    return high
