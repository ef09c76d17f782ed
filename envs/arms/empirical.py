"""Empirical arms: each arm resampled from its own rows of a table of real observations."""

from dataclasses import dataclass, field
from typing import ClassVar

from stau_rl.envs.arms.arms import MAX_ARMS
from stau_rl.envs.arms.observations import read_observations
from stau_rl.envs.arms.table_arms import Observations, ResampledArms


@dataclass(frozen=True, slots=True, eq=False)
class EmpiricalArms(ResampledArms):
    """Reward: the quantile function of the arm's own observations, at the step's uniform.

    Arms are the distinct values of one column, as text; blanks around a label are not part of it. They stand in order
    of their exact values where all labels are plain decimal numbers, else in text order. The file is read once, when
    the spec is made.

    Attributes:
        file: path of a CSV (also compressed) or Parquet file in long form, a row per observation.
        arm: the column that names the arm, or a level of a Parquet file's index.
        reward: the column that holds the reward: numbers, or true and false for 1 and 0.

    Raises:
        ValueError: for a missing or empty file or column, an arm without a name or without rows, and rewards that
            are not finite numbers; the message names the row and the column.
    """

    name: ClassVar[str] = "empirical"
    formula: ClassVar[str] = "a row of the arm's own observations, drawn with replacement"

    file: str
    arm: str
    reward: str
    observed: Observations = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the file."""
        labels, values, offsets = read_observations(self.file, self.arm, self.reward)
        if len(labels) > MAX_ARMS:
            raise ValueError(f"column {self.arm!r} of {self.file!r} names {len(labels)} arms; at most {MAX_ARMS} fit")
        object.__setattr__(self, "observed", Observations(labels, values, offsets))
