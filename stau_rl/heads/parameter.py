"""Parameters of heads, scores and policies: numbers or schedules, with the range in which they are legal."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

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
            owner: the name of what has the parameter.
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
    """A numeric parameter of a head, a score or a policy, as a dataclass field; a value may also be a `Schedule`.

    Args:
        default: the value it has if none is given.
        low: smallest legal value, if there is one.
        above: legal values are larger than this, if given.
        high: largest legal value, if there is one.
        below: legal values are smaller than this, if given.
        show: write it into the head's text even where it has its default.
    """
    return field(default=default, metadata={"range": Range(low, above, high, below), "show": show})


class Scheduled:
    """What has a `name` and, as fields made by `parameter`, numbers that may change with the step."""

    __slots__ = ()
    name: ClassVar[str]

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The parameters that change with t, by name; empty for most."""
        # Classes of a user's own need not be dataclasses.
        values = {name: getattr(self, name) for name in getattr(self, "__dataclass_fields__", ())}
        return {name: value for name, value in values.items() if isinstance(value, Schedule)}

    def at(self, t: int) -> Self:
        """The same at step t = 1, 2, ..., with numbers for schedules; itself if it has none.

        Raises:
            ValueError: t < 1, or a parameter is not legal at this step.
        """
        schedules = self.schedules
        if not schedules:
            return self
        if t < 1:
            raise ValueError(f"steps are counted from t = 1, got {t!r}")
        numbers: dict[str, Any] = {name: schedule.at(t) for name, schedule in schedules.items()}
        return replace(self, **numbers)  # type: ignore[type-var]

    def check_steps(self, horizon: int) -> None:
        """Raise a ValueError unless every schedule is legal at t = 1, ..., horizon; it names the first bad step."""
        limits = self._ranges()
        for name, schedule in self.schedules.items():
            limits.get(name, Range()).check_steps(self.name, name, schedule, horizon)

    def _check_ranges(self) -> None:
        """Raise a ValueError that names a parameter unless all are legal; schedules at the first step."""
        for name, limits in self._ranges().items():
            limits.check(self.name, name, getattr(self, name))

    def _ranges(self) -> dict[str, Range]:
        members = fields(self)  # type: ignore[arg-type]
        return {member.name: member.metadata["range"] for member in members if "range" in member.metadata}
