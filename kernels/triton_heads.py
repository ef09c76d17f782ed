"""Heads as device functions: a head of `stau_rl.heads` runs in the Triton engine once it has an entry here.

Scores come in the head's unit, as y = score * unit; the engine scales means and bonuses, so the unit costs
nothing per arm. A head has

- `log2_f(y, centre, p, q)`: log2 f of the score y - centre, elementwise, safe at any score. The engine takes the
  row's maximum off before it exponentiates.
- `direct(y, centre, p, q)`, optional: f itself, with no maximum taken off. `direct_fits` says for which scores
  it neither overflows nor loses its row; the engine knows the range of the scores before it starts.

`centre` is the row's mean for centred scores and 0 else; what depends on it alone (2^-centre, say) is computed
once a row, because equal expressions are merged. Special functions and multiply-adds per arm, the cheapest form
first: softmax 1 + 1; s_tau with whole tau 2 + 4, with any tau 4 + 4; escort 0 + 2 for whole p.
"""

import triton
import triton.language as tl

from stau_rl.kernels.triton_math import exp2, log2, reciprocal, softplus2, whole_power

_LOG2_LOG2_E = tl.constexpr(0.5287663729448977)


@triton.jit
def softmax_log2(y, centre, p, q, N: tl.constexpr):
    """Softmax in the unit beta log2(e); no score is moved by its row's centre."""
    return y


@triton.jit
def softmax_direct(y, centre, p, q, N: tl.constexpr):
    """Weights 2^(y - q), q the middle of the range of y: one fused multiply-add upstream and one ex2."""
    return exp2(y)


@triton.jit
def s_tau_log2(y, centre, p, q, N: tl.constexpr):
    """tau log2(softplus2(y) + eps / ln 2), in the unit log2(e); p = tau, q = eps / ln 2 > 0."""
    return p * log2(softplus2(y - centre) + q)


@triton.jit
def s_tau_exact_tail_log2(y, centre, p, q, N: tl.constexpr):
    """The same with eps = 0: below -24, log2 softplus2(y) = y + log2 log2 e within 5e-8."""
    s = y - centre
    return p * tl.where(s < -24.0, s + _LOG2_LOG2_E, log2(softplus2(tl.maximum(s, -24.0))))


@triton.jit
def _softplus2_from_one_side(y, centre):
    """log2(1 + 2^y 2^-centre): absolute error 3e-7 at any y, which only rows with a score >= 0 may use."""
    return log2(exp2(y) * exp2(-centre) + 1.0)


@triton.jit
def s_tau_direct(y, centre, p, q, N: tl.constexpr):
    """(softplus2(y) + q)^tau; whole tau up to 16 by multiplication."""
    base = _softplus2_from_one_side(y, centre) + q
    if N > 0:
        return whole_power(base, N)
    return exp2(p * log2(base))


@triton.jit
def s_tau_direct_no_floor(y, centre, p, q, N: tl.constexpr):
    """The same where eps is below the rounding of 1 + 2^y, so that adding it changes nothing."""
    base = _softplus2_from_one_side(y, centre)
    if N > 0:
        return whole_power(base, N)
    return exp2(p * log2(base))


@triton.jit
def escort_log2(y, centre, p, q, N: tl.constexpr):
    """p log2|y|; the floor -3e38 makes a row of zeros uniform."""
    return tl.maximum(p * log2(tl.abs(y - centre)), -3.0e38)


@triton.jit
def sigmoid_log2(y, centre, p, q, N: tl.constexpr):
    """log2 sigmoid = -softplus2(-y), in the unit log2(e)."""
    return -softplus2(centre - y)


@triton.jit
def sigmoid_direct(y, centre, p, q, N: tl.constexpr):
    """1 / (1 + 2^-y)."""
    return reciprocal(exp2(-y) * exp2(centre) + 1.0)


@triton.jit
def softmax_slope(s, p, q):
    """Slope of beta s; p = beta."""
    return tl.zeros_like(s) + p


@triton.jit
def s_tau_slope(s, p, q):
    """tau sigmoid(s) / (softplus(s) + eps); p = tau, q = eps / ln 2."""
    y = s * 1.4426950408889634
    z = exp2(-tl.abs(y))
    logistic = tl.where(y > 0.0, 1.0, z) * reciprocal(1.0 + z)
    # Below -24 the ratio is 1 with eps = 0; the clamp keeps 0 / 0 away.
    return p * tl.where(s < -80.0, tl.where(q > 0.0, 0.0, 1.0), logistic / ((softplus2(y) + q) * 0.6931471805599453))


@triton.jit
def escort_slope(s, p, q):
    """p / s, 0 at a score of 0."""
    return tl.where(s == 0.0, 0.0, p / tl.where(s == 0.0, 1.0, s))
