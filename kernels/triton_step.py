"""The fused kernel: many steps of the bandit loop, one instance per LANES threads, all state in registers.

Cost per arm-step in the fastest form (Bernoulli arms, UCB scores, direct head), in instructions of the disassembly:

| what | softmax | s_tau, tau = 5 | pipe |
|---|---|---|---|
| score: multiply-add of mean and 1/sqrt(n) | 1 | 1 | multiply-add |
| sum for the centre (softmax does not see it) | - | 1 | multiply-add |
| head | 1 | 2 | special functions |
| head | - | 4 | multiply-add |
| running sum of the weights | 1 | 1 | multiply-add |
| comparison with u total; select of the tally, which carries the slot | 2 | 2 | compare/logic |
| pulled arm: comparison, tally written | 2 | 2 | compare/logic |
| pulled arm: mean and 1/sqrt(n) written | 2 | 2 | multiply-add |
| in all | 9 | 15 | |

A step adds what its arms share: half a Philox call (22), the reward and its load (9), counts, mean and 1/sqrt(n) of
the pulled arm (11), the uniform (5), loop and checkpoint test (4). At K = 10 that makes 14.0 and 19.1 instructions
per arm-step, at K = 32 10.5 and 16.2. An H200 issues 33.5 T lane-instructions a second (132 multiprocessors x 128
lanes x 1.98 GHz); special functions run at 1/8 of that rate, comparisons, selects and integer operations at 1/2.

Why each trick is there:

- Pulls, successes and slot of an arm share one 32-bit register (14, 14 and 4 bits for up to 16 slots). One select finds
  the arm and reads both counts, one writes them. A launch runs as many steps as fit; longer histories add the counts
  of earlier launches, read from memory for the pulled arm alone (LONG), and so stay exact up to 2^31 - 1 pulls.
- The pulled arm's Bernoulli bound, or mean, is a load by index that the first-level cache serves; keeping it in
  registers would cost K registers and K selects a step.
- Mean and 1/sqrt(n) are cached per arm and change only for the pulled one. They are pure functions of (n, S), so
  launches can stop anywhere and histories do not depend on where. They are moved by predicated multiply-adds, as the
  pipe of selects is the busiest.
- Centring costs no subtraction in s_tau: 2^(y - centre) + 1 is the multiply-add 2^y 2^-centre + 1.
- sqrt(2 ln N) comes from a table of one number per step, rounded from float64 and shared by all.
- One Philox call serves two steps; its first rounds have constant inputs, which the compiler takes out of the loop.
- Regret is counted at checkpoints from the pull counts and needs nothing per step.
- Whatever runs once a launch goes round the slots in a loop that is not unrolled: unrolled, its addresses sat in
  60 registers while the main loop ran.
"""

import triton
import triton.language as tl

from stau_rl.kernels.triton_math import below, philox, replace_where_equal, row_sum
from stau_rl.kernels.triton_policies import (
    choose_best,
    choose_beta,
    choose_by_preference,
    choose_by_weight,
    choose_posterior,
)


@triton.jit
def _select(values, local, SLOTS: tl.constexpr):
    """values[local] where local is a slot of this thread; anything elsewhere."""
    found = values[0]
    for j in tl.static_range(1, SLOTS):
        found = tl.where(local == j, values[j], found)
    return found


@triton.jit
def _replace(values, local, new, SLOTS: tl.constexpr):
    """The tuple with values[local] = new where local is a slot of this thread."""
    replaced = ()
    for j in tl.static_range(SLOTS):
        replaced = replaced + (tl.where(local == j, new, values[j]),)
    return replaced


@triton.jit
def _replace_three(tally, a, b, local, new_tally, new_a, new_b, SLOTS: tl.constexpr):
    """`_replace` on three tuples at once."""
    tallies = ()
    firsts = ()
    seconds = ()
    for j in tl.static_range(SLOTS):
        one_tally, one_a, one_b = replace_where_equal(local, j, new_tally, new_a, new_b, tally[j], a[j], b[j])
        tallies = tallies + (one_tally,)
        firsts = firsts + (one_a,)
        seconds = seconds + (one_b,)
    return tallies, firsts, seconds


@triton.jit
def _counts(
    tally,
    gain,
    p_count,
    p_gain,
    stride,
    SLOTS: tl.constexpr,
    PACKED: tl.constexpr,
    LONG: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    COUNT_BITS: tl.constexpr,
):
    """Pulls and reward sums of every slot."""
    counts = ()
    gains = ()
    for j in tl.static_range(SLOTS):
        if PACKED:
            n = (tally[j] >> (INDEX_BITS + COUNT_BITS)).to(tl.int32)
            s = ((tally[j] >> INDEX_BITS) & ((1 << COUNT_BITS) - 1)).to(tl.int32)
            if LONG:
                n += tl.load(p_count + j * stride)
                s += tl.load(p_gain + j * stride)
            counts = counts + (n,)
            gains = gains + (s,)
        else:
            counts = counts + (tally[j],)
            gains = gains + (gain[j],)
    return counts, gains


@triton.jit
def _play(
    t,
    action,
    word,
    low,
    high,
    k0,
    k1,
    width,
    tally,
    gain,
    a,
    b,
    total,
    o_arm,
    p_count,
    p_gain,
    p_arm,
    arm_stride,
    stride,
    p_value,
    p_offset,
    sigma,
    p,
    q,
    unit,
    offset,
    step_size,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    CHOOSE: tl.constexpr,
    REFRESH: tl.constexpr,
    SCORE: tl.constexpr,
    CENTRED: tl.constexpr,
    HEAD: tl.constexpr,
    N: tl.constexpr,
    SHIFTED: tl.constexpr,
    SLOPE: tl.constexpr,
    REWARD: tl.constexpr,
    PACKED: tl.constexpr,
    LONG: tl.constexpr,
    CACHED: tl.constexpr,
    DOUBLE: tl.constexpr,
    BASELINE: tl.constexpr,
    FORCED: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    COUNT_BITS: tl.constexpr,
):
    """One step: choose, reward, update."""
    if PACKED:
        picks = tally
    else:
        picks = ()
        for j in tl.static_range(SLOTS):
            picks = picks + ((o_arm * 0 + j).to(tl.uint32),)
    if CHOOSE == "weight":
        arm, picked = choose_by_weight(
            action, width, a, b, picks, o_arm, p, q, K, SLOTS, LANES, SCORE, CENTRED, HEAD, N, SHIFTED, INDEX_BITS
        )
    elif CHOOSE == "best":
        arm = choose_best(action, width, a, b, o_arm, K, SLOTS, LANES, SCORE)
    elif CHOOSE == "uniform":
        arm = below(action, tl.full([], K, tl.uint32))
    elif CHOOSE == "explore":
        s0, s1, s2, s3 = philox(low, high, tl.zeros_like(low) + t.to(tl.uint32), tl.full([], 3, tl.uint32), k0, k1)
        best = choose_best(s1, width, a, b, o_arm, K, SLOTS, LANES, SCORE)
        explored = below(s0, tl.full([], K, tl.uint32))
        arm = tl.where((action >> 8).to(tl.int32).to(tl.float32) < p, explored, best)
    elif CHOOSE == "posterior":
        arm = choose_posterior(t, low, high, k0, k1, a, b, o_arm, K, SLOTS, LANES)
    elif CHOOSE == "beta":
        counts, gains = _counts(tally, gain, p_count, p_gain, stride, SLOTS, PACKED, LONG, INDEX_BITS, COUNT_BITS)
        arm = choose_beta(t, low, high, k0, k1, counts, gains, o_arm, K, SLOTS, LANES)
    else:
        arm, picked, shares = choose_by_preference(
            action, a, unit, picks, o_arm, p, q, K, SLOTS, LANES, HEAD, N, SHIFTED, INDEX_BITS
        )
    if FORCED:
        arm = tl.where(t < K, t, arm)

    reward = REWARD(word, arm, p_arm, arm_stride, p_value, p_offset, sigma)
    local = arm - o_arm if LANES > 1 else arm
    if PACKED:
        if (CHOOSE == "weight" or CHOOSE == "preference") and not FORCED:
            old = picked
        else:
            old = _select(tally, local, SLOTS)
        new = old + ((reward << INDEX_BITS) + (1 << (INDEX_BITS + COUNT_BITS))).to(tl.uint32)
        n = (new >> (INDEX_BITS + COUNT_BITS)).to(tl.int32)
        s = ((new >> INDEX_BITS) & ((1 << COUNT_BITS) - 1)).to(tl.int32)
        if LONG:
            o_pulled = (arm - o_arm).to(tl.int64) * stride
            n += tl.load(p_count + o_pulled)
            s += tl.load(p_gain + o_pulled)
    else:
        new = _select(tally, local, SLOTS) + 1
        n = new
        s = _select(gain, local, SLOTS) + reward
        gain = _replace(gain, local, s, SLOTS)

    if CHOOSE == "preference":
        if BASELINE == "past":
            total += reward.to(tl.float64)
            advantage = (reward.to(tl.float32) - total.to(tl.float32) * width) * step_size
        elif BASELINE == "before":
            advantage = (reward.to(tl.float32) - total.to(tl.float32) * width) * step_size
            total += reward.to(tl.float64)
        else:
            advantage = reward.to(tl.float32) * step_size
        preferences = ()
        for j in tl.static_range(SLOTS):
            chosen = tl.where(local == j, 1.0, 0.0)
            preferences = preferences + (a[j] + advantage * SLOPE(a[j], p, q) * (chosen - shares[j]),)
        a = preferences
    elif CACHED:
        new_a, new_b = REFRESH(n, s, p, q, unit, offset)
        if PACKED and not DOUBLE:
            tally, a, b = _replace_three(tally, a, b, local, new, new_a, new_b, SLOTS)
        else:
            tally = _replace(tally, local, new, SLOTS)
            a = _replace(a, local, new_a, SLOTS)
            b = _replace(b, local, new_b, SLOTS)
    if not CACHED:
        tally = _replace(tally, local, new, SLOTS)
    return arm, reward, tally, gain, a, b, total


@triton.jit
def _checkpoint(
    t,
    row,
    arm,
    tally,
    p_count,
    p_gap,
    gap_stride,
    stride,
    o_arm,
    instances,
    o_instance,
    m_instance,
    p_checkpoint,
    p_regret,
    p_optimal,
    p_best,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    PACKED: tl.constexpr,
    LONG: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    COUNT_BITS: tl.constexpr,
):
    """Write the regret so far, whether the last pull was optimal, and how many pulls were.

    This block hardly ever runs, so it must not cost the loop registers: it goes round the slots in a loop that the
    compiler cannot unroll, as `hidden`, which is always 0, is known only at run time. One load for all slots in the
    source also keeps compilation short: Triton's coalescing pass takes time as loads times operations squared.
    """
    hidden = tl.load(p_checkpoint + row) - t - 1
    regret = tl.zeros_like(o_arm).to(tl.float64)
    best = tl.zeros_like(o_arm)
    step = hidden
    while step < SLOTS:
        real = o_arm + step < K
        n = _select(tally, o_arm * 0 + step, SLOTS)
        if PACKED:
            n = (n >> (INDEX_BITS + COUNT_BITS)).to(tl.int32)
            if LONG:
                n += tl.load(p_count + step * stride, mask=real, other=0)
        gap = tl.load(p_gap + (o_arm + step).to(tl.int64) * gap_stride, mask=real, other=0.0)
        regret = regret + n.to(tl.float64) * gap
        best = best + tl.where(real & (gap == 0.0), n, 0)
        step += 1 + hidden
    regret = row_sum(regret, LANES)
    optimal = tl.load(p_gap + arm.to(tl.int64) * gap_stride) == 0.0
    mask = m_instance & (o_arm == 0)
    o_row = row.to(tl.int64) * instances + o_instance
    tl.store(p_regret + o_row, regret, mask=mask)
    tl.store(p_optimal + o_row, optimal.to(tl.int8), mask=mask)
    tl.store(p_best + o_row, row_sum(best, LANES), mask=mask)


@triton.jit(
    do_not_specialize=[
        "start",
        "stop",
        "width_start",
        "row",
        "instances",
        "first_low",
        "first_high",
        "key_0",
        "key_1",
        "arm_stride",
        "arm_step",
        "gap_stride",
        "gap_step",
    ]
)
def play_kernel(
    p_count,
    p_gain,
    p_preference,
    p_total,
    p_arm,
    p_gap,
    p_width,
    p_value,
    p_offset,
    p_checkpoint,
    p_regret,
    p_optimal,
    p_best,
    p_action,
    p_reward,
    start,
    stop,
    width_start,
    row,
    instances,
    first_low,
    first_high,
    key_0,
    key_1,
    arm_stride,
    arm_step,
    gap_stride,
    gap_step,
    sigma,
    p,
    q,
    unit,
    offset,
    step_size,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    CHOOSE: tl.constexpr,
    REFRESH: tl.constexpr,
    SCORE: tl.constexpr,
    CENTRED: tl.constexpr,
    HEAD: tl.constexpr,
    N: tl.constexpr,
    SHIFTED: tl.constexpr,
    SLOPE: tl.constexpr,
    REWARD: tl.constexpr,
    PACKED: tl.constexpr,
    LONG: tl.constexpr,
    CACHED: tl.constexpr,
    DOUBLE: tl.constexpr,
    BASELINE: tl.constexpr,
    WIDTH: tl.constexpr,
    FORCED: tl.constexpr,
    PAIRED: tl.constexpr,
    RECORD: tl.constexpr,
    FLOOR: tl.constexpr,
    INDEX_BITS: tl.constexpr,
    COUNT_BITS: tl.constexpr,
):
    """Steps [start, stop) of every instance; with PAIRED both are even.

    Args:
        p_count, p_gain: pulls, int32, and reward sums, int32 (Bernoulli) or float64, [K, instances].
        p_preference: preferences, float32 [K, instances]; p_total: sum of rewards, float64 [instances].
        p_arm: what a reward needs of an arm, at k arm_stride + i arm_step; p_gap: gaps, float64, likewise.
        p_width: a number per step, from step `width_start`.
        p_value, p_offset: observations of a table.
        p_checkpoint: numbers of plays at which to write a row of p_regret and p_optimal, from `row`, then a sentinel.
        p_best: pulls of optimal arms by then, int32, likewise.
        p_action, p_reward: a record of every step, int16 and float64 [steps, instances], if RECORD.
    """
    zero = tl.zeros([BLOCK, LANES], tl.int32)
    o_program = tl.program_id(0).to(tl.int64) * BLOCK
    o_instance = o_program + tl.arange(0, BLOCK)[:, None] + zero
    m_instance = o_instance < instances
    o_arm = tl.arange(0, LANES)[None, :] * SLOTS + zero
    number = (first_high.to(tl.int64) << 32) + (first_low.to(tl.int64) & 0xFFFFFFFF) + o_instance
    low = number.to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    k0 = key_0.to(tl.uint32)
    k1 = key_1.to(tl.uint32)
    # Threads past the last instance repeat it and store nothing.
    o_clamped = tl.minimum(o_instance, instances - 1)
    p_count += o_arm.to(tl.int64) * instances + o_clamped
    p_gain += o_arm.to(tl.int64) * instances + o_clamped
    p_arm += o_clamped * arm_step
    p_gap += o_clamped * gap_step

    kind = tl.float64 if DOUBLE else tl.float32
    tally = ()
    gain = ()
    a = ()
    b = ()
    for j in tl.static_range(SLOTS):
        tally = tally + (zero.to(tl.uint32) if PACKED else zero,)
        gain = gain + (zero if PACKED else zero.to(tl.float64),)
        a = a + (zero.to(kind),)
        b = b + (zero.to(kind),)
    hidden = tl.load(p_checkpoint + row) * 0
    step = hidden
    while step < SLOTS:
        slot = zero + step
        real = o_arm + step < K
        n = tl.load(p_count + step * instances.to(tl.int64), mask=real, other=0)
        s = tl.load(p_gain + step * instances.to(tl.int64), mask=real, other=0)
        if PACKED:
            # A launch of a long history counts from 0 and adds what came before.
            packed = slot if LONG else (n << (INDEX_BITS + COUNT_BITS)) + (s << INDEX_BITS) + slot
            tally = _replace(tally, slot, packed.to(tl.uint32), SLOTS)
        else:
            tally = _replace(tally, slot, n, SLOTS)
            gain = _replace(gain, slot, s, SLOTS)
        if CHOOSE == "preference":
            o_slot = (o_arm + step).to(tl.int64) * instances + o_clamped
            a = _replace(a, slot, tl.load(p_preference + o_slot, mask=real, other=0.0), SLOTS)
        else:
            new_a, new_b = REFRESH(tl.maximum(n, FLOOR), s, p, q, unit, offset)
            a = _replace(a, slot, tl.where(real, new_a, 0.0), SLOTS)
            b = _replace(b, slot, tl.where(real, new_b, 0.0), SLOTS)
        step += 1 + hidden
    total = tl.zeros([BLOCK, LANES], tl.float64)
    if CHOOSE == "preference":
        total += tl.load(p_total + o_clamped)

    stride = instances.to(tl.int64)
    # The interpreter hands out plain integers as loop variables; adding them to a tensor makes them tensors anywhere.
    nought = tl.full([], 0, tl.int32)
    stream = nought.to(tl.uint32)
    due = tl.load(p_checkpoint + row)
    width = tl.full([], 0.0, tl.float64 if DOUBLE else tl.float32)
    if PAIRED:
        for first in range(start, stop, 2):
            words = philox(low, high, ((nought + first) >> 1).to(tl.uint32), stream, k0, k1)
            o_width = (nought + first - width_start).to(tl.int64)
            for half in tl.static_range(2):
                t = nought + first + half
                if WIDTH:
                    width = tl.load(p_width + o_width + half)
                arm, reward, tally, gain, a, b, total = _play(
                    t,
                    words[2 * half],
                    words[2 * half + 1],
                    low,
                    high,
                    k0,
                    k1,
                    width,
                    tally,
                    gain,
                    a,
                    b,
                    total,
                    o_arm,
                    p_count,
                    p_gain,
                    p_arm,
                    arm_stride,
                    stride,
                    p_value,
                    p_offset,
                    sigma,
                    p,
                    q,
                    unit,
                    offset,
                    step_size,
                    K,
                    SLOTS,
                    LANES,
                    CHOOSE,
                    REFRESH,
                    SCORE,
                    CENTRED,
                    HEAD,
                    N,
                    SHIFTED,
                    SLOPE,
                    REWARD,
                    PACKED,
                    LONG,
                    CACHED,
                    DOUBLE,
                    BASELINE,
                    FORCED,
                    INDEX_BITS,
                    COUNT_BITS,
                )
                if RECORD:
                    o_record = t.to(tl.int64) * instances + o_instance
                    mask = m_instance & (o_arm == 0)
                    tl.store(p_action + o_record, arm.to(tl.int16), mask=mask)
                    tl.store(p_reward + o_record, reward.to(tl.float64), mask=mask)
                if t + 1 == due:
                    _checkpoint(
                        t,
                        row,
                        arm,
                        tally,
                        p_count,
                        p_gap,
                        gap_stride,
                        stride,
                        o_arm,
                        instances,
                        o_instance,
                        m_instance,
                        p_checkpoint,
                        p_regret,
                        p_optimal,
                        p_best,
                        K,
                        SLOTS,
                        LANES,
                        PACKED,
                        LONG,
                        INDEX_BITS,
                        COUNT_BITS,
                    )
                    row += 1
                    due = tl.load(p_checkpoint + row)
    else:
        for step in range(start, stop):
            t = nought + step
            w0, w1, w2, w3 = philox(low, high, (t >> 1).to(tl.uint32), stream, k0, k1)
            odd = (t & 1) == 1
            if WIDTH:
                width = tl.load(p_width + (t - width_start))
            arm, reward, tally, gain, a, b, total = _play(
                t,
                tl.where(odd, w2, w0),
                tl.where(odd, w3, w1),
                low,
                high,
                k0,
                k1,
                width,
                tally,
                gain,
                a,
                b,
                total,
                o_arm,
                p_count,
                p_gain,
                p_arm,
                arm_stride,
                stride,
                p_value,
                p_offset,
                sigma,
                p,
                q,
                unit,
                offset,
                step_size,
                K,
                SLOTS,
                LANES,
                CHOOSE,
                REFRESH,
                SCORE,
                CENTRED,
                HEAD,
                N,
                SHIFTED,
                SLOPE,
                REWARD,
                PACKED,
                LONG,
                CACHED,
                DOUBLE,
                BASELINE,
                FORCED,
                INDEX_BITS,
                COUNT_BITS,
            )
            if RECORD:
                o_record = t.to(tl.int64) * instances + o_instance
                mask = m_instance & (o_arm == 0)
                tl.store(p_action + o_record, arm.to(tl.int16), mask=mask)
                tl.store(p_reward + o_record, reward.to(tl.float64), mask=mask)
            if t + 1 == due:
                _checkpoint(
                    t,
                    row,
                    arm,
                    tally,
                    p_count,
                    p_gap,
                    gap_stride,
                    stride,
                    o_arm,
                    instances,
                    o_instance,
                    m_instance,
                    p_checkpoint,
                    p_regret,
                    p_optimal,
                    p_best,
                    K,
                    SLOTS,
                    LANES,
                    PACKED,
                    LONG,
                    INDEX_BITS,
                    COUNT_BITS,
                )
                row += 1
                due = tl.load(p_checkpoint + row)

    hidden = tl.load(p_checkpoint + row) * 0
    step = hidden
    while step < SLOTS:
        slot = zero + step
        mask = m_instance & (o_arm + step < K)
        n = _select(tally, slot, SLOTS)
        if PACKED:
            s = ((n >> INDEX_BITS) & ((1 << COUNT_BITS) - 1)).to(tl.int32)
            n = (n >> (INDEX_BITS + COUNT_BITS)).to(tl.int32)
            if LONG:
                n += tl.load(p_count + step * stride, mask=mask, other=0)
                s += tl.load(p_gain + step * stride, mask=mask, other=0)
        else:
            s = _select(gain, slot, SLOTS)
        tl.store(p_count + step * stride, n, mask=mask)
        tl.store(p_gain + step * stride, s, mask=mask)
        if CHOOSE == "preference":
            o_slot = (o_arm + step).to(tl.int64) * instances + o_clamped
            tl.store(p_preference + o_slot, _select(a, slot, SLOTS), mask=mask)
        step += 1 + hidden
    if CHOOSE == "preference":
        tl.store(p_total + o_instance, total, mask=m_instance & (o_arm == 0))
