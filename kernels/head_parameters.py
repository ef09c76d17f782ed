"""Parameters as compiled engines take them: at most two of a head, c and offset of a score; constant or per step."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl.kernels.contract import ArmTable, EngineError, UnfitError
from stau_rl.spec.schedule import Schedule

_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Widths:
    """A number per step that is no schedule of a user's: a function of N = 0, 1, ..., the steps so far.

    Attributes:
        of: float64 [steps] to float64 [steps].
    """

    of: Callable[[NDArray[np.float64]], NDArray[np.float64]]

    def steps(self, first: int, last: int) -> NDArray[np.float64]:
        """Its values at t = first, ..., last, where t = N + 1."""
        return self.of(np.arange(first - 1, last, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Parameters:
    """The at most two parameters of a head, in the order of its fields.

    Attributes:
        p, q: their values; 0 where the head has fewer or where a schedule stands.
        schedules: the schedules of p and q, None for a constant.
    """

    p: float = 0.0
    q: float = 0.0
    schedules: tuple[Schedule | Widths | None, Schedule | Widths | None] = (None, None)

    @classmethod
    def of(cls, head: Any) -> "Parameters":
        """Read them from a head."""
        values = [getattr(head, field.name) for field in fields(head) if field.name != "name"]
        first, second = [*values, 0.0, 0.0][:2]
        numbers = [0.0 if isinstance(value, Schedule) else float(value) for value in (first, second)]
        changing = [value if isinstance(value, Schedule) else None for value in (first, second)]
        return cls(numbers[0], numbers[1], (changing[0], changing[1]))

    @classmethod
    def number(cls, value: float | Schedule, factor: float) -> "Parameters":
        """One number, or schedule, times a factor, as p."""
        return cls(schedules=(value.times(factor), None)) if isinstance(value, Schedule) else cls(value * factor)

    def extent(self, which: int, horizon: int) -> tuple[float, float]:
        """Least and largest value of p (0) or q (1) in a run of `horizon` steps."""
        schedule = self.schedules[which]
        if schedule is None:
            value = (self.p, self.q)[which]
            return value, value
        starts = range(1, horizon + 1, _PIECE)
        pieces = [schedule.steps(first, min(first + _PIECE - 1, horizon)) for first in starts]
        return min(float(piece.min()) for piece in pieces), max(float(piece.max()) for piece in pieces)

    def steps(self, begin: int, end: int) -> NDArray[np.float64]:
        """p and q at steps begin, ..., end - 1 (t is one more), float64 [2, steps].

        Raises:
            ValueError: a schedule is not finite there.
        """
        pairs = zip(self.schedules, (self.p, self.q), strict=True)
        rows = [np.full(end - begin, value) if s is None else s.steps(begin + 1, end) for s, value in pairs]
        if not np.isfinite(rows).all():
            raise ValueError(f"a schedule is not finite between t = {begin + 1} and {end}")
        return np.stack(rows)


def compiled_index(policy: Any, arms: ArmTable, horizon: int, engine: str) -> Any:
    """How a compiled engine computes the index of a pipe; None where its score is none.

    Raises:
        EngineError: it has no form on these arms, or another head than argmax turns it into weights.
    """
    form = getattr(policy.score, "compiled", None)
    if form is None:
        return None
    if policy.head.name != "argmax":
        raise EngineError(
            f"the {engine} engine maximises {policy.score.name}, it has no head {policy.head.name!r} for it; "
            "engine='torch' runs it"
        )
    found = form(arms, horizon)
    if found is None:
        raise EngineError(f"the {engine} engine has no {policy.score.name} on these rewards; engine='torch' runs it")
    return found


@dataclass(frozen=True, slots=True)
class OfScore:
    """One parameter of a score, c of a bonus or an offset.

    Attributes:
        value: its value; 0 where a schedule stands.
        schedule: its schedule, None for a constant.
    """

    value: float = 0.0
    schedule: Schedule | None = None

    @classmethod
    def named(cls, score: Any, name: str) -> "OfScore":
        """Read it from a score; 0 where the score has none of this name."""
        value = getattr(score, name, 0.0)
        return cls(schedule=value) if isinstance(value, Schedule) else cls(float(value))

    def largest(self, horizon: int) -> float:
        """Its largest value in a run of `horizon` steps."""
        return Parameters(self.value, schedules=(self.schedule, None)).extent(0, horizon)[1]

    def steps(self, begin: int, end: int) -> NDArray[np.float64]:
        """Its values at steps begin, ..., end - 1 (t is one more), float64 [steps].

        Raises:
            ValueError: a schedule is not finite there.
        """
        return Parameters(self.value, schedules=(self.schedule, None)).steps(begin, end)[0]


def constant(policy: Any, name: str, value: Any, engine: str) -> float:
    """A parameter that a compiled engine takes as a number alone.

    Raises:
        UnfitError: it is a schedule.
    """
    if isinstance(value, Schedule):
        raise UnfitError(f"the {engine} engine has no schedule for {name}, got {name}={value} in {policy}")
    return float(value)


NONE = Parameters()
"""Those of a head without parameters."""
ZERO = OfScore()
"""That of a score without it."""
