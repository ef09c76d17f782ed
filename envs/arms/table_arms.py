"""Arms that are resampled from observations, and those whose observations are held in memory."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from stau_rl.envs.arms.arms import MAX_ARMS, Arms
from stau_rl.envs.arms.labels import check_labels
from stau_rl.envs.arms.observations import LARGEST
from stau_rl.kernels.contract import table_means
from stau_rl.spec.grammar import MAX_TEXT, format_spec

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
class Observations:
    """What was observed of K arms.

    Attributes:
        labels: the arms' names.
        values: rewards of all arms, sorted within each, float64 [rows].
        offsets: where each arm's rewards start in `values`, int64 [K + 1].
        digest: SHA-256 of all three, hexadecimal.
    """

    labels: tuple[str, ...]
    values: NDArray[np.float64]
    offsets: NDArray[np.int64]
    digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        """Make the digest."""
        whole = "\0".join(self.labels).encode() + self.values.tobytes() + self.offsets.tobytes()
        object.__setattr__(self, "digest", hashlib.sha256(whole).hexdigest())


class ResampledArms(Arms):
    """Reward: the quantile function of the arm's own observations, at the step's uniform.

    Attributes:
        observed: the observations.
    """

    __slots__ = ()
    reward_kind: ClassVar[Literal["table"]] = "table"
    observed: Observations

    def __eq__(self, other: object) -> bool:
        """Two sets of resampled arms are equal if their observations are."""
        return isinstance(other, ResampledArms) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash of the observations."""
        return hash(self.digest)

    @property
    def digest(self) -> str:
        """SHA-256 of labels and observations, hexadecimal."""
        return self.observed.digest

    @property
    def size(self) -> int:
        """Number of arms K."""
        return len(self.observed.labels)

    @property
    def binary(self) -> bool:
        """Every observed reward is 0 or 1."""
        return bool(np.isin(self.values, (0.0, 1.0)).all())

    @property
    def noise(self) -> float:
        """Standard deviation of the rewards around their arm's mean, pooled over the arms."""
        around = self.values - np.repeat(self.fixed_means, np.diff(self.offsets))
        return float(np.sqrt(np.mean(around**2)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The arms' names."""
        return self.observed.labels

    @property
    def fixed_means(self) -> NDArray[np.float64]:
        """Mean of each arm's observations, float64 [K]."""
        return table_means(self.values, self.offsets)

    @property
    def values(self) -> NDArray[np.float64]:
        """Observations of all arms, sorted within each, float64 [rows]."""
        return self.observed.values

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each arm's observations start in `values`, int64 [K + 1]."""
        return self.observed.offsets


@dataclass(frozen=True, slots=True, eq=False)
class TableArms(ResampledArms):
    """Reward: one of the arm's own observations, drawn with replacement; the observations are in the text.

    A table too long for a text is written as its digest alone, and such a text makes no arms.

    >>> str(TableArms.of({"a": [0, 1], "b": [2]}))
    'table(observations=[[0, 1], [2]], names=[a, b])'

    Attributes:
        observations: rewards of each arm.
        names: the arms' labels, in the same order; by default 0, 1, ...
        sha256: digest of the observations, in the place of observations that are not there.

    Raises:
        ValueError: no arms or too many, other than one label for each, an arm without observations or one that is not
            finite, or a digest without the observations.
    """

    name: ClassVar[str] = "table"
    formula: ClassVar[str] = "one of the arm's observations, drawn with replacement"

    observations: tuple[tuple[float, ...], ...] = ()
    names: tuple[str, ...] = ()
    sha256: str | None = None
    observed: Observations = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check and sort the observations."""
        if self.sha256 is not None and not self.observations:
            raise ValueError(
                f"table: the observations with digest {self.sha256} are too many for a text; write them to a file and "
                "use empirical(file=..., arm=..., reward=...)"
            )
        k = len(self.observations)
        if not 1 <= k <= MAX_ARMS:
            raise ValueError(f"table: observations must be of 1 to {MAX_ARMS} arms, got {k}")
        labels = tuple(str(name).strip() for name in self.names) or tuple(map(str, range(k)))
        if len(labels) != k:
            raise ValueError(f"table: names must be {k}, one for each arm, got {len(labels)}")
        check_labels(labels, "table")
        rows = []
        for label, values in zip(labels, self.observations, strict=True):
            column = np.asarray(values, dtype=np.float64)
            if column.ndim != 1 or not column.size or not (np.abs(column) <= LARGEST).all():
                raise ValueError(f"observations of arm {label!r} must be a list of finite numbers, got {values!r}")
            # -0.0 is 0.0 with another sign bit.
            rows.append(np.sort(column) + 0.0)
        offsets = np.cumsum([0, *(column.size for column in rows)]).astype(np.int64)
        observed = Observations(labels, np.concatenate(rows), offsets)
        if self.sha256 not in (None, observed.digest):
            raise ValueError(f"table: sha256 must be {observed.digest}, that of the observations, got {self.sha256!r}")
        for name, value in {"names": labels, "sha256": None, "observed": observed}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, observations: Mapping[str, Sequence[float]] | None) -> "TableArms":
        """Arms from observations by label; by default the insect counts with the sign turned.

        Raises:
            ValueError: as for the class.
        """
        if observations is None:
            observations = {name: [-float(count) for count in counts] for name, counts in INSECTS.items()}
        rows = []
        for name, values in observations.items():
            try:
                rows.append(tuple(np.asarray(values, dtype=np.float64).tolist()))
            except (TypeError, ValueError):
                raise ValueError(
                    f"observations of arm {name!r} must be a list of finite numbers, got {values!r}"
                ) from None
        return cls(tuple(rows), tuple(map(str, observations)))

    def __str__(self) -> str:
        """Text of the arms, which parses back to them; only their digest where it would be too long to be read."""
        text = format_spec(self)
        return text if len(text) <= MAX_TEXT else f"table(sha256={self.digest!r})"
