"""Device code of the heads: log2 of the un-normalised weight f(s) of a score, and its slope.

A head registers a function `log2_weight(score, p, q)` on float32 lanes, with its parameters (at most two,
in the order of the head's fields). The step loop subtracts the largest value of the row before it takes
2^x, so that no score and no parameter overflows. An arm that must never be drawn returns `NEVER`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from stau_rl.kernels.contract import EngineError
from stau_rl.kernels.cpu.heads_wide import (
    clamp_power_wide,
    escort_wide,
    s_tau_tail_wide,
    s_tau_wide,
    sigmoid_norm_wide,
    softmax_wide,
    softplus_norm_wide,
)
from stau_rl.kernels.cpu.lanes import select
from stau_rl.kernels.cpu.math import LN_2, LOG2_E, device, log2_positive, log2_softplus2, logistic2, softplus2
from stau_rl.kernels.head_parameters import NONE, Parameters

NEVER = -1e30
# Below it, eps cannot be added in float32 without losing the tail it is added to.
TINY_EPS = 1e-30


@dataclass(frozen=True, slots=True)
class DeviceHead:
    """Compiled code of one head.

    Attributes:
        log2_weight: `(score, p, q) -> log2 f(score)`, up to a constant, on float32 lanes.
        parameters: how many of p and q it reads.
        slope: `(score, p, q) -> d ln f / d score`, which a gradient bandit needs; None if there is none.
        base: `(score, p, q) -> f(score)^(1 / p)`, up to a constant, where f is a p-th power; small whole p
            are then multiplied out. A row whose largest base is below 1e-37 counts as all zero: uniform.
        wide: `log2_weight` on float64 lanes, for scores that float32 cannot hold; None if there is none.
        origin: text that changes whenever the code does, for functions whose own files do not tell; None if there is
            none, so that machine code must not be kept on disk.
    """

    log2_weight: Callable[..., Any]
    parameters: int
    slope: Callable[..., Any] | None = None
    base: Callable[..., Any] | None = None
    wide: Callable[..., Any] | None = None
    origin: str | None = ""


@device
def softmax_log2(score, beta, _):
    """log2 e^(beta s)."""
    return score * (beta * LOG2_E)


@device
def softmax_slope(score, beta, _):
    """Slope beta."""
    return score * 0.0 + beta


@device
def s_tau_base(score, _, eps):
    """(softplus(s) + eps) / ln 2."""
    return softplus2(score * LOG2_E) + eps / LN_2


@device
def s_tau_log2(score, tau, eps):
    """log2 (softplus(s) + eps)^tau, less a constant: the softplus is in units of ln 2."""
    return log2_positive(s_tau_base(score, tau, eps)) * tau


@device
def s_tau_slope(score, tau, eps):
    """Slope tau sigmoid(s) / (softplus(s) + eps)."""
    y = score * LOG2_E
    return logistic2(y) * tau / (softplus2(y) * LN_2 + eps)


@device
def s_tau_tail_log2(score, tau, log2_eps):
    """The same for eps < 1e-30, given as log2(eps / ln 2): the larger of both terms, exact for eps = 0."""
    level = log2_softplus2(score * LOG2_E)
    return select(level < log2_eps, log2_eps, level) * tau


@device
def s_tau_tail_slope(score, tau, log2_eps):
    """Slope tau sigmoid(s) / softplus(s), which is tau far on the left, and 0 where eps rules."""
    y = score * LOG2_E
    inside = select(y < -24.0, -24.0, y)
    slope = select(y < -24.0, 1.0, logistic2(inside) / (softplus2(inside) * LN_2)) * tau
    return select(log2_softplus2(y) < log2_eps, 0.0, slope)


@device
def clamp_power_base(score, _, eps):
    """max(s, eps)."""
    return select(score > eps, score, eps)


@device
def clamp_power_log2(score, tau, eps):
    """log2 max(s, eps)^tau."""
    return log2_positive(clamp_power_base(score, tau, eps)) * tau


@device
def escort_base(score, _, __):
    """|s|."""
    return select(score < 0.0, -score, score)


@device
def escort_log2(score, p, _):
    """log2 |s|^p; a zero score is never drawn unless the whole row is zero."""
    size = escort_base(score, p, 0.0)
    return select(size > 0.0, log2_positive(size) * p, NEVER)


@device
def escort_slope(score, p, _):
    """Slope p / s; 0 at s = 0, where the weight is 0 too."""
    return select(score == 0.0, 0.0, p / select(score == 0.0, 1.0, score))


@device
def softplus_norm_log2(score, _, __):
    """log2 softplus(s)."""
    return log2_softplus2(score * LOG2_E)


@device
def softplus_norm_slope(score, _, __):
    """Slope sigmoid(s) / softplus(s)."""
    return s_tau_tail_slope(score, 1.0, NEVER)


@device
def sigmoid_norm_log2(score, _, __):
    """log2 sigmoid(s) = -log2(1 + e^-s)."""
    return -softplus2(score * -LOG2_E)


@device
def sigmoid_norm_slope(score, _, __):
    """Slope 1 - sigmoid(s)."""
    return logistic2(score * -LOG2_E)


DEVICE_HEADS: dict[str, DeviceHead] = {
    "softmax": DeviceHead(softmax_log2, 1, softmax_slope, wide=softmax_wide),
    "s_tau": DeviceHead(s_tau_log2, 2, s_tau_slope, s_tau_base, s_tau_wide),
    "s_tau_tail": DeviceHead(s_tau_tail_log2, 2, s_tau_tail_slope, wide=s_tau_tail_wide),
    "clamp_power": DeviceHead(clamp_power_log2, 2, None, clamp_power_base, clamp_power_wide),
    "escort": DeviceHead(escort_log2, 1, escort_slope, escort_base, escort_wide),
    "softplus_norm": DeviceHead(softplus_norm_log2, 0, softplus_norm_slope, wide=softplus_norm_wide),
    "sigmoid_norm": DeviceHead(sigmoid_norm_log2, 0, sigmoid_norm_slope, wide=sigmoid_norm_wide),
}


@dataclass(frozen=True, slots=True)
class BoundHead:
    """A head as the compiled loop takes it.

    Attributes:
        key: its name in `DEVICE_HEADS`, or None for a policy without one.
        parameters: its parameters.
    """

    key: str | None
    parameters: Parameters = NONE

    @property
    def device(self) -> DeviceHead | None:
        """The head's compiled code."""
        return None if self.key is None else DEVICE_HEADS[self.key]


def bind_head(head: Any, horizon: int) -> BoundHead:
    """Registry key and the two run-time parameters of a head in a run of `horizon` steps.

    Raises:
        EngineError: the head has no device code here.
    """
    name = head.name
    if name not in DEVICE_HEADS:
        known = ", ".join(sorted({*DEVICE_HEADS, "argmax"} - {"s_tau_tail"}))
        raise EngineError(f"the numba engine has no head {name!r} (it has {known}); engine='torch' runs every head")
    parameters = Parameters.of(head)
    if name == "clamp_power" and parameters.extent(1, horizon)[0] < TINY_EPS:
        raise EngineError(
            f"the numba engine takes eps of clamp_power from {TINY_EPS:g}, got eps={head.eps}; engine='torch' runs it"
        )
    if name == "s_tau" and parameters.extent(1, horizon)[0] < TINY_EPS:
        if parameters.schedules[1] is not None:
            raise EngineError(
                f"the numba engine takes a schedule of eps only where it stays above {TINY_EPS:g}, got "
                f"eps={parameters.schedules[1]}; engine='torch' runs it"
            )
        eps = parameters.q
        name, parameters = "s_tau_tail", replace(parameters, q=math.log2(eps / math.log(2.0)) if eps > 0.0 else NEVER)
    return BoundHead(name, parameters)
