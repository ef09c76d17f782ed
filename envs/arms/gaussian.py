"""Gaussian arms: rewards N(mean, sigma^2)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from stau_rl.envs.arms.arms import Arms, check_size

# Beyond it, squares and sums overflow.
LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class GaussianArms(Arms):
    """Reward mean + sigma Phi^-1(u).

    Attributes:
        means: one mean per arm, shared by all instances.
        k: number of arms whose means are N(loc, scale^2), drawn anew for each instance.
        loc: mean of the prior; only with `k`.
        scale: standard deviation of the prior, >= 0; only with `k`.
        sigma: standard deviation of one reward, >= 0.
    """

    name: ClassVar[str] = "gaussian"
    formula: ClassVar[str] = "N(mean, sigma^2); means fixed, or N(loc, scale^2) per instance"
    reward_kind: ClassVar[Literal["gaussian"]] = "gaussian"
    means: tuple[float, ...] | None = None
    k: int | None = None
    loc: float = 0.0
    scale: float = 1.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_size("gaussian", self.k, self.means)
        for index, mean in enumerate(self.means or ()):
            if not abs(mean) <= LARGEST:
                raise ValueError(f"gaussian: means must be at most {LARGEST:g} in size, got {mean!r} for arm {index}")
        if self.means is not None and (self.loc, self.scale) != (0.0, 1.0):
            raise ValueError("gaussian: loc and scale describe the prior of k=NUMBER arms and do not go with means")
        if not abs(self.loc) <= LARGEST:
            raise ValueError(f"gaussian: loc must be at most {LARGEST:g} in size, got {self.loc!r}")
        for name, value in (("scale", self.scale), ("sigma", self.sigma)):
            if not 0.0 <= value <= LARGEST:
                raise ValueError(f"gaussian: {name} must lie in [0, {LARGEST:g}], got {value!r}")

    @property
    def noise(self) -> float:
        """Standard deviation of one reward."""
        return self.sigma

    @property
    def size(self) -> int:
        """Number of arms K."""
        return len(self.means) if self.means is not None else int(self.k or 0)

    @property
    def fixed_means(self) -> NDArray[np.float64] | None:
        """Means shared by all instances, float64 [K], or None."""
        return None if self.means is None else np.asarray(self.means, dtype=np.float64)

    def mean_quantile(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Quantile function of N(loc, scale^2)."""
        return self.loc + self.scale * ndtri(uniforms)
