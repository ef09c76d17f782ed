"""Policies as device functions: which numbers are kept per arm so that choosing is cheap, and the largest of some.

Tensors are laid out as in `gpu.weights`. `a` and `b` are the cached numbers of each arm: empirical mean and
1 / sqrt(n), posterior centre and deviation, or preference. Only the pulled arm's change, so they are computed once a
step and not once per arm-step.
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import (
    below,
    inverse_root,
    normal_quantile,
    open_uniform64,
    philox,
    reciprocal,
    row_max,
    row_min,
)
from stau_rl.kernels.gpu.weights import only_arms

_NONE = tl.constexpr(1 << 20)


@triton.jit
def refresh_nothing(n, gain, p, q, unit, offset):
    """Keep nothing per arm."""
    zero = n.to(tl.float32) * 0.0
    return zero, zero


@triton.jit
def refresh_approximate(n, gain, p, q, unit, offset):
    """Mean in the unit of the head and 1 / sqrt(n), float32; n >= 1."""
    count = n.to(tl.float32)
    return gain.to(tl.float32) * reciprocal(count) * unit - offset, inverse_root(count)


@triton.jit
def refresh_exact(n, gain, p, q, unit, offset):
    """Mean and 1 / sqrt(n), float64, rounded as the reference rounds them, so that ties are ties; n >= 1."""
    count = n.to(tl.float64)
    return gain.to(tl.float64) / count, 1.0 / tl.sqrt(count)


@triton.jit
def refresh_posterior(n, gain, p, q, unit, offset):
    """Centre and deviation of a Gaussian posterior, float64; p, q prior and noise precision, offset = p prior mean."""
    precision = n.to(tl.float64) * q + p
    centre = (gain.to(tl.float64) * q + offset) / precision
    return centre, 1.0 / tl.sqrt(precision)


@triton.jit
def score_mean(a, b, width):
    """The empirical mean."""
    return a


@triton.jit
def score_ucb(a, b, width):
    """Mean + width / sqrt(n), one fused multiply-add; width = c sqrt(2 ln N) comes from a table."""
    return b * width + a


@triton.jit
def _largest(y, V: tl.constexpr):
    """The largest of an instance's numbers."""
    SLOTS: tl.constexpr = V.slots
    best = y[0]
    for j in tl.static_range(1, SLOTS):
        best = tl.where(y[j] > best, y[j], best)
    return row_max(best, V.lanes)


@triton.jit
def choose_best(word, width, q, a, b, o_arm, SCORE: tl.constexpr, V: tl.constexpr):
    """The arm of the largest float64 score; m tied arms are told apart by floor(u m).

    Indices within 1e-12 of the largest are tied with it, see `stau_rl.agents.bandit.index`.
    """
    SLOTS: tl.constexpr = V.slots
    top = a[0]
    if V.index == "contrast":
        means = ()
        for j in tl.static_range(SLOTS):
            means = means + (only_arms(a[j], j, o_arm, float("-inf"), V),)
        top = _largest(means, V)
    y = ()
    for j in tl.static_range(SLOTS):
        if V.index == "none":
            value = SCORE(a[j], b[j], width)
        else:
            value = SCORE(a[j], b[j], top, width, q)
        y = y + (only_arms(value, j, o_arm, float("-inf"), V),)
    best = _largest(y, V)
    if V.index != "none":
        limit = best - 1e-12 * tl.abs(best)
        tied_y = ()
        for j in tl.static_range(SLOTS):
            tied_y = tied_y + (tl.where(y[j] < limit, y[j], best),)
        y = tied_y
    tied = (y[0] == best).to(tl.int32)
    for j in tl.static_range(1, SLOTS):
        tied = tied + (y[j] == best).to(tl.int32)
    if V.lanes == 1:
        before = tl.zeros_like(tied)
        place = below(word, tied)
    else:
        through = tl.cumsum(tied, axis=1)
        before = through - tied
        place = below(word, row_max(through, V.lanes))
    first = tl.zeros_like(o_arm) + _NONE
    seen = before
    for j in tl.static_range(SLOTS):
        is_tied = y[j] == best
        first = tl.where(is_tied & (seen == place), o_arm + j, first)
        seen = seen + is_tied.to(tl.int32)
    return row_min(first, V.lanes)


@triton.jit
def explore_or_best(t, word, draw, a, b, bound, o_arm, SCORE: tl.constexpr, V: tl.constexpr):
    """A uniform arm where (word >> 8) < bound = ceil(eps 2^24), else the best; the arm comes from stream 3."""
    s0, s1, _, _ = _words(t, tl.full([], 3, tl.uint32), draw)
    best = choose_best(s1, 0.0, 0.0, a, b, o_arm, SCORE, V)
    explored = below(s0, tl.full([], V.arms, tl.uint32))
    return tl.where((word >> 8).to(tl.int32).to(tl.float32) < bound, explored, best)


@triton.jit
def _words(index, stream, draw):
    """Four random words of each instance; `draw` is its number, low and high, and the key."""
    low, high, k0, k1 = draw
    return philox(low, high, tl.zeros_like(low) + index.to(tl.uint32), stream, k0, k1)


@triton.jit
def choose_noisy(t, draw, a, b, scale, o_arm, V: tl.constexpr):
    """The arm of the largest draw, in float64; one Philox call per arm.

    A draw is centre + deviation Phi^-1(u), or mean - scale ln(-ln u) / sqrt(n).
    """
    SLOTS: tl.constexpr = V.slots
    best = tl.zeros_like(a[0])
    first = tl.zeros_like(o_arm) + o_arm
    for j in tl.static_range(SLOTS):
        w0, _, _, _ = _words(t, (o_arm + (16 + j)).to(tl.uint32), draw)
        if V.choose == "gumbel":
            noise = -tl.log(-tl.log(open_uniform64(w0))) * scale
        else:
            noise = normal_quantile(w0).to(tl.float64)
        value = only_arms(a[j] + noise * b[j], j, o_arm, float("-inf"), V)
        if j == 0:
            best = value
        else:
            better = value > best
            first = tl.where(better, o_arm + j, first)
            best = tl.where(better, value, best)
    return _across_lanes(first, best, V)


@triton.jit
def beta_attempt(a, b, w0, w1):
    """One attempt at a draw from Beta(a, b), float64, by Cheng's algorithm BB: value and whether it is accepted.

    Source: Cheng, CACM 21, 1978; see `torch_sampling.beta_draws`, whose use of words this repeats. In float64, as
    acceptance compares sums of order a + b.
    """
    small, large, total = tl.minimum(a, b), tl.maximum(a, b), a + b
    squared = (total - 2.0) / tl.maximum(2.0 * a * b - total, 1e-300)
    rate = tl.where(small == 1.0, 1.0, tl.sqrt(squared))
    u1, u2 = open_uniform64(w0), open_uniform64(w1)
    v = rate * tl.log(u1 / (1.0 - u1))
    w = small * tl.exp(v)
    r = (small + 1.0 / rate) * v - 1.3862943611198906
    accepted = r + total * tl.log(total / (large + w)) >= tl.log(u1 * u1 * u2)
    return tl.where(small == a, w, large) / (large + w), accepted


@triton.jit
def choose_beta(t, draw, counts, gains, o_arm, V: tl.constexpr):
    """The arm whose draw from Beta(1 + successes, 1 + failures) is largest; attempt j uses stream 16 + k + 1024 j.

    Every thread goes through its own arms at its own pace, one attempt a turn: a warp takes as many turns as its
    unluckiest thread has attempts in all, not the sum over arms of the unluckiest thread for each.
    """
    SLOTS: tl.constexpr = V.slots
    slot = o_arm * 0
    attempt = o_arm * 0
    first = o_arm * 1
    best = o_arm.to(tl.float64) * 0.0 - 1.0
    last = tl.minimum(V.arms - o_arm, SLOTS)
    while tl.max(tl.max((slot < last).to(tl.int32), axis=1), axis=0) > 0:
        successes = gains[0]
        pulls = counts[0]
        for j in tl.static_range(1, SLOTS):
            successes = tl.where(slot == j, gains[j], successes)
            pulls = tl.where(slot == j, counts[j], pulls)
        a = successes.to(tl.float64) + 1.0
        b = (pulls - successes).to(tl.float64) + 1.0
        w0, w1, _, _ = _words(t, (o_arm + slot + attempt * 1024 + 16).to(tl.uint32), draw)
        value, accepted = beta_attempt(a, b, w0, w1)
        accepted = accepted & (slot < last)
        better = accepted & (value > best)
        best = tl.where(better, value, best)
        first = tl.where(better, o_arm + slot, first)
        attempt = tl.where(accepted, 0, attempt + 1)
        slot = slot + accepted.to(tl.int32)
    return _across_lanes(first, best, V)


@triton.jit
def _across_lanes(first, best, V: tl.constexpr):
    """From each thread's first largest value to the instance's."""
    if V.lanes > 1:
        first = row_min(tl.where(best == row_max(best, V.lanes), first, _NONE), V.lanes)
    return first
