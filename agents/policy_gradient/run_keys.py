"""The random generators of a run, each of a purpose: Philox with the key (seed, purpose, number)."""

import numpy as np

WEIGHTS, TRAINING, CURVE, FINAL = range(4)


def keyed_random(seed: int, purpose: int, number: int) -> np.random.Generator:
    """The generator of one purpose of the run of a seed."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, purpose << 32 | number], dtype=np.uint64)))
