"""Many generators read as one: each instance keeps its own stream of uniforms, drawn ahead in blocks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 25
# Generators drawn from before their numbers are laid beside the others': as many as the cache holds.
TOGETHER = 32


class UniformTape:
    """The streams of N generators side by side.

    Row r of what is taken holds each generator's r-th next uniform on [0, 1): exactly what its own `random()` would
    give, call by call. A call per generator and block costs little where a call per generator and step would not.

    Args:
        generators: N of them; they run ahead of what has been taken.
    """

    def __init__(self, generators: Sequence[np.random.Generator]) -> None:
        self._generators = generators
        self._block = int(np.clip(BLOCK_BYTES // (8 * len(generators)), 16, 1024))
        self._rows: NDArray[np.float64] = np.empty((0, len(generators)))
        self._next = 0

    def take(self, count: int) -> NDArray[np.float64]:
        """The next `count` uniforms of every generator, float64 [count, N]; not to be written to."""
        while len(self._rows) - self._next < count:
            left = self._rows[self._next :]
            rows = np.empty((len(left) + self._block, len(self._generators)))
            rows[: len(left)] = left
            for first in range(0, len(self._generators), TOGETHER):
                some = slice(first, first + TOGETHER)
                fresh = np.empty((len(self._generators[some]), self._block))
                for generator, row in zip(self._generators[some], fresh, strict=True):
                    generator.random(out=row)
                rows[len(left) :, some] = fresh.T
            self._rows, self._next = rows, 0
        self._next += count
        return self._rows[self._next - count : self._next]
