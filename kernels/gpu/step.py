"""One step of every instance in registers: choose an arm, draw its reward, update.

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

The rows count operations as they are written. The disassembly for K = 2 and 10 has 9.8 (softmax) and 13.9 (s_tau) per
arm, and 49 and 53 per step: the compiler joins one operation of s_tau's and adds moves.

A step adds what its arms share: half a Philox call (22), the reward and its load (9), counts, mean and 1/sqrt(n) of
the pulled arm (11), the uniform (5), loop and checkpoint test (4). `gpu.heads` has the cost of other forms. A
schedule adds two loads of a number that all instances share and, to softmax, a multiplication per arm; an offset of
centred scores adds one addition per step, any other offset nothing.

Why each trick is there:

- Pulls, successes and slot of an arm share one 32-bit register (14, 14 and 4 bits for up to 16 slots). One select finds
  the arm and reads both counts, one writes them. A launch runs as many steps as fit; longer histories add the counts
  of earlier launches, read from memory for the pulled arm alone, and so stay exact up to 2^31 - 1 pulls.
- The pulled arm's Bernoulli bound, or mean, is a load by index that the first-level cache serves; keeping it in
  registers would cost K registers and K selects a step.
- Mean and 1/sqrt(n) are cached per arm and change only for the pulled one. They are pure functions of (n, S), so
  launches can stop anywhere and histories do not depend on where. They are moved by predicated multiply-adds, as the
  pipe of selects is the busiest.
- The head's unit and an offset of uncentred scores are folded into mean and bonus, where they cost nothing per arm.
- Centring costs no subtraction in s_tau: 2^(y - centre) + 1 is the multiply-add 2^y 2^-centre + 1.
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import below
from stau_rl.kernels.gpu.policies import choose_best, choose_beta, choose_noisy, explore_or_best
from stau_rl.kernels.gpu.state import all_counts, pulls_of, replace, replace_three, select, successes_of
from stau_rl.kernels.gpu.weights import choose_by_preference, choose_by_weight


@triton.jit
def _learn(a, shares, local, reward, width, total, p, q, step_size, SLOPE: tl.constexpr, V: tl.constexpr):
    """Move the preferences along the gradient of log weight, and the sum of rewards on."""
    SLOTS: tl.constexpr = V.slots
    if V.baseline == "past":
        total += reward.to(tl.float64)
    if V.baseline == "none":
        difference = reward.to(tl.float32)
    elif V.packed:
        difference = reward.to(tl.float32) - total.to(tl.float32) * width
    else:
        # Rewards may lie far from 0, and little from their mean.
        difference = (reward - total * width).to(tl.float32)
    advantage = difference * step_size
    if V.baseline == "before":
        total += reward.to(tl.float64)
    preferences = ()
    for j in tl.static_range(SLOTS):
        chosen = tl.where(local == j, 1.0, 0.0)
        preferences = preferences + (a[j] + advantage * SLOPE(a[j], p, q) * (chosen - shares[j]),)
    return preferences, total


@triton.jit
def play(
    t,
    action,
    word,
    draw,
    width,
    p,
    q,
    tally,
    gain,
    a,
    b,
    total,
    o_arm,
    counts_before,
    reward_memory,
    numbers,
    offset,
    step_size,
    REFRESH: tl.constexpr,
    SCORE: tl.constexpr,
    HEAD: tl.constexpr,
    SLOPE: tl.constexpr,
    REWARD: tl.constexpr,
    V: tl.constexpr,
):
    """One step of every instance.

    Args:
        t: the step, from 0; action, word: its action and reward words.
        draw: what other words are made of: number of the instance, low and high, and the key.
        width: the step's number from the table, if V.width; p, q: the head's parameters at this step.
        tally, gain, a, b, total: the state.
        o_arm: number of the thread's first arm.
        counts_before: pointers to pulls and reward sums of earlier launches, and their stride.
        reward_memory: what `gpu.rewards` reads, in its order.
        numbers: p, q, unit, offset for REFRESH; offset: what moves the centre, if V.moved.
        step_size: of a gradient bandit.

    Returns:
        The arm, its reward and the new state.
    """
    SLOTS: tl.constexpr = V.slots
    p_count, p_gain, stride = counts_before
    p_arm, arm_stride, p_value, p_offset, sigma = reward_memory
    refresh_p, refresh_q, unit, refresh_offset = numbers
    if V.packed:
        picks = tally
    else:
        picks = ()
        for j in tl.static_range(SLOTS):
            picks = picks + ((o_arm * 0 + j).to(tl.uint32),)
    if V.choose == "weight":
        grand = total
        if V.past:
            grand = total / tl.maximum(t, 1).to(tl.float64) * unit
        arm, picked = choose_by_weight(
            action, width, a, b, picks, o_arm, p, q, offset, grand.to(a[0].dtype), SCORE, HEAD, V
        )
    elif V.choose == "best":
        arm = choose_best(action, width, q, a, b, o_arm, SCORE, V)
    elif V.choose == "uniform":
        arm = below(action, tl.full([], V.arms, tl.uint32))
    elif V.choose == "explore":
        arm = explore_or_best(t, action, draw, a, b, p, o_arm, SCORE, V)
    elif V.choose == "posterior" or V.choose == "gumbel":
        arm = choose_noisy(t, draw, a, b, p, o_arm, V)
    elif V.choose == "beta":
        counts, gains = all_counts(tally, gain, p_count, p_gain, stride, V)
        arm = choose_beta(t, draw, counts, gains, o_arm, V)
    else:
        arm, picked, shares = choose_by_preference(action, a, unit, picks, o_arm, p, q, HEAD, V)
    if V.forced:
        arm = tl.where(t < V.arms, t, arm)

    reward = REWARD(word, arm, p_arm, arm_stride, p_value, p_offset, sigma)
    local = arm - o_arm if V.lanes > 1 else arm
    if V.packed:
        if (V.choose == "weight" or V.choose == "preference") and not V.forced:
            old = picked
        else:
            old = select(tally, local, SLOTS)
        new = old + ((reward << V.index_bits) + (1 << (V.index_bits + V.count_bits))).to(tl.uint32)
        n = pulls_of(new, V)
        s = successes_of(new, V)
        if V.long:
            o_pulled = (arm - o_arm).to(tl.int64) * stride
            n += tl.load(p_count + o_pulled)
            s += tl.load(p_gain + o_pulled)
    else:
        new = select(tally, local, SLOTS) + 1
        n = new
        s = select(gain, local, SLOTS) + reward
        gain = replace(gain, local, s, SLOTS)

    if V.past:
        total += reward.to(tl.float64)
    if V.choose == "preference":
        a, total = _learn(a, shares, local, reward, width, total, p, q, step_size, SLOPE, V)
    elif V.cached:
        new_a, new_b = REFRESH(n, s, refresh_p, refresh_q, unit, refresh_offset)
        if V.packed and not V.double:
            tally, a, b = replace_three(tally, a, b, local, new, new_a, new_b, SLOTS)
        else:
            tally = replace(tally, local, new, SLOTS)
            a = replace(a, local, new_a, SLOTS)
            b = replace(b, local, new_b, SLOTS)
    if not V.cached:
        tally = replace(tally, local, new, SLOTS)
    return arm, reward, tally, gain, a, b, total
