"""Parameters of heads: numbers or schedules, with the range in which they are legal."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl.spec.schedule import Schedule

# A new head looks at its schedules where every run goes; `Range.check_steps` looks at every step of a run.
FIRST_LOOK = np.array([1])
_STEPS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Range:
    """The finite numbers between two bounds; a bound of None does not bind.

    Attributes:
        low: smallest legal value.
        above: every legal value is larger than this.
        high: largest legal value.
        below: every legal value is smaller than this.
    """

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None

    @property
    def lower(self) -> float | None:
        """The lower bound, whether or not it is itself legal; None if there is none."""
        return self.low if self.above is None else self.above

    @property
    def upper(self) -> float | None:
        """The upper bound, whether or not it is itself legal; None if there is none."""
        return self.high if self.below is None else self.below

    def holds(self, values: Any) -> NDArray[np.bool_]:
        """Which of the values are legal."""
        values = np.asarray(values, dtype=np.float64)
        good = np.isfinite(values)
        for bound, inside in (
            (self.low, np.greater_equal),
            (self.above, np.greater),
            (self.high, np.less_equal),
            (self.below, np.less),
        ):
            if bound is not None:
                good &= inside(values, bound)
        return good

    def check(self, owner: str, name: str, value: float | Schedule) -> None:
        """Raise a ValueError that names the parameter unless it is legal: a schedule at the first step."""
        if isinstance(value, Schedule):
            self._check(owner, name, value, FIRST_LOOK, value(FIRST_LOOK))
        elif not self.holds(value):
            raise ValueError(f"{owner}: {name} must be {self}, got {value!r}")

    def check_steps(self, owner: str, name: str, schedule: Schedule, horizon: int) -> None:
        """Raise a ValueError that names the parameter, the first bad step and the value there, if there is one.

        Args:
            owner: the head's name.
            name: the parameter's name.
            schedule: its schedule.
            horizon: the last step.
        """
        for first in range(1, horizon + 1, _STEPS_AT_ONCE):
            last = min(first + _STEPS_AT_ONCE - 1, horizon)
            self._check(owner, name, schedule, np.arange(first, last + 1), schedule.steps(first, last))

    def _check(self, owner: str, name: str, schedule: Schedule, t: NDArray[Any], values: NDArray[np.float64]) -> None:
        bad = np.flatnonzero(~self.holds(values))
        if bad.size:
            at, value = int(t[bad[0]]), float(values[bad[0]])
            raise ValueError(f"{owner}: {name} must be {self} at every step, got {schedule} = {value:.6g} at t = {at}")

    def __str__(self) -> str:
        """What is legal, for messages: `finite and >= 1`."""
        signs = ((">=", self.low), (">", self.above), ("<=", self.high), ("<", self.below))
        return " and ".join(["finite", *(f"{sign} {bound:g}" for sign, bound in signs if bound is not None)])


def parameter(
    default: float,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
    show: bool = True,
) -> Any:
    """A numeric parameter of a head, as a dataclass field; a value may also be a `Schedule`.

    Args:
        default: the value it has if none is given.
        low: smallest legal value, if there is one.
        above: legal values are larger than this, if given.
        high: largest legal value, if there is one.
        below: legal values are smaller than this, if given.
        show: write it into the head's text even where it has its default.
    """
    return field(default=default, metadata={"range": Range(low, above, high, below), "show": show})
