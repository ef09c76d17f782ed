"""From scores to an arm: the head's weights and the inverse of their running sum.

Every tensor is [BLOCK, LANES]: an instance is LANES neighbouring threads, and thread l of an instance holds the arms
l SLOTS ... l SLOTS + SLOTS - 1 in tuples of SLOTS registers. With LANES = 1, up to 32 arms, nothing crosses threads.
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import closed_uniform, exp2, fma, log2, reciprocal, row_max, row_min, row_sum, whole_power

_NONE = tl.constexpr(1 << 20)
_LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _search(cdf, x, picks, SLOTS: tl.constexpr):
    """The pick of the first slot k with cdf_k > x, of the last one if there is none; as cdf grows, so do selects."""
    picked = picks[SLOTS - 1]
    for i in tl.static_range(1, SLOTS):
        picked = tl.where(cdf[SLOTS - 1 - i] > x, picks[SLOTS - 1 - i], picked)
    return picked


@triton.jit
def inverse_cdf(weights, word, picks, o_arm, V: tl.constexpr):
    """First arm k with cdf_k > u total, never an arm of weight 0, and the pick of that arm.

    `picks` holds a number per slot whose low bits are the slot; the comparisons select it on the way, so that the
    pulled arm's tally costs no select beyond the one that finds the arm. With several lanes it is right in the thread
    that holds the arm.
    """
    SLOTS: tl.constexpr = V.slots
    INDEX: tl.constexpr = (1 << V.index_bits) - 1
    u = closed_uniform(word)
    cdf = (weights[0],)
    for j in tl.static_range(1, SLOTS):
        cdf = cdf + (cdf[j - 1] + weights[j],)
    if V.lanes == 1:
        picked = _search(cdf, u * cdf[SLOTS - 1], picks, SLOTS)
        arm = (picked & INDEX).to(tl.int32)
    else:
        local = cdf[SLOTS - 1]
        before = tl.cumsum(local, axis=1) - local
        # Sums that associate differently need not be monotone. With the total as the largest of the last ones and u
        # scaled by 1 - 2^-22, the thread that attains it always qualifies; with x >= 0 no arm of weight 0 does.
        total = row_max(tl.where(local > 0.0, before + local, 0.0), V.lanes)
        x = tl.maximum(u * (total * 0.9999997615814209) - before, 0.0)
        picked = _search(cdf, x, picks, SLOTS)
        slot = (picked & INDEX).to(tl.int32)
        arm = row_min(tl.where(local > x, o_arm + slot, _NONE), V.lanes)
    return arm, picked


@triton.jit
def only_arms(x, j, o_arm, other, V: tl.constexpr):
    """x of slot j, or `other` where the last thread of an instance has no arm in it."""
    if V.arms < V.slots * V.lanes:
        x = tl.where(o_arm + j < V.arms, x, other)
    return x


@triton.jit
def row_peak(values, o_arm, lowest, V: tl.constexpr):
    """Largest of a row's values, in every lane."""
    SLOTS: tl.constexpr = V.slots
    peak = only_arms(values[0], 0, o_arm, lowest, V)
    for j in tl.static_range(1, SLOTS):
        peak = tl.maximum(peak, only_arms(values[j], j, o_arm, lowest, V))
    return row_max(peak, V.lanes)


@triton.jit
def call_head(y, centre, p, q, HEAD: tl.constexpr, V: tl.constexpr):
    """The head's device function of one score; that of a plug-in takes the score and its own parameters."""
    if V.inputs == -1:
        value = HEAD(y, centre, p, q, V)
    elif V.inputs == 0:
        value = HEAD(y - centre)
    elif V.inputs == 1:
        value = HEAD(y - centre, p)
    else:
        value = HEAD(y - centre, p, q)
    if V.inputs >= 0:
        # A row of which nothing may be drawn is uniform.
        value = tl.maximum(value, -1e30)
    return value


@triton.jit
def head_weights(y, centre, o_arm, p, q, HEAD: tl.constexpr, V: tl.constexpr):
    """Weights of each arm up to a factor per row, exactly 0 for a slot without an arm; see `gpu.heads`."""
    SLOTS: tl.constexpr = V.slots
    if V.form == "ratio":
        scores = ()
        for j in tl.static_range(SLOTS):
            scores = scores + (y[j] - centre,)
        y = scores
        if not V.reaches_zero:
            centre = row_peak(y, o_arm, float("-inf"), V)
    values = ()
    for j in tl.static_range(SLOTS):
        values = values + (call_head(y[j], centre, p, q, HEAD, V),)
    weights = ()
    if V.form == "direct":
        weights = values
    elif V.form == "ratio":
        peak = row_peak(values, o_arm, 0.0, V)
        # A row of zeros is uniform.
        scale = reciprocal(tl.maximum(peak, 1e-37))
        nudge = tl.where(peak < 1e-37, 1.0, 0.0)
        for j in tl.static_range(SLOTS):
            share = fma(values[j], scale, nudge)
            if V.whole > 0:
                weights = weights + (whole_power(share, V.whole),)
            else:
                weights = weights + (exp2(p * log2(share)),)
    else:
        peak = row_peak(values, o_arm, float("-inf"), V)
        for j in tl.static_range(SLOTS):
            if V.form == "scaled":
                weights = weights + (exp2((values[j] - peak) * (p * _LOG2_E)),)
            elif V.form == "power":
                weights = weights + (exp2((values[j] - peak) * p),)
            elif V.double:
                weights = weights + (exp2(tl.maximum(values[j] - peak, -200.0).to(tl.float32)),)
            else:
                weights = weights + (exp2(values[j] - peak),)
    real = ()
    for j in tl.static_range(SLOTS):
        real = real + (only_arms(weights[j], j, o_arm, 0.0, V),)
    return real


@triton.jit
def choose_by_weight(
    word, width, a, b, picks, o_arm, p, q, offset, grand, SCORE: tl.constexpr, HEAD: tl.constexpr, V: tl.constexpr
):
    """Score, centre, head, inverse CDF: the arm and its pick; `grand` is the mean of all rewards, in the unit of y."""
    SLOTS: tl.constexpr = V.slots
    y = ()
    for j in tl.static_range(SLOTS):
        y = y + (SCORE(a[j], b[j], width),)
    centre = tl.zeros_like(y[0])
    if V.past:
        centre += grand
    elif V.centred:
        centre = y[0]
        for j in tl.static_range(1, SLOTS):
            centre = centre + y[j]
        centre = row_sum(centre, V.lanes) * (1.0 / V.arms)
    if V.moved:
        centre += offset
    weights = head_weights(y, centre, o_arm, p, q, HEAD, V)
    return inverse_cdf(weights, word, picks, o_arm, V)


@triton.jit
def choose_by_preference(word, a, unit, picks, o_arm, p, q, HEAD: tl.constexpr, V: tl.constexpr):
    """An arm from head(preferences), its pick, and the normalised weights, which the gradient needs."""
    SLOTS: tl.constexpr = V.slots
    y = a
    if V.form == "log2" or V.form == "power":
        # The other forms, where no bound of the scores is known, take them as they are.
        y = ()
        for j in tl.static_range(SLOTS):
            y = y + (a[j] * unit,)
    weights = head_weights(y, tl.zeros_like(y[0]), o_arm, p, q, HEAD, V)
    total = weights[0]
    for j in tl.static_range(1, SLOTS):
        total = total + weights[j]
    scale = 1.0 / row_sum(total, V.lanes)
    shares = ()
    for j in tl.static_range(SLOTS):
        shares = shares + (weights[j] * scale,)
    arm, picked = inverse_cdf(weights, word, picks, o_arm, V)
    return arm, picked, shares
