"""Philox4x32-10, the counter-based generator behind every random draw, on numpy arrays and torch tensors alike.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; known answers from
the Random123 distribution. The word table (which counter serves which purpose) is below.

Key = (seed low, seed high); counter = (instance low, instance high, index, stream).

| stream | index | words |
|---|---|---|
| ACTION_REWARD = 0 | t >> 1 | word 2 (t & 1): the action uniform; word 2 (t & 1) + 1: the reward uniform |
| ARM_MEAN = 1 | arm k | word 0: the arm's mean from its prior |
| DYNAMICS = 2 | t | environment dynamics |
| SECOND = 3 | t | a policy's second uniform: word 0 the arm to explore, word 1 ties |
| PRIVATE = 16 + k + 1024 j | t | the policy's private draw for arm k, attempt j |
"""

from typing import Any

import numpy as np

ACTION_REWARD, ARM_MEAN, DYNAMICS, SECOND, PRIVATE = 0, 1, 2, 3, 16
MAX_ARMS = 1024

MULTIPLIER_0, MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
LOW = 0xFFFFFFFF


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Ten Philox rounds on four 32-bit counter words and two 32-bit key words.

    Args:
        counter: four int64 arrays holding 32-bit words, all numpy or all torch, broadcast against each other.
        key: two 32-bit words.

    Returns:
        Four int64 arrays holding 32-bit words, of the broadcast shape.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        # The product wraps in a signed 64-bit integer; shift and mask still give the unsigned halves.
        product_0, product_1 = c0 * MULTIPLIER_0, c2 * MULTIPLIER_1
        c0, c2 = (product_1 >> 32) & LOW ^ c1 ^ k0, (product_0 >> 32) & LOW ^ c3 ^ k1
        c1, c3 = product_1 & LOW, product_0 & LOW
        k0, k1 = (k0 + WEYL_0) & LOW, (k1 + WEYL_1) & LOW
    return c0, c1, c2, c3


def words(seed: int, instances: Any, index: Any, stream: Any) -> tuple[Any, Any, Any, Any]:
    """The four words of a draw.

    Args:
        seed: in [0, 2^64).
        instances: global instance numbers, int64 array (numpy or torch).
        index: the counter's third word, an integer or int64 array that broadcasts against `instances`.
        stream: the counter's fourth word, likewise.

    Returns:
        Four int64 arrays holding 32-bit words.
    """
    zero = instances * 0
    return philox4x32((instances & LOW, (instances >> 32) & LOW, zero + index, zero + stream), split_seed(seed))


def split_seed(seed: int) -> tuple[int, int]:
    """Low and high 32 bits of a seed in [0, 2^64)."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 1 << 64:
        raise ValueError(f"seed must be an integer in [0, 2^64), got {seed!r}")
    return int(seed) & 0xFFFFFFFF, int(seed) >> 32


def closed_uniform(word: Any) -> Any:
    """u = (word >> 8) 2^-24 in [0, 1), for comparisons; float64."""
    return _float64(word >> 8) * 2.0**-24


def open_uniform(word: Any) -> Any:
    """u = ((word >> 8) + 1/2) 2^-24 in (0, 1), where a logarithm or a quantile is taken; float64."""
    return (_float64(word >> 8) + 0.5) * 2.0**-24


def _float64(values: Any) -> Any:
    return values.astype(np.float64) if isinstance(values, np.ndarray) else values.double()
