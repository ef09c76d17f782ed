"""Philox4x32-10, the counter-based generator behind every random draw, on numpy arrays.

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

import numpy as np
from numpy.typing import ArrayLike, NDArray

ACTION_REWARD, ARM_MEAN, DYNAMICS, SECOND, PRIVATE = 0, 1, 2, 3, 16
MAX_ARMS = 1024

MULTIPLIER_0, MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(
    counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], key: tuple[int, int]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Ten Philox rounds on four 32-bit counter words and two 32-bit key words.

    Args:
        counter: four arrays of 32-bit words, broadcast against each other.
        key: two 32-bit words.

    Returns:
        Four uint32 arrays of the broadcast shape.
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, dtype=np.uint64) for word in counter))
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(ROUNDS):
        product_0 = c0 * np.uint64(MULTIPLIER_0)
        product_1 = c2 * np.uint64(MULTIPLIER_1)
        c0, c1, c2, c3 = (
            (product_1 >> _HALF) ^ c1 ^ np.uint64(k0),
            product_1 & _LOW,
            (product_0 >> _HALF) ^ c3 ^ np.uint64(k1),
            product_0 & _LOW,
        )
        k0, k1 = (k0 + WEYL_0) & 0xFFFFFFFF, (k1 + WEYL_1) & 0xFFFFFFFF
    return c0.astype(np.uint32), c1.astype(np.uint32), c2.astype(np.uint32), c3.astype(np.uint32)


def words(seed: int, instances: NDArray[np.int64], index: ArrayLike, stream: ArrayLike) -> NDArray[np.uint32]:
    """The four words of a draw, uint32 [4, ...], for global instance numbers int64 [...]."""
    instance = np.asarray(instances, dtype=np.uint64)
    counter = (instance & _LOW, instance >> _HALF, index, stream)
    return np.stack(philox4x32(counter, split_seed(seed)))


def split_seed(seed: int) -> tuple[int, int]:
    """Low and high 32 bits of a seed in [0, 2^64)."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 1 << 64:
        raise ValueError(f"seed must be an integer in [0, 2^64), got {seed!r}")
    return int(seed) & 0xFFFFFFFF, int(seed) >> 32


def closed_uniform(word: NDArray[np.uint32]) -> NDArray[np.float64]:
    """u = (word >> 8) 2^-24 in [0, 1), for comparisons."""
    return (word >> np.uint32(8)).astype(np.float64) * 2.0**-24


def open_uniform(word: NDArray[np.uint32]) -> NDArray[np.float64]:
    """u = ((word >> 8) + 1/2) 2^-24 in (0, 1), where a logarithm or a quantile is taken."""
    return ((word >> np.uint32(8)).astype(np.float64) + 0.5) * 2.0**-24
