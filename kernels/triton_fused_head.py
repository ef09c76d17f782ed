"""Kernels of log s^tau on rows of scores, forward and backward; `fused_head` has the op, its reference, the formulas.

A program holds ROWS rows of K scores, padded to LANES, in registers: the forward reads each score once and writes each
log-weight once; the backward reads scores, log-weights and their gradient once and writes the gradient of the scores.
"""

import triton
import triton.language as tl

from stau_rl.kernels.triton_heads import s_tau_exact_tail_log2, s_tau_log2, s_tau_slope
from stau_rl.kernels.triton_math import exp2, log2

_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _entries(p_mask, rows, K: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, HAS_MASK: tl.constexpr):
    """Row numbers, offsets, and which entries exist and which count, of this program."""
    o_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o_entry = tl.arange(0, LANES)
    inside = (o_row < rows)[:, None] & (o_entry < K)[None, :]
    offsets = o_row[:, None] * K + o_entry[None, :]
    counted = inside
    if HAS_MASK:
        counted = inside & (tl.load(p_mask + offsets, mask=inside, other=0) != 0)
    return o_row, offsets, inside, counted


@triton.jit
def _load_tau(p_tau, o_row, rows, TAU_PER_ROW: tl.constexpr):
    if TAU_PER_ROW:
        return tl.load(p_tau + o_row, mask=o_row < rows, other=1.0)[:, None]
    return tl.load(p_tau)


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
    LANES: tl.constexpr,
    HAS_MASK: tl.constexpr,
    TAU_PER_ROW: tl.constexpr,
    EXACT_TAIL: tl.constexpr,
):
    """Log-weights; floor = eps / ln 2, and EXACT_TAIL says that it is 0."""
    o_row, offsets, inside, counted = _entries(p_mask, rows, K, ROWS, LANES, HAS_MASK)
    tau = _load_tau(p_tau, o_row, rows, TAU_PER_ROW)
    scores = tl.load(p_scores + offsets, mask=inside, other=0.0).to(tl.float32)
    scores = tl.where(counted, scores, 0.0)
    if EXACT_TAIL:
        log_f = s_tau_exact_tail_log2(scores * _LOG2_E, 0.0, tau, floor, 0)
    else:
        log_f = s_tau_log2(scores * _LOG2_E, 0.0, tau, floor, 0)
    log_f = tl.where(counted, log_f, float("-inf"))
    peak = tl.max(log_f, axis=1)[:, None]
    # A row without f > 0 is uniform over its unmasked entries.
    dead = peak == float("-inf")
    log_f = tl.where(dead, tl.where(counted, 0.0, float("-inf")), log_f - tl.where(dead, 0.0, peak))
    total = tl.sum(exp2(log_f), axis=1)[:, None]
    log_total = log2(tl.where(total > 0.0, total, 1.0))
    tl.store(p_out + offsets, (log_f - log_total) * _LN_2, mask=inside)


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
    LANES: tl.constexpr,
    HAS_MASK: tl.constexpr,
    TAU_PER_ROW: tl.constexpr,
    EXACT_TAIL: tl.constexpr,
    NEEDS_TAU: tl.constexpr,
):
    """Gradient of the scores, and of tau per row or, for one tau, summed per program."""
    o_row, offsets, inside, counted = _entries(p_mask, rows, K, ROWS, LANES, HAS_MASK)
    tau = _load_tau(p_tau, o_row, rows, TAU_PER_ROW)
    scores = tl.load(p_scores + offsets, mask=inside, other=0.0).to(tl.float32)
    scores = tl.where(counted, scores, 0.0)
    grad = tl.load(p_grad + offsets, mask=inside, other=0.0)
    out = tl.load(p_out + offsets, mask=inside, other=float("-inf"))
    used = counted
    if EXACT_TAIL:
        # The log-weights of a dead row do not depend on its scores.
        used = counted & (tl.max(tl.where(counted, scores, float("-inf")), axis=1)[:, None] > float("-inf"))
    grad = tl.where(used, grad, 0.0)
    weight = exp2(out * _LOG2_E)
    total = tl.sum(grad, axis=1)[:, None]
    # For a weight near 1, 1 - w is the sum of the others, which 1 - w itself would round away.
    heavy = weight > 0.5
    rest = tl.sum(tl.where(heavy, 0.0, weight), axis=1)[:, None]
    inner = tl.where(heavy, (grad - total) + total * rest, grad - weight * total)
    inner = tl.where(used, inner, 0.0)
    slope = s_tau_slope(scores, tau, floor)
    if EXACT_TAIL:
        slope = tl.where(scores == float("-inf"), 0.0, slope)
    tl.store(p_grad_scores + offsets, inner * slope, mask=inside)
    if NEEDS_TAU:
        # The inner gradients of a row sum to 0, so log phi may be replaced by log w / tau.
        share = tl.sum(inner * tl.where(out > float("-inf"), out, 0.0) / tau, axis=1)
        if TAU_PER_ROW:
            tl.store(p_grad_tau + o_row, share, mask=o_row < rows)
        else:
            tl.store(p_grad_tau + tl.program_id(0), tl.sum(share, axis=0))
