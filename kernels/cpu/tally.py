"""Sums over the arms that are due at checkpoints only; state is [arms * lanes], lanes fastest."""

from numba import njit


@njit(error_model="numpy")
def optimal_plays(count, gap, out):
    """Pulls of the arms with gap 0 so far, for every lane."""
    lanes = out.size
    for i in range(lanes):
        out[i] = 0
    for k in range(count.size // lanes):
        for i in range(lanes):
            out[i] += count[k * lanes + i] if gap[k * lanes + i] == 0.0 else 0


@njit(error_model="numpy")
def pseudo_regret(count, gap, out):
    """Pulls times gaps, summed over the arms, for every lane."""
    lanes = out.size
    for i in range(lanes):
        out[i] = 0.0
    for k in range(count.size // lanes):
        for i in range(lanes):
            out[i] += count[k * lanes + i] * gap[k * lanes + i]
