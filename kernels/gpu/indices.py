"""Indices as device functions, float64: `(mean, root, top, width, q)`, the forms of `stau_rl.kernels.cpu.indices`.

`mean` and `root` are an arm's mean and 1 / sqrt(n), `top` the largest mean of all arms (for IMED alone), `width` a
number of the step and `q` a constant.
"""

import triton
import triton.language as tl

_LEAST = tl.constexpr(1e-300)
_LEVEL = tl.constexpr(1e-12)
_STEPS = tl.constexpr(3)


@triton.jit
def plain(mean, root, top, width, q):
    """mean + width / sqrt(n)."""
    return root * width + mean


@triton.jit
def moss(mean, root, top, width, q):
    """mean + q sqrt(max(width - ln n, 0) / n)."""
    level = tl.log(root) * 2.0 + width
    return tl.sqrt(tl.where(level > _LEVEL, level, 0.0)) * root * q + mean


@triton.jit
def tuned(mean, root, top, width, q):
    """UCB1-tuned for 0/1 rewards."""
    share = root * root * width
    spread = mean * (1.0 - mean) / (q * q) + tl.sqrt(share * 2.0)
    return tl.sqrt(share * tl.minimum(spread, 0.25)) * q + mean


@triton.jit
def ucb_v(mean, root, top, width, q):
    """UCB-V for 0/1 rewards."""
    share = root * root * width
    return mean + tl.sqrt(mean * (1.0 - mean) * 2.0 * share) + share * q


@triton.jit
def _safe_log(x):
    """ln max(x, 1e-300)."""
    return tl.log(tl.maximum(x, _LEAST))


@triton.jit
def kl_bernoulli(mean, root, top, width, q):
    """Largest bound in [mean, 1] whose kl from the mean is at most max(width - q ln n, 0) / n, by Halley."""
    level = tl.log(root) * (2.0 * q) + width
    level = tl.where(level > _LEVEL, level, 0.0) * root * root
    lost = 1.0 - mean
    inside = tl.where(lost > _LEAST, lost, 1.0)
    own = mean * _safe_log(mean) + lost * _safe_log(lost)
    want = own - level
    # The lowest of the four bounds that `kernels.cpu.indices` names.
    x = tl.exp(tl.maximum(want / inside, -700.0))
    x = tl.maximum(x, lost - tl.sqrt(level * tl.minimum(lost * 2.0, 0.5)))
    x = tl.maximum(x, lost - level - tl.sqrt((level + mean * 2.0) * level))
    for _ in tl.static_range(_STEPS):
        other = 1.0 - x
        gap = mean * _safe_log(other) + lost * _safe_log(x) - want
        slope = lost - x
        lower = slope * slope + gap * 0.5 * (lost * other * other + mean * x * x)
        good = tl.where(slope > _LEAST, tl.where(lower > 0.0, lower, slope * slope), 1.0)
        x = x - tl.where(slope > _LEAST, gap * slope * x * other / good, 0.0)
    return tl.where(level > 0.0, tl.where(lost > _LEAST, 1.0 - x, 1.0), mean)


@triton.jit
def imed_bernoulli(mean, root, top, width, q):
    """-(n kl(mean, top) + ln n)."""
    lost = 1.0 - mean
    divergence = mean * (_safe_log(mean) - _safe_log(top)) + lost * (_safe_log(lost) - _safe_log(1.0 - top))
    divergence = tl.where(mean == top, 0.0, divergence)
    return tl.log(root) * 2.0 - divergence / (root * root)


@triton.jit
def imed_gaussian(mean, root, top, width, q):
    """-(n q (top - mean)^2 + ln n)."""
    below = (top - mean) / root
    return tl.log(root) * 2.0 - below * below * q
