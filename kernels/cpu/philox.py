"""Philox4x32-10 on lanes; the word table is in `stau_rl.kernels.philox`."""

import numpy as np

from stau_rl.kernels.cpu.lanes import splat, to_i32
from stau_rl.kernels.cpu.math import device
from stau_rl.kernels.philox import MULTIPLIER_0, MULTIPLIER_1, ROUNDS, WEYL_0, WEYL_1

LOW = np.uint64(0xFFFFFFFF)
STEP_0, STEP_1 = np.uint64(WEYL_0), np.uint64(WEYL_1)


@device
def philox(instance, index, stream, key_low, key_high):
    """Four 24-bit words of a draw, the upper bits of Philox's output, as int32 lanes.

    Args:
        instance: global instance numbers, uint64 lanes.
        index: third counter word, a uint64 scalar.
        stream: fourth counter word, a uint64 scalar.
        key_low: low 32 bits of the seed, a uint64 scalar.
        key_high: high 32 bits of the seed, a uint64 scalar.
    """
    # A word lives in the lower half of a 64-bit lane, so that one multiply gives both halves of a product;
    # the hardware multiplier ignores the upper half, so the masks cost nothing.
    c0, c1 = instance & LOW, instance >> 32
    c2, c3 = splat(index, LOW), splat(stream, LOW)
    for _ in range(ROUNDS):
        product_0, product_1 = (c0 & LOW) * MULTIPLIER_0, (c2 & LOW) * MULTIPLIER_1
        c0, c2 = (product_1 >> 32) ^ c1 ^ key_low, (product_0 >> 32) ^ c3 ^ key_high
        c1, c3 = product_1 & LOW, product_0 & LOW
        key_low, key_high = (key_low + STEP_0) & LOW, (key_high + STEP_1) & LOW
    return to_i32((c0 & LOW) >> 8), to_i32(c1 >> 8), to_i32((c2 & LOW) >> 8), to_i32(c3 >> 8)
