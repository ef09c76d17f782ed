"""The fused kernel: many steps of the bandit loop, one instance per thread or a few, all state in registers.

A program holds V.block instances of V.lanes threads each; thread l of an instance holds the arms l slots ... and no
others. State comes from memory once a launch and goes back once. `gpu.step` has the cost of a step; what is here:

- sqrt(2 ln N), and a head's parameters where they have a schedule, come from tables of a number per step, rounded
  from float64 and shared by all instances: a load that is uniform across the device, from the first-level cache.
- One Philox call serves two steps, so the loop takes two steps a turn; its first rounds have constant inputs, which the
  compiler takes out of the loop. A single step, before an odd start or a forced pull, is a kernel of its own.
- Regret is counted at checkpoints from the pull counts and needs nothing per step.
- Addresses are int64; instances past the last one repeat it and store nothing.

Speed on an H200 in 10^9 arm-steps a second, the median of 5 repeats, and instructions per arm-step; Bernoulli arms,
T = 1000, centred UCB scores:

| K | softmax, beta = 1 | instructions | s_tau, tau = 5 | instructions |
|---|---|---|---|---|
| 2 | 633 | 34.5 | 544 | 40.5 |
| 10 | 1385 (another run: 1491) | 14.8 | 1126 (1154) | 19.3 |
| 32 | 1811 | 10.5 | 1271 | 16.2 |
| 128 | 1284 | 12.1 | 929 | 17.7 |
| 1024 | 809 | 15.6 | 704 | 21.6 |

With K = 1024 most of these steps are first pulls; over 4096 steps of 4096 instances it is 1049 and 806.
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import philox
from stau_rl.kernels.gpu.state import load_state, store_state, write_checkpoint
from stau_rl.kernels.gpu.step import play


@triton.jit(
    do_not_specialize=[
        "start",
        "stop",
        "table_start",
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
    p_schedule,
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
    table_start,
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
    REFRESH: tl.constexpr,
    SCORE: tl.constexpr,
    HEAD: tl.constexpr,
    SLOPE: tl.constexpr,
    REWARD: tl.constexpr,
    V: tl.constexpr,
):
    """Steps [start, stop) of every instance; both are even where V.steps is 2.

    Args:
        p_count, p_gain: pulls, int32, and reward sums, int32 (Bernoulli) or float64, [K, instances].
        p_preference: preferences, float32 [K, instances]; p_total: sum of all rewards, float64 [instances].
        p_arm: what a reward needs of an arm, at k arm_stride + i arm_step; p_gap: gaps, float64, likewise.
        p_width: a number per step, from step `table_start`, or a posterior's p, q and offset.
        p_schedule: p and q of each step, float32 [steps, 2].
        p_value, p_offset: observations of a table; or p_value has the deviation of exact Gaussian rewards.
        p_checkpoint: numbers of plays at which to write a row of p_regret and p_optimal, from `row`, then a sentinel.
        p_best: pulls of optimal arms by then, int32, likewise.
        p_action, p_reward: a record of every step, int16 and float64 [steps, instances], if V.record.
    """
    STEPS: tl.constexpr = V.steps
    BLOCK: tl.constexpr = V.block
    LANES: tl.constexpr = V.lanes
    zero = tl.zeros([BLOCK, LANES], tl.int32)
    o_program = tl.program_id(0).to(tl.int64) * BLOCK
    o_instance = o_program + tl.arange(0, BLOCK)[:, None] + zero
    m_instance = o_instance < instances
    o_arm = tl.arange(0, LANES)[None, :] * V.slots + zero
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

    if V.choose == "posterior":
        # Arguments are float32.
        numbers = (tl.load(p_width), tl.load(p_width + 1), 1.0, tl.load(p_width + 2))
    elif V.moved:
        # What moves the centre would only cost the means digits.
        numbers = (p, q, unit, 0.0)
    else:
        numbers = (p, q, unit, offset)
    hidden = tl.load(p_checkpoint + row) * 0
    tally, gain, a, b = load_state(
        hidden, zero, o_arm, o_clamped, p_count, p_gain, p_preference, instances, numbers, REFRESH, V
    )
    total = tl.zeros([BLOCK, LANES], tl.float64)
    if V.choose == "preference" or V.past:
        total += tl.load(p_total + o_clamped)

    stride = instances.to(tl.int64)
    # The interpreter hands out plain integers as loop variables; adding them to a tensor makes them tensors anywhere.
    nought = tl.full([], 0, tl.int32)
    stream = nought.to(tl.uint32)
    due = tl.load(p_checkpoint + row)
    wide: tl.constexpr = V.double or (V.choose == "preference" and not V.packed)
    width = tl.full([], 0.0, tl.float64 if wide else tl.float32)
    for first in range(start, stop, STEPS):
        words = philox(low, high, ((nought + first) >> 1).to(tl.uint32), stream, k0, k1)
        o_table = (nought + first - table_start).to(tl.int64)
        for half in tl.static_range(STEPS):
            t = nought + first + half
            if STEPS == 2:
                action, word = words[2 * half], words[2 * half + 1]
            else:
                odd = (t & 1) == 1
                action, word = tl.where(odd, words[2], words[0]), tl.where(odd, words[3], words[1])
            if V.width:
                width = tl.load(p_width + o_table + half)
            if V.scheduled:
                step_p = tl.load(p_schedule + 2 * (o_table + half))
                step_q = tl.load(p_schedule + 2 * (o_table + half) + 1)
            else:
                step_p, step_q = p, q
            arm, reward, tally, gain, a, b, total = play(
                t,
                action,
                word,
                (low, high, k0, k1),
                width,
                step_p,
                step_q,
                tally,
                gain,
                a,
                b,
                total,
                o_arm,
                (p_count, p_gain, stride),
                (p_arm, arm_stride, p_value, p_offset, sigma),
                numbers,
                offset,
                step_size,
                REFRESH,
                SCORE,
                HEAD,
                SLOPE,
                REWARD,
                V,
            )
            if V.record:
                o_record = t.to(tl.int64) * instances + o_instance
                mask = m_instance & (o_arm == 0)
                tl.store(p_action + o_record, arm.to(tl.int16), mask=mask)
                tl.store(p_reward + o_record, reward.to(tl.float64), mask=mask)
            if t + 1 == due:
                write_checkpoint(
                    tl.load(p_checkpoint + row) - t - 1,
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
                    p_regret,
                    p_optimal,
                    p_best,
                    V,
                )
                row += 1
                due = tl.load(p_checkpoint + row)

    hidden = tl.load(p_checkpoint + row) * 0
    store_state(hidden, zero, o_arm, o_clamped, m_instance, tally, gain, a, p_count, p_gain, p_preference, instances, V)
    if V.choose == "preference" or V.past:
        tl.store(p_total + o_instance, total, mask=m_instance & (o_arm == 0))
