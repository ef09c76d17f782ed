"""Empirical arms held in memory, and the observations that stand for them by default."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stau_rl.envs.arms.arms import MAX_ARMS, Arms
from stau_rl.kernels.contract import table_means

# Insects counted on twelve plots for each of six sprays: Beall, Biometrika 32, 1942.
INSECTS = {
    "A": (10, 7, 20, 14, 14, 12, 10, 23, 17, 20, 14, 13),
    "B": (11, 17, 21, 11, 16, 14, 17, 17, 19, 21, 7, 13),
    "C": (0, 1, 7, 2, 3, 1, 2, 1, 3, 0, 1, 4),
    "D": (3, 5, 12, 6, 4, 3, 5, 5, 5, 5, 2, 4),
    "E": (3, 5, 3, 5, 3, 6, 1, 1, 3, 2, 6, 4),
    "F": (11, 9, 15, 22, 15, 16, 13, 10, 26, 26, 24, 13),
}


@dataclass(frozen=True, slots=True, eq=False)
class TableArms(Arms):
    """Reward: one of the arm's own observations, drawn with replacement.

    Attributes:
        names: labels of the arms.
        rows: observations of all arms, sorted within each, float64 [rows].
        starts: where each arm's observations start in `rows`, int64 [K + 1].
    """

    name: ClassVar[str] = "table"
    formula: ClassVar[str] = "one of the arm's observations"
    reward_kind: ClassVar[Literal["table"]] = "table"

    names: tuple[str, ...]
    rows: NDArray[np.float64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, observations: Mapping[str, Sequence[float]] | None) -> "TableArms":
        """Arms from observations by label; by default the insect counts with the sign turned.

        Raises:
            ValueError: no arms or too many, an arm without observations, or one that is not finite.
        """
        if observations is None:
            observations = {name: [-float(count) for count in counts] for name, counts in INSECTS.items()}
        if not 1 <= len(observations) <= MAX_ARMS:
            raise ValueError(f"observations must have 1 to {MAX_ARMS} arms, got {len(observations)}")
        rows = []
        for name, values in observations.items():
            column = np.asarray(values, dtype=np.float64)
            if column.ndim != 1 or not column.size or not np.isfinite(column).all():
                raise ValueError(f"observations of arm {name!r} must be a list of finite numbers, got {values!r}")
            # -0.0 is 0.0 with another sign bit.
            rows.append(np.sort(column) + 0.0)
        starts = np.cumsum([0, *(column.size for column in rows)])
        return cls(tuple(map(str, observations)), np.concatenate(rows), starts.astype(np.int64))

    @property
    def size(self) -> int:
        """Number of arms K."""
        return len(self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """The arms' names."""
        return self.names

    @property
    def fixed_means(self) -> NDArray[np.float64]:
        """Mean of each arm's observations, float64 [K]."""
        return table_means(self.rows, self.starts)

    @property
    def values(self) -> NDArray[np.float64]:
        """Observations of all arms, float64 [rows]."""
        return self.rows

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each arm's observations start, int64 [K + 1]."""
        return self.starts
