"""What a set of arms is: means, fixed or drawn per instance, and a quantile function for the rewards."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stau_rl.spec.grammar import format_spec

MAX_ARMS = 1024


class Arms:
    """A reward process, as a frozen dataclass with a `name`.

    Attributes:
        name: the name in the registry and in text.
        formula: the reward of one arm, for tables.
        reward_kind: how a reward follows from its uniform: `bernoulli`, `gaussian` or `table`.
    """

    __slots__ = ()
    name: ClassVar[str]
    formula: ClassVar[str]
    reward_kind: ClassVar[Literal["bernoulli", "gaussian", "table"]]

    @property
    def size(self) -> int:
        """Number of arms K."""
        raise NotImplementedError

    @property
    def fixed_means(self) -> NDArray[np.float64] | None:
        """Means shared by all instances, float64 [K]; None if each instance draws its own."""
        raise NotImplementedError

    def mean_quantile(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means drawn from the prior: its quantile function at uniforms in (0, 1) of any shape."""
        raise NotImplementedError

    @property
    def binary(self) -> bool:
        """Every reward is 0 or 1."""
        return False

    @property
    def noise(self) -> float:
        """Standard deviation of one reward around its mean: known, or pooled within the arms of a table."""
        return 0.5

    @property
    def labels(self) -> tuple[str, ...]:
        """The arms' names, K of them."""
        return tuple(str(k) for k in range(self.size))

    @property
    def digest(self) -> str:
        """SHA-256 of what the arms' text only points to, such as a file's content; empty where the text says it all."""
        return ""

    @property
    def values(self) -> NDArray[np.float64]:
        """Observations of all arms, sorted within each, float64 [rows]; empty unless `reward_kind` is `table`."""
        return np.empty(0)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each arm's observations start in `values`, int64 [K + 1]; empty unless they are a table."""
        return np.empty(0, dtype=np.int64)

    def __str__(self) -> str:
        """Text of the arms, which parses back to them."""
        return format_spec(self)


def check_size(name: str, k: int | None, means: tuple[float, ...] | None) -> None:
    """Raise a ValueError unless exactly one of `k` and `means` is given and names 1 to 1024 arms."""
    if (k is None) == (means is None):
        raise ValueError(f"{name} needs either k=NUMBER (means drawn per instance) or means=[...], and not both")
    count = k if means is None else len(means)
    if not 1 <= count <= MAX_ARMS:  # type: ignore[operator]
        raise ValueError(f"{name}: {'k' if means is None else 'the number of means'} must be in 1..1024, got {count}")
