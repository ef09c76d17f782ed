"""Returns and advantages of a rollout, with the ends of episodes told apart.

An episode that *terminates* has no future: its last value is 0. One that is *truncated* has a future that was not
played: the value of its last observation stands for it (it bootstraps).
"""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
Flags = NDArray[np.bool_]


def generalised_advantages(
    rewards: Rows, values: Rows, next_values: Rows, terminated: Flags, ended: Flags, gamma: float, lam: float
) -> Rows:
    """A_t = delta_t + gamma lambda A_{t+1} within an episode, delta_t = r_t + gamma V(s_{t+1}) - V(s_t).

    With lambda = 1 it is the discounted return less the value.

    Args:
        rewards: float32 [T, N].
        values: V(s_t), float32 [T, N].
        next_values: V of the observation that followed, before any reset, float32 [T, N].
        terminated: the episode ended for good at t, [T, N]; the next value then counts 0.
        ended: the episode ended at t, either way, [T, N].
        gamma: discount factor.
        lam: lambda, in [0, 1].

    Returns:
        Advantages, float32 [T, N].

    Source: Schulman et al., "High-dimensional continuous control using generalized advantage estimation", 2016.
    """
    delta = rewards + np.float32(gamma) * next_values * np.where(terminated, np.float32(0), np.float32(1)) - values
    carry = np.where(ended, np.float32(0), np.float32(gamma * lam))
    advantages = np.empty_like(delta)
    running: Rows = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + carry[t] * running
        advantages[t] = running
    return advantages
