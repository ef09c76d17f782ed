"""State of the instances in registers: reading and writing slots, loading at the start of a launch, storing at its end.

Pulls, reward sums and cached numbers of an instance are tuples of SLOTS tensors [BLOCK, LANES]; see `gpu.weights`
for the layout. Nothing can index a register at run time, so a slot is found by comparing with every one.

Whatever runs once a launch goes round the slots in a loop that is not unrolled: unrolled, its addresses sat in 60
registers while the main loop ran, and Triton's coalescing pass takes time as loads times operations squared. What keeps
the compiler from unrolling is a zero that is known only at run time, `hidden`.
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import replace_where_equal, row_sum


@triton.jit
def select(values, local, SLOTS: tl.constexpr):
    """values[local] where local is a slot of this thread; anything elsewhere."""
    found = values[0]
    for j in tl.static_range(1, SLOTS):
        found = tl.where(local == j, values[j], found)
    return found


@triton.jit
def replace(values, local, new, SLOTS: tl.constexpr):
    """The tuple with values[local] = new where local is a slot of this thread."""
    replaced = ()
    for j in tl.static_range(SLOTS):
        replaced = replaced + (tl.where(local == j, new, values[j]),)
    return replaced


@triton.jit
def replace_three(tally, a, b, local, new_tally, new_a, new_b, SLOTS: tl.constexpr):
    """`replace` on three tuples at once."""
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
def pulls_of(tally, V: tl.constexpr):
    """Pulls that a packed tally holds."""
    return (tally >> (V.index_bits + V.count_bits)).to(tl.int32)


@triton.jit
def successes_of(tally, V: tl.constexpr):
    """Successes that a packed tally holds."""
    return ((tally >> V.index_bits) & ((1 << V.count_bits) - 1)).to(tl.int32)


@triton.jit
def all_counts(tally, gain, p_count, p_gain, stride, V: tl.constexpr):
    """Pulls and reward sums of every slot."""
    SLOTS: tl.constexpr = V.slots
    counts = ()
    gains = ()
    for j in tl.static_range(SLOTS):
        if V.packed:
            n = pulls_of(tally[j], V)
            s = successes_of(tally[j], V)
            if V.long:
                n += tl.load(p_count + j * stride)
                s += tl.load(p_gain + j * stride)
            counts = counts + (n,)
            gains = gains + (s,)
        else:
            counts = counts + (tally[j],)
            gains = gains + (gain[j],)
    return counts, gains


@triton.jit
def load_state(
    hidden, zero, o_arm, o_clamped, p_count, p_gain, p_preference, instances, numbers, REFRESH: tl.constexpr,
    V: tl.constexpr,
):  # fmt: skip
    """Tallies, reward sums and cached numbers as the last launch left them; `numbers` are p, q, unit, offset."""
    SLOTS: tl.constexpr = V.slots
    p, q, unit, offset = numbers
    kind = tl.float64 if V.double else tl.float32
    tally = ()
    gain = ()
    a = ()
    b = ()
    for j in tl.static_range(SLOTS):
        tally = tally + (zero.to(tl.uint32) if V.packed else zero,)
        gain = gain + (zero if V.packed else zero.to(tl.float64),)
        a = a + (zero.to(kind),)
        b = b + (zero.to(kind),)
    step = hidden
    while step < SLOTS:
        slot = zero + step
        real = o_arm + step < V.arms
        n = tl.load(p_count + step * instances.to(tl.int64), mask=real, other=0)
        s = tl.load(p_gain + step * instances.to(tl.int64), mask=real, other=0)
        if V.packed:
            # A launch of a long history counts from 0 and adds what came before.
            packed = slot if V.long else (n << (V.index_bits + V.count_bits)) + (s << V.index_bits) + slot
            tally = replace(tally, slot, packed.to(tl.uint32), SLOTS)
        else:
            tally = replace(tally, slot, n, SLOTS)
            gain = replace(gain, slot, s, SLOTS)
        if V.choose == "preference":
            o_slot = (o_arm + step).to(tl.int64) * instances + o_clamped
            a = replace(a, slot, tl.load(p_preference + o_slot, mask=real, other=0.0), SLOTS)
        else:
            new_a, new_b = REFRESH(tl.maximum(n, V.floor), s, p, q, unit, offset)
            a = replace(a, slot, tl.where(real, new_a, 0.0), SLOTS)
            b = replace(b, slot, tl.where(real, new_b, 0.0), SLOTS)
        step += 1 + hidden
    return tally, gain, a, b


@triton.jit
def store_state(
    hidden, zero, o_arm, o_clamped, m_instance, tally, gain, a, p_count, p_gain, p_preference, instances,
    V: tl.constexpr,
):  # fmt: skip
    """Pulls, reward sums and preferences for the next launch."""
    SLOTS: tl.constexpr = V.slots
    stride = instances.to(tl.int64)
    step = hidden
    while step < SLOTS:
        slot = zero + step
        mask = m_instance & (o_arm + step < V.arms)
        n = select(tally, slot, SLOTS)
        if V.packed:
            s = successes_of(n, V)
            n = pulls_of(n, V)
            if V.long:
                n += tl.load(p_count + step * stride, mask=mask, other=0)
                s += tl.load(p_gain + step * stride, mask=mask, other=0)
        else:
            s = select(gain, slot, SLOTS)
        tl.store(p_count + step * stride, n, mask=mask)
        tl.store(p_gain + step * stride, s, mask=mask)
        if V.choose == "preference":
            o_slot = (o_arm + step).to(tl.int64) * instances + o_clamped
            tl.store(p_preference + o_slot, select(a, slot, SLOTS), mask=mask)
        step += 1 + hidden


@triton.jit
def write_checkpoint(
    hidden, row, arm, tally, p_count, p_gap, gap_stride, stride, o_arm, instances, o_instance, m_instance, p_regret,
    p_optimal, p_best, V: tl.constexpr,
):  # fmt: skip
    """Write the regret so far, whether the last pull was optimal, and how many pulls were.

    This block hardly ever runs, so it must not cost the loop registers.
    """
    SLOTS: tl.constexpr = V.slots
    regret = tl.zeros_like(o_arm).to(tl.float64)
    best = tl.zeros_like(o_arm)
    step = hidden
    while step < SLOTS:
        real = o_arm + step < V.arms
        n = select(tally, o_arm * 0 + step, SLOTS)
        if V.packed:
            n = pulls_of(n, V)
            if V.long:
                n += tl.load(p_count + step * stride, mask=real, other=0)
        gap = tl.load(p_gap + (o_arm + step).to(tl.int64) * gap_stride, mask=real, other=0.0)
        regret = regret + n.to(tl.float64) * gap
        best = best + tl.where(real & (gap == 0.0), n, 0)
        step += 1 + hidden
    regret = row_sum(regret, V.lanes)
    optimal = tl.load(p_gap + arm.to(tl.int64) * gap_stride) == 0.0
    mask = m_instance & (o_arm == 0)
    o_row = row.to(tl.int64) * instances + o_instance
    tl.store(p_regret + o_row, regret, mask=mask)
    tl.store(p_optimal + o_row, optimal.to(tl.int8), mask=mask)
    tl.store(p_best + o_row, row_sum(best, V.lanes), mask=mask)
