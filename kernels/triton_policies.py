"""Policies as device functions: how an arm is chosen, and which numbers are kept per arm so that choosing is cheap.

Every tensor is [BLOCK, LANES]: an instance is LANES neighbouring threads, and thread l of an instance holds the arms
l SLOTS ... l SLOTS + SLOTS - 1 in tuples of SLOTS registers. With LANES = 1, up to 32 arms, nothing crosses threads.
`a` and `b` are the cached numbers of each arm: empirical mean and 1 / sqrt(n), posterior centre and deviation, or
preference. Only the pulled arm's change, so they are computed once a step and not once per arm-step.
"""

import triton
import triton.language as tl

from stau_rl.kernels.triton_math import (
    below,
    closed_uniform,
    exp2,
    inverse_root,
    normal_quantile,
    open_uniform64,
    philox,
    reciprocal,
    row_max,
    row_min,
    row_sum,
)

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
    """Centre and deviation of a Gaussian posterior, float32; p, q prior and noise precision, offset = p prior mean."""
    precision = n.to(tl.float64) * q + p
    centre = (gain.to(tl.float64) * q + offset) / precision
    return centre.to(tl.float32), (1.0 / tl.sqrt(precision)).to(tl.float32)


@triton.jit
def score_mean(a, b, width):
    """The empirical mean."""
    return a


@triton.jit
def score_ucb(a, b, width):
    """Mean + width / sqrt(n), one fused multiply-add; width = c sqrt(2 ln N) comes from a table."""
    return b * width + a


@triton.jit
def inverse_cdf(
    weights,
    word,
    picks,
    o_arm,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    INDEX_BITS: tl.constexpr,
):
    """First arm k with cdf_k > u total, never an arm of weight 0, and the pick of that arm.

    `picks` holds a number per slot whose low bits are the slot; the comparisons select it on the way, so that the
    pulled arm's tally costs no select beyond the one that finds the arm. With LANES > 1 it is right in the thread
    that holds the arm.
    """
    u = closed_uniform(word)
    cdf = (weights[0],)
    for j in tl.static_range(1, SLOTS):
        cdf = cdf + (cdf[j - 1] + weights[j],)
    picked = picks[SLOTS - 1]
    if LANES == 1:
        x = u * cdf[SLOTS - 1]
        for i in tl.static_range(1, SLOTS):
            picked = tl.where(cdf[SLOTS - 1 - i] > x, picks[SLOTS - 1 - i], picked)
        arm = (picked & ((1 << INDEX_BITS) - 1)).to(tl.int32)
    else:
        local = cdf[SLOTS - 1]
        before = tl.cumsum(local, axis=1) - local
        # Sums that associate differently need not be monotone. With the total as the largest of the last ones and u
        # scaled by 1 - 2^-22, the thread that attains it always qualifies; with x >= 0 no arm of weight 0 does.
        total = row_max(tl.where(local > 0.0, before + local, 0.0), LANES)
        x = tl.maximum(u * (total * 0.9999997615814209) - before, 0.0)
        for i in tl.static_range(1, SLOTS):
            picked = tl.where(cdf[SLOTS - 1 - i] > x, picks[SLOTS - 1 - i], picked)
        slot = (picked & ((1 << INDEX_BITS) - 1)).to(tl.int32)
        arm = row_min(tl.where(local > x, o_arm + slot, _NONE), LANES)
    return arm, picked


@triton.jit
def head_weights(
    y,
    centre,
    o_arm,
    p,
    q,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    HEAD: tl.constexpr,
    N: tl.constexpr,
    SHIFTED: tl.constexpr,
):
    """Weights of each arm up to a factor per row; padded arms have weight 0."""
    weights = ()
    for j in tl.static_range(SLOTS):
        f = HEAD(y[j], centre, p, q, N)
        if K < SLOTS * LANES:
            f = tl.where(o_arm + j < K, f, float("-inf") if SHIFTED else 0.0)
        weights = weights + (f,)
    if SHIFTED:
        peak = weights[0]
        for j in tl.static_range(1, SLOTS):
            peak = tl.maximum(peak, weights[j])
        peak = row_max(peak, LANES)
        logs = weights
        weights = ()
        for j in tl.static_range(SLOTS):
            weights = weights + (exp2(logs[j] - peak),)
    return weights


@triton.jit
def choose_by_weight(
    word,
    width,
    a,
    b,
    picks,
    o_arm,
    p,
    q,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    SCORE: tl.constexpr,
    CENTRED: tl.constexpr,
    HEAD: tl.constexpr,
    N: tl.constexpr,
    SHIFTED: tl.constexpr,
    INDEX_BITS: tl.constexpr,
):
    """Score, centre, head, inverse CDF."""
    y = ()
    for j in tl.static_range(SLOTS):
        y = y + (SCORE(a[j], b[j], width),)
    centre = tl.zeros_like(y[0])
    if CENTRED:
        centre = y[0]
        for j in tl.static_range(1, SLOTS):
            centre = centre + y[j]
        centre = row_sum(centre, LANES) * (1.0 / K)
    weights = head_weights(y, centre, o_arm, p, q, K, SLOTS, LANES, HEAD, N, SHIFTED)
    return inverse_cdf(weights, word, picks, o_arm, SLOTS, LANES, INDEX_BITS)


@triton.jit
def choose_by_preference(
    word,
    a,
    unit,
    picks,
    o_arm,
    p,
    q,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    HEAD: tl.constexpr,
    N: tl.constexpr,
    SHIFTED: tl.constexpr,
    INDEX_BITS: tl.constexpr,
):
    """An arm from head(preferences), and the normalised weights, which the gradient needs."""
    y = ()
    for j in tl.static_range(SLOTS):
        y = y + (a[j] * unit,)
    weights = head_weights(y, tl.zeros_like(y[0]), o_arm, p, q, K, SLOTS, LANES, HEAD, N, SHIFTED)
    total = weights[0]
    for j in tl.static_range(1, SLOTS):
        total = total + weights[j]
    scale = 1.0 / row_sum(total, LANES)
    shares = ()
    for j in tl.static_range(SLOTS):
        shares = shares + (weights[j] * scale,)
    arm, picked = inverse_cdf(weights, word, picks, o_arm, SLOTS, LANES, INDEX_BITS)
    return arm, picked, shares


@triton.jit
def choose_best(
    word,
    width,
    a,
    b,
    o_arm,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    SCORE: tl.constexpr,
):
    """The arm of the largest float64 score; m tied arms are told apart by floor(u m)."""
    y = ()
    for j in tl.static_range(SLOTS):
        score = SCORE(a[j], b[j], width)
        if K < SLOTS * LANES:
            score = tl.where(o_arm + j < K, score, float("-inf"))
        y = y + (score,)
    best = y[0]
    for j in tl.static_range(1, SLOTS):
        best = tl.where(y[j] > best, y[j], best)
    best = row_max(best, LANES)
    tied = (y[0] == best).to(tl.int32)
    for j in tl.static_range(1, SLOTS):
        tied = tied + (y[j] == best).to(tl.int32)
    if LANES == 1:
        before = tl.zeros_like(tied)
        place = below(word, tied)
    else:
        through = tl.cumsum(tied, axis=1)
        before = through - tied
        place = below(word, row_max(through, LANES))
    first = tl.zeros_like(o_arm) + _NONE
    seen = before
    for j in tl.static_range(SLOTS):
        is_tied = y[j] == best
        first = tl.where(is_tied & (seen == place), o_arm + j, first)
        seen = seen + is_tied.to(tl.int32)
    return row_min(first, LANES)


@triton.jit
def choose_posterior(
    t,
    low,
    high,
    k0,
    k1,
    a,
    b,
    o_arm,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
):
    """The arm whose draw centre + deviation Phi^-1(u) is largest; one Philox call per arm."""
    draws = ()
    for j in tl.static_range(SLOTS):
        stream = (o_arm + (16 + j)).to(tl.uint32)
        w0, w1, w2, w3 = philox(low, high, tl.zeros_like(low) + t.to(tl.uint32), stream, k0, k1)
        draws = draws + (a[j] + normal_quantile(w0) * b[j],)
    return _first_largest(draws, o_arm, K, SLOTS, LANES)


@triton.jit
def beta_attempt(a, b, w0, w1):
    """One attempt at a draw from Beta(a, b), float64, by Cheng's algorithm BB: value and whether it is accepted.

    Source: Cheng, CACM 21, 1978; see `sampling.beta_draws`, whose use of words this repeats. In float64, as
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
def choose_beta(
    t,
    low,
    high,
    k0,
    k1,
    counts,
    gains,
    o_arm,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
):
    """The arm whose draw from Beta(1 + successes, 1 + failures) is largest; attempt j uses stream 16 + k + 1024 j.

    Every thread goes through its own arms at its own pace, one attempt a turn: a warp takes as many turns as its
    unluckiest thread has attempts in all, not the sum over arms of the unluckiest thread for each.
    """
    slot = o_arm * 0
    attempt = o_arm * 0
    first = o_arm * 1
    best = o_arm.to(tl.float64) * 0.0 - 1.0
    last = tl.minimum(K - o_arm, SLOTS)
    while tl.max(tl.max((slot < last).to(tl.int32), axis=1), axis=0) > 0:
        successes = gains[0]
        pulls = counts[0]
        for j in tl.static_range(1, SLOTS):
            successes = tl.where(slot == j, gains[j], successes)
            pulls = tl.where(slot == j, counts[j], pulls)
        a = successes.to(tl.float64) + 1.0
        b = (pulls - successes).to(tl.float64) + 1.0
        stream = (o_arm + slot + attempt * 1024 + 16).to(tl.uint32)
        w0, w1, _, _ = philox(low, high, tl.zeros_like(low) + t.to(tl.uint32), stream, k0, k1)
        draw, accepted = beta_attempt(a, b, w0, w1)
        accepted = accepted & (slot < last)
        better = accepted & (draw > best)
        best = tl.where(better, draw, best)
        first = tl.where(better, o_arm + slot, first)
        attempt = tl.where(accepted, 0, attempt + 1)
        slot = slot + accepted.to(tl.int32)
    if LANES > 1:
        first = row_min(tl.where(best == row_max(best, LANES), first, _NONE), LANES)
    return first


@triton.jit
def _first_largest(draws, o_arm, K: tl.constexpr, SLOTS: tl.constexpr, LANES: tl.constexpr):
    first = tl.zeros_like(o_arm) + o_arm
    best = draws[0]
    if K < SLOTS * LANES:
        best = tl.where(o_arm < K, best, float("-inf"))
    for j in tl.static_range(1, SLOTS):
        better = draws[j] > best
        if K < SLOTS * LANES:
            better = better & (o_arm + j < K)
        first = tl.where(better, o_arm + j, first)
        best = tl.where(better, draws[j], best)
    if LANES > 1:
        first = row_min(tl.where(best == row_max(best, LANES), first, _NONE), LANES)
    return first
