"""Numbers that a run cannot go on with: found where they arise, and named."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

LARGEST = float(np.finfo(np.float32).max)
# Of these the environment is the source; the others come of learning.
FROM_OUTSIDE = ("observation", "reward")


class NonFiniteError(ValueError):
    """A run met nan, an infinity or a number beyond float32, and stopped there.

    Attributes:
        what: `observation`, `reward`, `action probability`, `loss` or `parameter NAME`.
        value: the first such number.
        env: Gymnasium id of the environment.
        step: environment steps that had been played until then, all copies together.
        run: agent and seed, as in `ppo, seed 3`.
        phase: `training` or `evaluation`.
    """

    def __init__(
        self, what: str, value: float, env: str = "", step: int = 0, run: str = "a policy", phase: str = "training"
    ) -> None:
        # All of them, so that a copy from another process is the same.
        super().__init__(what, value, env, step, run, phase)
        self.what, self.value, self.env, self.step, self.run, self.phase = what, value, env, step, run, phase

    def at(self, env: str, step: int, run: str, phase: str) -> Self:
        """The same, told by one who knows the environment, the steps before and the run."""
        return type(self)(self.what, self.value, env, self.step + step, run, phase)

    def __str__(self) -> str:
        """One line: what, where, and what may help."""
        source = (
            "the environment gave it"
            if self.what in FROM_OUTSIDE
            else "a smaller learning_rate or reward_scale may help"
        )
        return (
            f"{self.phase} stopped: {self.what} {self.value:g} in env {self.env!r} after step {self.step} "
            f"({self.run}); {source}"
        )


@np.errstate(over="ignore", invalid="ignore")
def require_finite(what: str, values: NDArray[np.generic]) -> None:
    """Refuse numbers that are not finite in float32.

    Args:
        what: the numbers' name.
        values: numbers of any kind and shape.

    Raises:
        NonFiniteError: naming the first bad one.
    """
    if values.dtype.kind != "f":
        return
    flat = values.ravel()
    # A sum of squares is the cheapest look at all numbers; only where it is large are they looked at one by one.
    if flat.dot(flat) <= LARGEST:
        return
    bad = flat[~(np.abs(flat) <= LARGEST)]
    if len(bad):
        raise NonFiniteError(what, float(bad[0]))
