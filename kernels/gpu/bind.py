"""From a head to its device function in `gpu.heads`, with the unit of its scores and its parameters.

Nothing here imports Triton, so what the engine can run is known on any machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stau_rl.kernels.contract import EngineError
from stau_rl.kernels.float32 import EXTREME, SHIFT_FREE, Float32Error
from stau_rl.kernels.head_parameters import NONE, Parameters

LOG2_E = math.log2(math.e)
# Weights whose base-2 logarithm stays below this need no division by the row's largest.
_EXPONENTS = 100.0
# Below it, a floor under softplus vanishes in float32.
_TINY = 1e-30
WHOLE_POWERS = range(1, 17)
# Largest exponents of s^tau for which a row's weights come within 1e-5 through log2 of softplus itself, for scores in
# [-60, 60] and centred ones of which one is >= 0. The form `ratio` comes within it up to tau = 100.
_LOGARITHM_UP_TO = 5.0
_CENTRED_UP_TO = 8.0


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores that a head gets: bounds before centring, whether they are centred, and what is added at last."""

    low: float
    high: float
    centred: bool = False
    offset: float = 0.0

    @property
    def largest(self) -> float:
        """A bound of their magnitude before centring, which is one of half their magnitude after it."""
        return max(abs(self.low), abs(self.high)) + abs(self.offset)


@dataclass(frozen=True, slots=True)
class BoundHead:
    """A head with its parameters, as the kernel takes it.

    Attributes:
        device: name of the device function in `gpu.heads`, or the function of a plug-in head.
        form: what the function returns; see `gpu.heads`.
        unit: factor from a score to the y of the device function.
        parameters: the head's parameters.
        units: factors from them to p and q.
        whole: a whole exponent that is multiplied out, or 0.
        middle: taken off y beforehand, by heads that do not see a shift.
        shifts: the function sees a shift of all scores.
        reaches_zero, inputs: as in `Variant`.
        slope: name of its slope in `gpu.heads`, for gradient bandits.
    """

    device: str | Callable[..., Any]
    form: Literal["direct", "log2", "scaled", "power", "ratio"]
    unit: float = 1.0
    parameters: Parameters = NONE
    units: tuple[float, float] = (1.0, 1.0)
    whole: int = 0
    middle: float = 0.0
    shifts: bool = True
    reaches_zero: bool = False
    inputs: int = -1
    slope: str = ""


PLUGINS: dict[str, tuple[Callable[..., Any], int]] = {}
"""Device functions of plug-in heads, not yet compiled, and how many parameters each takes, by the head's name."""


def bind_head(head: Any, scores: Scores, horizon: int, why_wide: str = "") -> BoundHead:
    """The device function that plays a head on such scores; on float64 ones, if there is a reason why.

    Raises:
        EngineError: the head has none.
    """
    if why_wide:
        return _bind_wide(head, horizon, why_wide)
    if head.name in PLUGINS:
        function, inputs = PLUGINS[head.name]
        return BoundHead(function, "log2", parameters=Parameters.of(head), inputs=inputs)
    if head.name not in BINDERS:
        known = ", ".join((*BINDERS, "argmax", *PLUGINS))
        raise EngineError(
            f"the triton engine has no head {head.name!r} (it has {known}); engine='torch' runs every head"
        )
    return BINDERS[head.name](Parameters.of(head), scores, horizon)


def _bind_wide(head: Any, horizon: int, why: str) -> BoundHead:
    """The device function of float64 scores, whose parameters are still float32."""
    found = Parameters.of(head)
    ends = [size for which in (0, 1) for size in found.extent(which, horizon)]
    if head.name not in BINDERS or not all(size == 0.0 or 1.0 / EXTREME <= abs(size) <= EXTREME for size in ends):
        raise Float32Error(why)
    return BoundHead(f"{head.name}_wide", "log2", parameters=found, shifts=head.name not in SHIFT_FREE)


def bind_softmax(found: Parameters, scores: Scores, horizon: int) -> BoundHead:
    """Softmax, which sees no shift: neither the centre nor the middle of the range of the scores."""
    beta = found.extent(0, horizon)[1]
    middle = 0.5 * (scores.low + scores.high)
    if not beta * LOG2_E * (scores.high - scores.low) < 2 * _EXPONENTS:
        return BoundHead("softmax_scaled", "scaled", 1.0, found, shifts=False, slope="softmax_slope")
    if any(found.schedules):
        return BoundHead("softmax_scheduled", "direct", LOG2_E, found, middle=LOG2_E * middle, shifts=False)
    unit = beta * LOG2_E
    return BoundHead("softmax_direct", "direct", unit, found, middle=unit * middle, shifts=False)


def bind_s_tau(found: Parameters, scores: Scores, horizon: int) -> BoundHead:
    """s^tau with any exponent and floor.

    The direct form needs rows whose largest softplus2 is >= 1, as centred ones have: their largest score is >= 0.
    """
    tau = found.extent(0, horizon)[1]
    least_eps, eps = found.extent(1, horizon)
    whole = int(found.p) if found.p in WHOLE_POWERS and not any(found.schedules) else 0
    largest, q = scores.largest * LOG2_E, eps * LOG2_E
    reaches_zero = scores.centred and scores.offset >= 0.0
    fits = largest < 0.5 * _EXPONENTS and tau * math.log2(2 * largest + 2 + q) < _EXPONENTS
    if reaches_zero and fits and (whole or tau <= _CENTRED_UP_TO):
        name = "s_tau_direct_no_floor" if q < 2e-7 else "s_tau_direct"
        return BoundHead(name, "direct", LOG2_E, found, (1.0, LOG2_E), whole)
    if tau <= _LOGARITHM_UP_TO and least_eps > _TINY:
        return BoundHead("s_tau_log2", "power", LOG2_E, found, (1.0, LOG2_E), slope="s_tau_slope")
    return BoundHead(
        "s_tau_ratio", "ratio", 1.0, found, (1.0, LOG2_E), whole, slope="s_tau_slope", reaches_zero=reaches_zero
    )


def bind_softplus_norm(found: Parameters, scores: Scores, horizon: int) -> BoundHead:
    """Softplus normalisation is s^tau at tau = 1, eps = 0."""
    return bind_s_tau(Parameters(1.0, 0.0), scores, horizon)


def bind_escort(found: Parameters, scores: Scores, horizon: int) -> BoundHead:
    """Escort; scores come as near 0 as they like, so the row's maximum is always divided by."""
    whole = int(found.p) if found.p in WHOLE_POWERS and not any(found.schedules) else 0
    return BoundHead("escort_ratio", "ratio", 1.0, found, whole=whole, slope="escort_slope")


def bind_clamp_power(found: Parameters, scores: Scores, horizon: int) -> BoundHead:
    """Powers of clamped scores; eps may be as small as it likes, so the row's maximum is always divided by."""
    if found.extent(1, horizon)[0] < _TINY:
        raise EngineError(
            f"the triton engine takes eps of clamp_power from {_TINY:g}, got {found.extent(1, horizon)[0]:g}; "
            "engine='torch' runs it"
        )
    whole = int(found.p) if found.p in WHOLE_POWERS and not any(found.schedules) else 0
    return BoundHead("clamp_power_ratio", "ratio", 1.0, found, whole=whole)


def bind_sigmoid_norm(found: Parameters, scores: Scores, horizon: int) -> BoundHead:
    """Sigmoid normalisation."""
    fits = scores.centred and scores.largest * LOG2_E < 0.5 * _EXPONENTS
    return BoundHead("sigmoid_direct" if fits else "sigmoid_log2", "direct" if fits else "log2", LOG2_E)


BINDERS: dict[str, Callable[[Parameters, Scores, int], BoundHead]] = {
    "softmax": bind_softmax,
    "s_tau": bind_s_tau,
    "clamp_power": bind_clamp_power,
    "escort": bind_escort,
    "softplus_norm": bind_softplus_norm,
    "sigmoid_norm": bind_sigmoid_norm,
}
