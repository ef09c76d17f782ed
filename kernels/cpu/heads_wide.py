"""Device code of the heads on float64 lanes: log2 f(s), for scores that float32 cannot hold.

`float32.misfit` says which these are. Parameters are those of the twin in `cpu.heads`; weights are float32 in both.
"""

from stau_rl.kernels.cpu.lanes import select
from stau_rl.kernels.cpu.math import LOG2_E, device, exp64, log64

# In place of minus infinity, far below any log weight.
NEVER = -1e300
# The least normal float64, near enough.
TINY = 1e-300


@device
def _log_softplus(s):
    """Natural logarithm of softplus(s) = max(s, 0) + log(1 + e^-|s|); error 1e-12 relative."""
    below = select(s < 0.0, s, 0.0)
    e = exp64(select(below < -9.0, below, -9.0))
    tail = below - e * (0.5 - e * (5.0 / 24.0 - e * 0.125))
    z = exp64(select(s > 0.0, -s, s))
    inside = log64(log64(z + 1.0) + select(s > 0.0, s, 0.0) + TINY)
    return select(s < -9.0, tail, inside)


@device
def softmax_wide(score, beta, _):
    """log2 e^(beta s)."""
    return score * (beta * LOG2_E)


@device
def s_tau_wide(score, tau, eps):
    """log2 (softplus(s) + eps)^tau; eps >= 1e-30."""
    return log64(exp64(_log_softplus(score)) + eps) * (tau * LOG2_E)


@device
def s_tau_tail_wide(score, tau, log2_eps):
    """The same for eps < 1e-30, given as log2(eps / ln 2): the larger of both terms."""
    level = _log_softplus(score) * LOG2_E
    floor = NEVER if log2_eps < -1e29 else log2_eps - 0.5287663729448977
    return select(level < floor, floor, level) * tau


@device
def clamp_power_wide(score, tau, eps):
    """log2 max(s, eps)^tau."""
    return log64(select(score > eps, score, eps)) * (tau * LOG2_E)


@device
def escort_wide(score, p, _):
    """log2 |s|^p; a zero score is never drawn unless the whole row is zero."""
    size = select(score < 0.0, -score, score)
    return select(size > TINY, log64(size + TINY) * (p * LOG2_E), NEVER)


@device
def softplus_norm_wide(score, _, __):
    """log2 softplus(s)."""
    return _log_softplus(score) * LOG2_E


@device
def sigmoid_norm_wide(score, _, __):
    """log2 sigmoid(s) = min(s, 0) - log2(1 + e^-|s|)."""
    z = exp64(select(score > 0.0, -score, score))
    return (select(score < 0.0, score, 0.0) - log64(z + 1.0)) * LOG2_E
