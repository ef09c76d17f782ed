"""Beta draws by Cheng's algorithm BB, on float64 lanes, each attempt with its own counter.

Source: R. C. H. Cheng, "Generating beta variates with nonintegral shape parameters", Communications of the
ACM 21 (1978). The paper asks for min(a, b) > 1; its envelope also holds at min(a, b) = 1, where the rate is
1: with shapes 1 and b the ratio of density and envelope, proportional to (1 + y)^-(1 + b) (1 / b + y)^2,
has its only maximum at y = 1 / b, as the acceptance test assumes. Its two quick acceptances imply the last
test, so they are left out.
"""

import numpy as np

from stau_rl.kernels.cpu.lanes import any_lane, select, square_root, to_f64
from stau_rl.kernels.cpu.math import device, exp64, log64
from stau_rl.kernels.cpu.philox import philox
from stau_rl.kernels.philox import MAX_ARMS, PRIVATE

LOG_4 = 1.3862943611198906


@device
def stream(arm, attempt):
    """Counter word of a policy's private draw for an arm."""
    return np.uint64(PRIVATE + arm + MAX_ARMS * attempt)


@device
def beta_draw(a, b, instance, step, arm, key_low, key_high):
    """One draw from Beta(a, b) with a, b >= 1, float64 lanes."""
    low, high = select(a < b, a, b), select(a < b, b, a)
    both = low + high
    flat = low == 1.0
    rate = select(flat, 1.0, square_root((both - 2.0) / select(flat, 1.0, 2.0 * low * high - both)))
    gain = low + 1.0 / rate
    pending = low == low
    draw = low * 0.0
    attempt = 0
    while any_lane(pending):
        word_1, word_2, _, _ = philox(instance, step, stream(arm, attempt), key_low, key_high)
        u_1, u_2 = (to_f64(word_1) + 0.5) * 2.0**-24, (to_f64(word_2) + 0.5) * 2.0**-24
        v = rate * log64(u_1 / (1.0 - u_1))
        w = low * exp64(v)
        accepted = gain * v - LOG_4 + both * log64(both / (high + w)) >= log64(u_1 * u_1 * u_2)
        value = select(a == low, w, high) / (high + w)
        # Beta(1, 1) is the uniform itself.
        value = select(high == 1.0, u_1, value)
        taken = pending & (accepted | (high == 1.0))
        draw = select(taken, value, draw)
        pending = pending & ~taken
        attempt += 1
    return draw
