"""Bernoulli arms: rewards of 0 and 1."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stau_rl.envs.arms.arms import Arms, check_size


@dataclass(frozen=True, slots=True)
class BernoulliArms(Arms):
    """Reward 1 with probability mean, else 0.

    Attributes:
        means: one probability per arm, shared by all instances.
        k: number of arms whose means are uniform on [0, 1], drawn anew for each instance.
    """

    name: ClassVar[str] = "bernoulli"
    formula: ClassVar[str] = "1 with probability mean, else 0; means fixed, or uniform on [0, 1] per instance"
    reward_kind: ClassVar[Literal["bernoulli"]] = "bernoulli"
    means: tuple[float, ...] | None = None
    k: int | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_size("bernoulli", self.k, self.means)
        for index, mean in enumerate(self.means or ()):
            if not 0.0 <= mean <= 1.0:
                raise ValueError(f"bernoulli: means must lie in [0, 1], got {mean!r} for arm {index}")

    @property
    def binary(self) -> bool:
        """All rewards are 0 or 1."""
        return True

    @property
    def size(self) -> int:
        """Number of arms K."""
        return len(self.means) if self.means is not None else int(self.k or 0)

    @property
    def fixed_means(self) -> NDArray[np.float64] | None:
        """Means shared by all instances, float64 [K], or None."""
        return None if self.means is None else np.asarray(self.means, dtype=np.float64)

    def mean_quantile(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Quantile function of the uniform prior: the identity."""
        return uniforms
