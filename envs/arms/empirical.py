"""Empirical arms: each arm resampled from its own rows of a table of real observations."""

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stau_rl.envs.arms.arms import MAX_ARMS, Arms
from stau_rl.envs.arms.observations import read_observations
from stau_rl.kernels.contract import table_means


@dataclass(frozen=True, slots=True, eq=False)
class EmpiricalArms(Arms):
    """Reward: the quantile function of the arm's own observations, at the step's uniform.

    Arms are the distinct values of one column, in numeric order if all are numbers, else in text order. The file is
    read once, when the spec is made.

    Attributes:
        file: path of a CSV (also compressed) or Parquet file in long form, a row per observation.
        arm: the column that names the arm.
        reward: the column that holds the reward.
        digest: SHA-256 of what was read (labels and sorted rewards), hexadecimal.

    Raises:
        ValueError: for a missing or empty file or column, an arm without a name or without rows, and rewards that
            are not finite numbers; the message names the row and the column.
    """

    name: ClassVar[str] = "empirical"
    formula: ClassVar[str] = "a row of the arm's own observations, drawn with replacement"
    reward_kind: ClassVar[Literal["table"]] = "table"

    file: str
    arm: str
    reward: str
    digest: str = field(init=False, default="")
    _labels: tuple[str, ...] = field(init=False, default=(), repr=False)
    _values: NDArray[np.float64] = field(init=False, default_factory=lambda: np.empty(0), repr=False)
    _offsets: NDArray[np.int64] = field(init=False, default_factory=lambda: np.empty(0, np.int64), repr=False)

    def __post_init__(self) -> None:
        """Read the file."""
        labels, values, offsets = read_observations(self.file, self.arm, self.reward)
        if len(labels) > MAX_ARMS:
            raise ValueError(f"column {self.arm!r} of {self.file!r} names {len(labels)} arms; at most {MAX_ARMS} fit")
        digest = hashlib.sha256("\0".join(labels).encode() + values.tobytes() + offsets.tobytes()).hexdigest()
        found = {
            "_labels": labels,
            "_values": values,
            "_offsets": offsets,
            "digest": digest,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        """Two sets of empirical arms are equal if their observations are."""
        return isinstance(other, EmpiricalArms) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash of the observations."""
        return hash(self.digest)

    @property
    def size(self) -> int:
        """Number of arms K."""
        return len(self._labels)

    @property
    def binary(self) -> bool:
        """Every observed reward is 0 or 1."""
        return bool(np.isin(self._values, (0.0, 1.0)).all())

    @property
    def noise(self) -> float:
        """Standard deviation of the rewards around their arm's mean, pooled over the arms."""
        around = self._values - np.repeat(self.fixed_means, np.diff(self._offsets))
        return float(np.sqrt(np.mean(around**2)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The distinct values of the arm column."""
        return self._labels

    @property
    def fixed_means(self) -> NDArray[np.float64]:
        """Mean of each arm's observations, float64 [K]."""
        return table_means(self._values, self._offsets)

    @property
    def values(self) -> NDArray[np.float64]:
        """Observations of all arms, sorted within each, float64 [rows]."""
        return self._values

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each arm's observations start in `values`, int64 [K + 1]."""
        return self._offsets
