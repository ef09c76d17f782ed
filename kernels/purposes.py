"""Seeds of a study: tuning, pilot and evaluation draw from Philox generators of different keys.

A study's seed is below 2^62; the top two bits of the 64-bit Philox key name the purpose. So the keys of two purposes
differ whatever the study seeds are: no study tunes on what any study evaluates. Evaluation keeps the plain seed, so
that `run_regret(..., seed=seed)` plays the evaluated histories again.
"""

from typing import Literal

Purpose = Literal["evaluation", "tuning", "pilot"]
PURPOSES: tuple[Purpose, ...] = ("evaluation", "tuning", "pilot")
SEED_BITS = 62


def purpose_seed(seed: int, purpose: Purpose) -> int:
    """The 64-bit seed that a study of this seed uses for one purpose.

    Args:
        seed: the study's, in [0, 2^62).
        purpose: `evaluation`, `tuning` or `pilot`.

    Raises:
        ValueError: the seed is out of range or the purpose unknown.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << SEED_BITS:
        raise ValueError(f"seed of a study must be an integer in [0, 2^{SEED_BITS}), got {seed!r}")
    if purpose not in PURPOSES:
        raise ValueError(f"unknown purpose {purpose!r}; known: {', '.join(PURPOSES)}")
    return seed | PURPOSES.index(purpose) << SEED_BITS
