"""Kernels of log s^tau on rows of scores, forward and backward; `fused_head` has the op, its reference, the formulas.

A program holds ROWS rows in registers: the forward reads each score once and writes each log-weight once; the backward
reads scores, log-weights and their gradient once and writes the gradient of the scores. A row is a main piece of MAIN
entries and, where padding it to a power of two would waste too many lanes, a tail of TAIL more: 18 = 16 + 2.
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import exp2, log2, reciprocal, softplus2

_LOG2_E = tl.constexpr(1.4426950408889634)
_LOG2_LOG2_E = tl.constexpr(0.5287663729448977)
_LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _entries(p_mask, o_row, rows, K: tl.constexpr, START: tl.constexpr, LANES: tl.constexpr, HAS_MASK: tl.constexpr):
    """Offsets of a piece of the rows, which of its entries exist, and which of these count."""
    o_entry = START + tl.arange(0, LANES)
    inside = (o_row < rows)[:, None] & (o_entry < K)[None, :]
    offsets = o_row[:, None] * K + o_entry[None, :]
    counted = inside
    if HAS_MASK:
        counted = inside & (tl.load(p_mask + offsets, mask=inside, other=0) != 0)
    return offsets, inside, counted


@triton.jit
def _load_scores(p_scores, offsets, inside, counted, HAS_MASK: tl.constexpr):
    scores = tl.load(p_scores + offsets, mask=inside, other=0.0).to(tl.float32)
    if HAS_MASK:
        scores = tl.where(counted, scores, 0.0)
    return scores


@triton.jit
def _load_tau(p_tau, o_row, rows, TAU_PER_ROW: tl.constexpr):
    if TAU_PER_ROW:
        tau = tl.load(p_tau + o_row, mask=o_row < rows, other=1.0)[:, None]
    else:
        tau = tl.load(p_tau)
    return tau


@triton.jit
def _log2_f(scores, counted, tau, floor, EXACT_TAIL: tl.constexpr, CAN_MISS: tl.constexpr):
    """tau log2(softplus2(y) + floor), y = s log2 e; without floor, log2 softplus2(y) = y + log2 log2 e below -24."""
    y = scores * _LOG2_E
    if EXACT_TAIL:
        log_f = tau * tl.where(y < -24.0, y + _LOG2_LOG2_E, log2(softplus2(tl.maximum(y, -24.0))))
    else:
        log_f = tau * log2(softplus2(y) + floor)
    if CAN_MISS:
        log_f = tl.where(counted, log_f, float("-inf"))
    return log_f


@triton.jit
def _below_peak(log_f, counted, peak, CAN_DIE: tl.constexpr):
    """log2 f - its maximum; a row without f > 0 is uniform over its unmasked entries."""
    if CAN_DIE:
        dead = peak == float("-inf")
        log_f = tl.where(dead, tl.where(counted, 0.0, float("-inf")), log_f - tl.where(dead, 0.0, peak))
    else:
        log_f = log_f - peak
    return log_f


@triton.jit
def _log_phi_slope(scores, floor, EXACT_TAIL: tl.constexpr):
    """sigmoid(s) / (softplus(s) + eps), with one reciprocal; far below 0 it is 1 without eps and 0 with it."""
    y = scores * _LOG2_E
    z = exp2(-tl.abs(y))
    slope = tl.where(y > 0.0, 1.0, z) * reciprocal((1.0 + z) * (softplus2(y) + floor) * _LN_2)
    if EXACT_TAIL:
        slope = tl.where(scores < -60.0, tl.where(scores == float("-inf"), 0.0, 1.0), slope)
    return slope


@triton.jit
def _inner(grad, weight, total, rest):
    """g - w sum(g). For a weight near 1, 1 - w is the sum of the others, which 1 - w itself would round away."""
    return tl.where(weight > 0.5, (grad - total) + total * rest, grad - weight * total)


@triton.jit
def _times_log_weight(inner, out, CAN_BE_ZERO: tl.constexpr):
    if CAN_BE_ZERO:
        out = tl.where(out > float("-inf"), out, 0.0)
    return inner * out


@triton.jit
def log_s_tau_fwd_kernel(
    p_scores,
    p_tau,
    p_mask,
    p_out,
    rows,
    floor,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    MAIN: tl.constexpr,
    TAIL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    TAU_PER_ROW: tl.constexpr,
    EXACT_TAIL: tl.constexpr,
):
    """Log-weights; floor = eps / ln 2, and EXACT_TAIL says that it is 0."""
    o_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tau = _load_tau(p_tau, o_row, rows, TAU_PER_ROW)
    CAN_DIE: tl.constexpr = HAS_MASK or EXACT_TAIL
    CAN_MISS: tl.constexpr = HAS_MASK or MAIN + TAIL != K
    offsets, inside, counted = _entries(p_mask, o_row, rows, K, 0, MAIN, HAS_MASK)
    log_f = _log2_f(
        _load_scores(p_scores, offsets, inside, counted, HAS_MASK), counted, tau, floor, EXACT_TAIL, CAN_MISS
    )
    peak = tl.max(log_f, axis=1)[:, None]
    if TAIL > 0:
        t_offsets, t_inside, t_counted = _entries(p_mask, o_row, rows, K, MAIN, TAIL, HAS_MASK)
        t_scores = _load_scores(p_scores, t_offsets, t_inside, t_counted, HAS_MASK)
        t_log_f = _log2_f(t_scores, t_counted, tau, floor, EXACT_TAIL, CAN_MISS)
        peak = tl.maximum(peak, tl.max(t_log_f, axis=1)[:, None])
    log_f = _below_peak(log_f, counted, peak, CAN_DIE)
    total = tl.sum(exp2(log_f), axis=1)[:, None]
    if TAIL > 0:
        t_log_f = _below_peak(t_log_f, t_counted, peak, CAN_DIE)
        total += tl.sum(exp2(t_log_f), axis=1)[:, None]
    log_total = log2(tl.where(total > 0.0, total, 1.0))
    tl.store(p_out + offsets, (log_f - log_total) * _LN_2, mask=inside)
    if TAIL > 0:
        tl.store(p_out + t_offsets, (t_log_f - log_total) * _LN_2, mask=t_inside)


@triton.jit
def log_s_tau_bwd_kernel(
    p_grad,
    p_scores,
    p_tau,
    p_mask,
    p_out,
    p_grad_scores,
    p_grad_tau,
    rows,
    floor,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    MAIN: tl.constexpr,
    TAIL: tl.constexpr,
    HAS_MASK: tl.constexpr,
    TAU_PER_ROW: tl.constexpr,
    EXACT_TAIL: tl.constexpr,
    NEEDS_TAU: tl.constexpr,
):
    """Gradient of the scores, and of tau per row or, for one tau, summed per program."""
    o_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tau = _load_tau(p_tau, o_row, rows, TAU_PER_ROW)
    offsets, inside, counted = _entries(p_mask, o_row, rows, K, 0, MAIN, HAS_MASK)
    scores = _load_scores(p_scores, offsets, inside, counted, HAS_MASK)
    grad = tl.load(p_grad + offsets, mask=inside, other=0.0)
    # Where every entry counts and has some weight, log-weights are finite; those of rows beyond the last become 0.
    CAN_BE_ZERO: tl.constexpr = HAS_MASK or EXACT_TAIL or MAIN + TAIL != K
    NOTHING: tl.constexpr = float("-inf") if CAN_BE_ZERO else 0.0
    out = tl.load(p_out + offsets, mask=inside, other=NOTHING)
    if TAIL > 0:
        t_offsets, t_inside, t_counted = _entries(p_mask, o_row, rows, K, MAIN, TAIL, HAS_MASK)
        t_scores = _load_scores(p_scores, t_offsets, t_inside, t_counted, HAS_MASK)
        t_grad = tl.load(p_grad + t_offsets, mask=t_inside, other=0.0)
        t_out = tl.load(p_out + t_offsets, mask=t_inside, other=NOTHING)
    alive = tl.full([ROWS, 1], 1, tl.int1)
    if EXACT_TAIL:
        # The log-weights of a row of -inf alone do not depend on its scores.
        top = tl.max(tl.where(counted, scores, float("-inf")), axis=1)[:, None]
        if TAIL > 0:
            top = tl.maximum(top, tl.max(tl.where(t_counted, t_scores, float("-inf")), axis=1)[:, None])
        alive = top > float("-inf")
    if HAS_MASK:
        grad = tl.where(counted, grad, 0.0)
    weight = exp2(out * _LOG2_E)
    total = tl.sum(grad, axis=1)[:, None]
    rest = tl.sum(tl.where(weight > 0.5, 0.0, weight), axis=1)[:, None]
    if TAIL > 0:
        if HAS_MASK:
            t_grad = tl.where(t_counted, t_grad, 0.0)
        t_weight = exp2(t_out * _LOG2_E)
        total += tl.sum(t_grad, axis=1)[:, None]
        rest += tl.sum(tl.where(t_weight > 0.5, 0.0, t_weight), axis=1)[:, None]
    inner = _inner(grad, weight, total, rest)
    if EXACT_TAIL:
        inner = tl.where(alive, inner, 0.0)
    tl.store(p_grad_scores + offsets, inner * tau * _log_phi_slope(scores, floor, EXACT_TAIL), mask=inside)
    if TAIL > 0:
        t_inner = _inner(t_grad, t_weight, total, rest)
        if EXACT_TAIL:
            t_inner = tl.where(alive, t_inner, 0.0)
        t_slope = _log_phi_slope(t_scores, floor, EXACT_TAIL)
        tl.store(p_grad_scores + t_offsets, t_inner * tau * t_slope, mask=t_inside)
    if NEEDS_TAU:
        # The inner gradients of a row sum to 0, so log phi may be replaced by log w / tau.
        share = tl.sum(_times_log_weight(inner, out, CAN_BE_ZERO), axis=1)[:, None]
        if TAIL > 0:
            share += tl.sum(_times_log_weight(t_inner, t_out, CAN_BE_ZERO), axis=1)[:, None]
        share = share / tau
        if TAU_PER_ROW:
            tl.store(p_grad_tau + o_row[:, None], share, mask=(o_row < rows)[:, None])
        else:
            tl.store(p_grad_tau + tl.program_id(0), tl.sum(tl.sum(share, axis=1), axis=0))
