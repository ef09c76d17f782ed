"""Device code of the indices that policies maximise: `(mean, root, top, width, q)` on float64 lanes.

`mean` and `root` are an arm's mean and 1 / sqrt(n), `top` the largest mean of all arms (for IMED alone), `width` a
number of the step and `q` a constant. `stau_rl.agents.bandit` has the sources.
"""

from collections.abc import Callable
from typing import Any

from stau_rl.kernels.cpu.lanes import fused, select, square_root
from stau_rl.kernels.cpu.math import device, exp64, log64

_LEAST = 1e-300
# As in `stau_rl.agents.bandit.index`: below it a logarithm is 0.
_LEVEL = 1e-12


@device
def plain(mean, root, top, width, q):
    """mean + width / sqrt(n)."""
    return fused(root, width, mean)


@device
def moss(mean, root, top, width, q):
    """mean + q sqrt(max(width - ln n, 0) / n)."""
    level = log64(root) * 2.0 + width
    return fused(square_root(select(level > _LEVEL, level, 0.0)) * root, q, mean)


@device
def tuned(mean, root, top, width, q):
    """UCB1-tuned for 0/1 rewards."""
    share = root * root * width
    spread = mean * (1.0 - mean) / (q * q) + square_root(share * 2.0)
    return fused(square_root(share * select(spread < 0.25, spread, 0.25)), q, mean)


@device
def ucb_v(mean, root, top, width, q):
    """UCB-V for 0/1 rewards."""
    share = root * root * width
    return mean + square_root(mean * (1.0 - mean) * 2.0 * share) + share * q


@device
def safe_log(x):
    """ln max(x, 1e-300)."""
    return log64(select(x > _LEAST, x, _LEAST))


@device
def halley_bernoulli(p, lost, x, want):
    """One step of Halley's for p ln(1 - x) + (1 - p) ln x = want, x = 1 - q, from the left of the root in x."""
    other = 1.0 - x
    gap = p * safe_log(other) + lost * safe_log(x) - want
    # The derivative is (1 - p - x) / (x (1 - x)), the second -(1 - p) / x^2 - p / (1 - x)^2.
    slope = lost - x
    below = slope * slope + gap * 0.5 * (lost * other * other + p * x * x)
    good = select(slope > _LEAST, select(below > 0.0, below, slope * slope), 1.0)
    return x - select(slope > _LEAST, gap * slope * x * other / good, 0.0)


@device
def kl_bernoulli(mean, root, top, width, q):
    """Largest bound in [mean, 1] whose kl from the mean is at most max(width - q ln n, 0) / n.

    Halley's iteration, which leaves at most 1e-14 after three steps.
    """
    level = log64(root) * (2.0 * q) + width
    level = select(level > _LEVEL, level, 0.0) * root * root
    lost = 1.0 - mean
    inside = select(lost > _LEAST, lost, 1.0)
    own = mean * safe_log(mean) + lost * safe_log(lost)
    want = own - level
    # Of four bounds the lowest: kl(p, q) is at least -H(p) - (1 - p) ln(1 - q), 2 (q - p)^2, (q - p)^2 / (2 q), and
    # (q - p)^2 / (2 (1 - p)).
    x = exp64(want / inside)
    width_2 = level * select(lost < 0.25, lost * 2.0, 0.5)
    near = lost - square_root(width_2)
    x = select(near > x, near, x)
    near = lost - level - square_root((level + mean * 2.0) * level)
    x = select(near > x, near, x)
    x = halley_bernoulli(mean, lost, x, want)
    x = halley_bernoulli(mean, lost, x, want)
    x = halley_bernoulli(mean, lost, x, want)
    return select(level > 0.0, select(lost > _LEAST, 1.0 - x, 1.0), mean)


@device
def imed_bernoulli(mean, root, top, width, q):
    """-(n kl(mean, top) + ln n)."""
    lost = 1.0 - mean
    divergence = mean * (safe_log(mean) - safe_log(top)) + lost * (safe_log(lost) - safe_log(1.0 - top))
    divergence = select(mean == top, 0.0, divergence)
    return log64(root) * 2.0 - divergence / (root * root)


@device
def imed_gaussian(mean, root, top, width, q):
    """-(n q (top - mean)^2 + ln n)."""
    below = (top - mean) / root
    return log64(root) * 2.0 - below * below * q


INDICES: dict[str, Callable[..., Any]] = {
    function.py_func.__name__: function
    for function in (plain, moss, tuned, ucb_v, kl_bernoulli, imed_bernoulli, imed_gaussian)
}
