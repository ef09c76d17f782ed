"""Rewards as device functions: monotone functions of the step's reward word, per kind of `contract.ArmTable`.

What belongs to the pulled arm (its mean, or where its observations start) is read from memory by index: K
registers and K selects a step would cost more than one load, which mostly hits the first-level cache.
"""

import triton
import triton.language as tl

from stau_rl.kernels.gpu.math import load_strided, normal_quantile, normal_quantile64


@triton.jit
def bernoulli(word, arm, p_arm, stride, p_value, p_offset, sigma):
    """1 if (word >> 8) < ceil(mean 2^24), int32; `p_arm` holds the bounds as int32."""
    bound = load_strided(p_arm, arm, stride)
    return ((word >> 8).to(tl.int32) < bound).to(tl.int32)


@triton.jit
def gaussian(word, arm, p_arm, stride, p_value, p_offset, sigma):
    """mean + sigma Phi^-1(u), float64 from a float32 quantile; `p_arm` holds the means as float64."""
    mean = tl.load(p_arm + arm.to(tl.int64) * stride)
    return mean + normal_quantile(word).to(tl.float64) * sigma


@triton.jit
def gaussian_exact(word, arm, p_arm, stride, p_value, p_offset, sigma):
    """The same from a float64 quantile; `p_value` holds sigma as float64, which the argument has rounded."""
    mean = tl.load(p_arm + arm.to(tl.int64) * stride)
    return mean + normal_quantile64(word) * tl.load(p_value)


@triton.jit
def table(word, arm, p_arm, stride, p_value, p_offset, sigma):
    """The observation of rank ((2 w + 1) size) >> 25 of the arm, w = word >> 8, float64."""
    first = tl.load(p_offset + arm)
    size = tl.load(p_offset + arm + 1) - first
    rank = ((word >> 8).to(tl.int64) * 2 + 1) * size >> 25
    return tl.load(p_value + first + rank)
