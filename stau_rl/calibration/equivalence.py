"""s^tau is softmax of other scores: the map between the two, both ways."""

import math

import torch
from torch import Tensor

from stau_rl.heads.base import require_finite
from stau_rl.heads.log_softplus import log_phi
from stau_rl.heads.normalise import check_scores
from stau_rl.heads.s_tau import EPS

# Below this log y, log(expm1(y)) = log y + y / 2 within y^2 / 24 < 1e-17; y itself may underflow.
SMALL_LOG_Y = -18.0


def s_tau_to_softmax(scores: Tensor, tau: float | Tensor, eps: float = EPS) -> Tensor:
    """Scores whose softmax is s^tau of the given scores.

    sigma = tau log(softplus(s) + eps), so that softmax(sigma) = s_tau(s) along any axis. Differentiable.

    Args:
        scores: floating-point tensor of any shape; computed in float64 if float64, else in float32.
        tau: exponent >= 1; a number or a tensor that broadcasts against `scores`.
        eps: floor of the map, >= 0; with eps > 0 a score of -inf gives tau log eps, without it -inf.

    Returns:
        sigma, in the dtype of `scores`.

    Raises:
        ValueError: for NaN or +inf scores, tau < 1, eps < 0.

    Examples:
        >>> import torch
        >>> import stau_rl
        >>> sigma = stau_rl.s_tau_to_softmax(torch.tensor([0.3, -1.2, 2.0, 0.0]), tau=5.0)
        >>> sigma.softmax(-1).round(decimals=4)
        tensor([0.0103, 0.0000, 0.9860, 0.0036])
    """
    check_scores(scores, None)
    working, exponent = _prepare(scores, tau, eps)
    return (exponent * log_phi(working, float(eps))).to(scores.dtype)


def softmax_to_s_tau(sigma: Tensor, tau: float | Tensor, eps: float = EPS) -> Tensor:
    """Scores whose s^tau is softmax of the given scores; the inverse of `s_tau_to_softmax`.

    s = log(expm1(y)) = y + log(1 - exp(-y)), y = exp(sigma / tau) - eps. Differentiable. Softmax is blind to a constant
    added to sigma and s^tau is not: each constant gives other scores with the same weights.

    Args:
        sigma: floating-point tensor of any shape; computed in float64 if float64, else in float32.
        tau: exponent >= 1; a number or a tensor that broadcasts against `sigma`.
        eps: floor of the map, >= 0.

    Returns:
        Scores, in the dtype of `sigma`. With eps = 0 they stay accurate where y itself underflows (s -> sigma / tau).

    Raises:
        ValueError: where y <= 0, that is sigma <= tau log eps, where no score exists; where the score overflows;
            for NaN or +inf in sigma, tau < 1, eps < 0.

    Examples:
        >>> import torch
        >>> import stau_rl
        >>> scores = stau_rl.softmax_to_s_tau(torch.tensor([0.0, 1.0, 2.0]), tau=2.0)
        >>> stau_rl.parse_head("s_tau(tau=2)").weights(scores).round(decimals=4)
        tensor([0.0900, 0.2447, 0.6652])
    """
    check_scores(sigma, None, what="sigma")
    working, exponent = _prepare(sigma, tau, eps)
    log_value = working / exponent
    if eps == 0:
        log_y, no_score = log_value, torch.isneginf(log_value)
    else:
        above = log_value - math.log(eps)
        no_score = above <= 0
        log_y = log_value + _log1mexp(torch.where(no_score, 1.0, above))
    _require(~no_score, "sigma must exceed tau log(eps), where y = exp(sigma / tau) - eps > 0", sigma, tau, eps)
    small = log_y < SMALL_LOG_Y
    y = log_y.exp()
    far = torch.where(small, 1.0, y)
    scores = torch.where(small, log_y + 0.5 * y, far + _log1mexp(far)).to(sigma.dtype)
    _require(scores.isfinite(), f"sigma / tau is too large for scores in {sigma.dtype}", sigma, tau, eps)
    return scores


def _log1mexp(distance: Tensor) -> Tensor:
    """log(1 - exp(-d)) for d > 0, relatively accurate at both ends."""
    near = distance < math.log(2.0)
    return torch.where(
        near,
        torch.log(-torch.expm1(-torch.where(near, distance, 0.5))),
        torch.log1p(-torch.exp(-torch.where(near, 1.0, distance))),
    )


def _prepare(scores: Tensor, tau: float | Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Scores and tau in the working dtype, after checking tau and eps."""
    require_finite("s_tau", "eps", eps, low=0.0)
    if not isinstance(tau, Tensor):
        require_finite("s_tau", "tau", tau, low=1.0)
    working = scores if scores.dtype == torch.float64 else scores.float()
    exponent = torch.as_tensor(tau, dtype=working.dtype, device=working.device)
    if not torch.compiler.is_compiling() and not bool(((exponent >= 1) & exponent.isfinite()).all()):
        raise ValueError(f"s_tau: tau must be finite and >= 1, got a tensor with minimum {float(exponent.min())!r}")
    return working, exponent


def _require(good: Tensor, message: str, sigma: Tensor, tau: float | Tensor, eps: float) -> None:
    """Raise a ValueError that shows the first offending sigma."""
    if torch.compiler.is_compiling() or bool(good.all()):
        return
    worst = float(sigma.detach().broadcast_to(good.shape)[~good][0])
    share = float((~good).double().mean())
    shown = "a tensor" if isinstance(tau, Tensor) else f"{tau:g}"
    raise ValueError(f"{message}; got {worst!r} with tau={shown}, eps={eps:g} ({share:.3g} of the entries)")
