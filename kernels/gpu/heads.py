"""Heads as device functions: a head of `stau_rl.heads` runs in the Triton engine once it has an entry here.

A device function takes the score y, in the unit that `gpu.bind` chose, the row's centre (0 unless scores are
centred), the parameters p and q of the step, and the variant of the kernel. What it returns is its form:

| form | returns | weight | accuracy |
|---|---|---|---|
| `direct` | f | f | where no row overflows or vanishes; the engine knows the range of the scores beforehand |
| `log2` | g = log2 f | 2^(g - max g) | the rounding of g, 2^-24 max g |
| `scaled` | g with f = e^(p g) | 2^((g - max g) p log2 e) | differences before scaling: 2^-23 at any beta |
| `power` | g with f = 2^(p g) | 2^((g - max g) p) | p times the rounding of g, 2^-24 max g |
| `ratio` | b with f = b^p | (b / max b)^p | p times the relative error of b |

In the form `ratio` the function gets the row's largest score in place of the centre, which is off y already.
Dividing before the logarithm is what keeps large exponents accurate: log2 of a number near 1 has an absolute error
of 2^-22.6, but log2 of phi = 40 has one of 2^-20, which tau = 100 turns into 3e-5 of a weight.

Instructions per arm-step of the whole loop at K = 10 on an H200's instruction set (special functions among them):

| head | centred UCB | UCB |
|---|---|---|
| softmax, direct | 14.8 (1.2) | 14.8 (1.2) |
| softmax, direct, beta a schedule | 16.4 (1.2) | 16.4 (1.2) |
| softmax, scaled: steep, of wide scores | 17.0 (1.2) | 17.0 (1.2) |
| s_tau, direct, tau = 5 | 19.3 (2.3) | - |
| s_tau, direct, tau any number up to 8 | 20.2 (4.3) | - |
| s_tau, power, tau up to 5 | - | 31.8 (3.2) |
| s_tau, ratio, tau whole, up to 16 | - | 37.3 (1.5) |
| s_tau, ratio, any tau | 36.9 (3.3) | 38.2 (3.5) |
| escort, p = 2 | 17.4 (0.3) | 15.5 (0.3) |
| escort, any p | 20.3 (2.3) | 18.4 (2.3) |
| sigmoid_norm, direct and log2 | 18.2 (2.3) | 30.7 (2.2) |

Speed there in 10^9 arm-steps a second, the median of 5 repeats; `gpu.kernel` has softmax and s_tau at every K:

| policy | instructions | speed |
|---|---|---|
| centred_ucb, softmax(beta=1) | 14.8 | 1385 |
| centred_ucb, softmax(beta=4*log(t)) | 16.4 | 1389 |
| centred_ucb, softmax(beta=64) | 17.0 | 1159 |
| centred_ucb, s_tau(tau=5) | 19.3 | 1126 |
| centred_ucb(offset=2), s_tau(tau=5) | 19.5 | 1101 |
| centred_ucb, s_tau(tau=1+0.5*log(t)) | 20.7 | 758 |
| centred_ucb, s_tau(tau=88.7) | 36.9 | 610 |
| ucb, s_tau(tau=5) | 31.8 | 689 |
| ucb, s_tau(tau=8) | 37.3 | 610 |
| mean, escort(p=2) | 12.8 | 1421 |
| ucb, the plug-in asinh(p=4) of the README | 29.6 | 796 |
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import exp2, fma, log2, log2_1p_ratio, reciprocal, softplus2, whole_power

_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_direct(y, centre, p, q, V: tl.constexpr):
    """Weights 2^y, y beta log2(e) times the distance from the middle of the range: one ex2 and nothing else."""
    return exp2(y)


@triton.jit
def softmax_scheduled(y, centre, p, q, V: tl.constexpr):
    """The same for p = beta of the step, y in the unit log2(e)."""
    return exp2(y * p)


@triton.jit
def softmax_scaled(y, centre, p, q, V: tl.constexpr):
    """The score itself, in the unit 1; no score is moved by its row's centre."""
    return y


@triton.jit
def _softplus2_from_one_side(y, centre):
    """log2(1 + 2^y 2^-centre): absolute error 3e-7 at any y, which only rows with a score >= 0 may use."""
    return log2(exp2(y) * exp2(-centre) + 1.0)


@triton.jit
def s_tau_direct(y, centre, p, q, V: tl.constexpr):
    """(softplus2(y) + q)^tau, q = eps / ln 2; whole tau up to 16 by multiplication."""
    base = _softplus2_from_one_side(y, centre) + q
    if V.whole > 0:
        return whole_power(base, V.whole)
    return exp2(p * log2(base))


@triton.jit
def s_tau_direct_no_floor(y, centre, p, q, V: tl.constexpr):
    """The same where eps is below the rounding of 1 + 2^y, so that adding it changes nothing."""
    base = _softplus2_from_one_side(y, centre)
    if V.whole > 0:
        return whole_power(base, V.whole)
    return exp2(p * log2(base))


@triton.jit
def s_tau_log2(y, centre, p, q, V: tl.constexpr):
    """log2(softplus2(y) + q), in the unit log2(e); q = eps / ln 2 > 0."""
    return log2(softplus2(y - centre) + q)


@triton.jit
def _exp(x):
    """e^x for x <= 0, never below 2^-126."""
    return exp2(tl.maximum(x * _LOG2_E, -126.0))


@triton.jit
def s_tau_ratio(s, top, p, q, V: tl.constexpr):
    """softplus(s) / ln 2 + q, up to a factor of the row; p = tau; relative error 4e-7.

    With z = e^-|s| it is max(s, 0) log2(e) + z P(z), P(z) = log2(1 + z) / z. Where a whole row may be negative, z is
    taken relative to the row's largest, from the exact difference of the scores, so that no row vanishes.
    """
    positive = tl.maximum(s, 0.0)
    if V.reaches_zero:
        z = _exp(-tl.abs(s))
        base = fma(positive, _LOG2_E, z * log2_1p_ratio(z)) + q
    else:
        floor = tl.minimum(top, 0.0)
        shift = _exp(floor)
        relative = _exp(-tl.abs(s) - floor)
        base = fma(positive, _LOG2_E, relative * log2_1p_ratio(relative * shift)) + q * reciprocal(shift)
    return base


@triton.jit
def escort_ratio(s, top, p, q, V: tl.constexpr):
    """|s|."""
    return tl.abs(s)


@triton.jit
def clamp_power_ratio(s, top, p, q, V: tl.constexpr):
    """max(s, eps); q = eps."""
    return tl.maximum(s, q)


@triton.jit
def sigmoid_log2(y, centre, p, q, V: tl.constexpr):
    """log2 sigmoid = -softplus2(-y), in the unit log2(e)."""
    return -softplus2(centre - y)


@triton.jit
def sigmoid_direct(y, centre, p, q, V: tl.constexpr):
    """1 / (1 + 2^-y)."""
    return reciprocal(exp2(-y) * exp2(centre) + 1.0)


@triton.jit
def softmax_slope(s, p, q):
    """Slope of beta s; p = beta."""
    return tl.zeros_like(s) + p


@triton.jit
def s_tau_slope(s, p, q):
    """tau sigmoid(s) / (softplus(s) + eps); p = tau, q = eps / ln 2."""
    y = s * _LOG2_E
    z = exp2(-tl.abs(y))
    logistic = tl.where(y > 0.0, 1.0, z) * reciprocal(1.0 + z)
    # Below -24 the ratio is 1 with eps = 0; the clamp keeps 0 / 0 away.
    return p * tl.where(s < -80.0, tl.where(q > 0.0, 0.0, 1.0), logistic / ((softplus2(y) + q) * 0.6931471805599453))


@triton.jit
def escort_slope(s, p, q):
    """p / s, 0 at a score of 0."""
    return tl.where(s == 0.0, 0.0, p / tl.where(s == 0.0, 1.0, s))


@triton.jit
def _log_softplus64(s):
    """Natural logarithm of softplus(s), float64; error 1e-12 relative."""
    below = tl.minimum(s, 0.0)
    e = tl.exp(tl.minimum(below, -9.0))
    tail = below - e * (0.5 - e * (0.20833333333333334 - e * 0.125))
    z = tl.exp(-tl.abs(s))
    inside = tl.log(tl.maximum(tl.log(z + 1.0) + tl.maximum(s, 0.0), 1e-300))
    return tl.where(s < -9.0, tail, inside)


@triton.jit
def softmax_wide(y, centre, p, q, V: tl.constexpr):
    """log2 e^(p s) of float64 scores, as in the forms below, for scores that float32 cannot hold."""
    return y * p * _LOG2_E


@triton.jit
def s_tau_wide(y, centre, p, q, V: tl.constexpr):
    """log2 (softplus(s) + eps)^tau; p = tau, q = eps. Far below log eps the sum is eps, or softplus where eps is 0."""
    level = _log_softplus64(y - centre)
    floor = tl.log(tl.maximum(tl.zeros_like(y) + q, 1e-300))
    high = tl.maximum(level, floor)
    low = tl.minimum(level, floor)
    both = high + tl.log(1.0 + tl.exp(tl.maximum(low - high, -700.0)))
    return tl.where(tl.zeros_like(y) + q > 0.0, both, level) * p * _LOG2_E


@triton.jit
def escort_wide(y, centre, p, q, V: tl.constexpr):
    """log2 |s|^p; a zero score is never drawn unless the whole row is zero."""
    size = tl.abs(y - centre)
    return tl.where(size > 1e-300, tl.log(tl.maximum(size, 1e-300)) * p * _LOG2_E, -1e300)


@triton.jit
def clamp_power_wide(y, centre, p, q, V: tl.constexpr):
    """log2 max(s, eps)^tau; p = tau, q = eps."""
    return tl.log(tl.maximum(y - centre, tl.zeros_like(y) + q)) * p * _LOG2_E


@triton.jit
def softplus_norm_wide(y, centre, p, q, V: tl.constexpr):
    """log2 softplus(s)."""
    return _log_softplus64(y - centre) * _LOG2_E


@triton.jit
def sigmoid_norm_wide(y, centre, p, q, V: tl.constexpr):
    """log2 sigmoid(s)."""
    s = y - centre
    return (tl.minimum(s, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(s)))) * _LOG2_E
