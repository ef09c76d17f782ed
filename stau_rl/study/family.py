"""A family of policies that a study compares: a text with one parameter to tune.

Three kinds of text name a family:

- `centred_ucb | s_tau(tau=5)`: the head's sharpness parameter is tuned, and the text as given is its raw member;
- `centred_ucb | softmax(beta={x})`: whatever stands for `{x}` is tuned, and x = 1 is its raw member, or x = 2 where 1
  is not legal, as for alpha of entmax;
- `thompson`, `ucb | argmax` and whatever else has no number to tune: it takes part as it is.
"""

import ast
import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from stau_rl.agents.bandit import SCORES, Policy, parse_policy
from stau_rl.heads import Head
from stau_rl.heads.base import PowerHead
from stau_rl.spec.grammar import SpecError
from stau_rl.spec.schedule import Schedule

PLACEHOLDER = "{x}"
# A number that no text holds by chance, to find {x} again in a printed policy.
SENTINEL = 1.2345678987654321
# Numbers put in the place of {x} to see what it is; some are not legal everywhere.
PROBES = (1.0, 2.0, 0.5, 3.0, 0.25)
# Digits kept of a parameter in a policy's text, so that tables stay readable.
DIGITS = 6


@dataclass(frozen=True, slots=True)
class Family:
    """One family.

    Attributes:
        text: as described above.
        raw: the member that stands for the family untouched.
    """

    text: str
    raw: Policy = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Read the raw member."""
        try:
            raw = self._with("1")
        except ValueError:
            if not self.templated:
                raise
            raw = self._with("2")
        object.__setattr__(self, "raw", raw)

    def _with(self, parameter: str) -> Policy:
        """The member with a text in the place of {x}."""
        return parse_policy(self.text.replace(PLACEHOLDER, parameter))

    @property
    def canonical(self) -> str:
        """The text in the spelling that policies have when they are printed, with {x} left in place."""
        try:
            text = str(self._with(repr(SENTINEL)))
        except ValueError:
            text = ""
        if text.count(repr(SENTINEL)) == self.text.count(PLACEHOLDER):
            return text.replace(repr(SENTINEL), PLACEHOLDER)
        # {x} stands in an expression that parsing computes, or where that number is not legal: only blanks are settled.
        word = "x" + repr(SENTINEL).replace(".", "")
        tree = ast.parse(self.text.strip().replace(PLACEHOLDER, word), mode="eval")
        return ast.unparse(tree).replace(word, PLACEHOLDER)

    @property
    def templated(self) -> bool:
        """The text names the place of its parameter."""
        return PLACEHOLDER in self.text

    @property
    def shown(self) -> str:
        """What stands after the score, or the whole text where there is no score or {x} is in it."""
        score, _, rest = self.text.partition("|")
        return self.text.strip() if not rest or PLACEHOLDER in score else rest.strip()

    @property
    def name(self) -> str:
        """The head's name, or the policy's; all that is `shown` where something else than a slope is tuned."""
        return self.shown if self.parameter else self.shown.split("(", 1)[0].strip()

    @property
    def parameter(self) -> str:
        """What is tuned where it is not the slope of a head: the argument that {x} stands for, or `x` in an expression.

        Empty for a family that is tuned over slopes, or not at all.
        """
        if not self.templated:
            return ""
        made: dict[Policy, float] = {}
        for value in PROBES:
            try:
                made[self.with_value(value)] = value
            except ValueError:
                continue
        (one, x), (other, y) = [*made.items(), *made.items()][:2]
        changed = _changed(one, other)
        if len(changed) != 1 or not all(isinstance(value, (int, float)) for value in changed[0][1:]):
            return "x"
        path, a, b = changed[0]
        if one.head is not None and path == ("head", one.head.sharpness) and math.isclose(a * y, b * x):
            return ""
        return path[-1] if (a, b) == (x, y) else "x"

    @property
    def head(self) -> Head | None:
        """Head of the raw member, if it has one whose sharpness is a number."""
        head = self.raw.head
        if self.raw.score is None or head is None or head.sharpness is None:
            return None
        # A head that changes with the step is no family by itself; {x} in its schedule makes it one.
        return None if head.schedules else head

    @property
    def tunable(self) -> bool:
        """There is a parameter to tune."""
        return self.templated or self.head is not None

    def member(self, slope: float) -> Policy:
        """The member whose head has this slope d log f / ds where its scores lie.

        That is at score 0, or at the score's offset if it has one: so a grid of slopes is as sharp for every head,
        wherever an offset moves the scores. A head without a slope there, as escort at 0, and a template whose slope
        is no number, are addressed by their parameter.

        Raises:
            ValueError: the family has nothing to tune, or its parameter cannot take the value.
        """
        return self.with_value(float(f"{slope / self._unit():.{DIGITS}g}"))

    def with_value(self, value: float) -> Policy:
        """The member of this parameter: the number that stands for {x}, or the sharpness of the head.

        Raises:
            ValueError: the family has nothing to tune, or its parameter cannot take the value.
        """
        if not self.tunable:
            raise ValueError(f"{self.text!r} has no parameter to tune")
        if self.templated:
            # A sign binds less tightly than what may stand before or behind {x}.
            return self._with(repr(value) if value >= 0 else f"({value!r})")
        raw: Any = self.raw
        made: Policy = replace(raw, head=replace(raw.head, **{raw.head.sharpness: value}))
        return made

    def slope_of(self, value: float) -> float:
        """The slope by which `member` addresses the member of a parameter."""
        return value * self._unit()

    def value_of(self, slope: float) -> float:
        """The parameter of the member that `member` addresses by a slope."""
        return float(f"{slope / self._unit():.{DIGITS}g}")

    def slope(self, policy: Policy) -> float:
        """Slope of a member's head as in `member`, its parameter where there is no slope; nan if it has neither."""
        head = policy.head
        if head is None or head.sharpness is None or head.schedules:
            return float("nan")
        return _local_slope(head, policy) or float(getattr(head, head.sharpness))

    def grid(self, low: float, high: float, points: int) -> list[float]:
        """Log-spaced slopes between two ends, from the smallest legal one where `low` is not legal.

        Families get the same number of points, and the same range unless their parameter forbids its lower end.
        """
        start = low if self._legal(low) else self._smallest_legal(low, high)
        return np.geomspace(start, high, points).tolist()

    def _unit(self) -> float:
        """Slope when the parameter is 1."""
        head: Any = self.raw.head
        if head is None or head.schedules:
            return 1.0
        unit = head if self.templated else replace(head, **{str(head.sharpness): 1.0})
        return _local_slope(unit, self.raw) or 1.0

    def _legal(self, slope: float) -> bool:
        try:
            self.member(slope)
        except ValueError:
            return False
        return True

    def _smallest_legal(self, low: float, high: float) -> float:
        if not self._legal(high):
            raise ValueError(f"{self.text!r} has no member with a slope between {low:g} and {high:g}")
        for _ in range(60):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if self._legal(middle) else (middle, high)
        return high


def _changed(one: Any, other: Any, path: tuple[str, ...] = ()) -> list[tuple[Any, Any, Any]]:
    """The arguments in which two specs differ: path, value and other value."""
    if one == other:
        return []
    if type(one) is not type(other) or not is_dataclass(one) or isinstance(one, Schedule):
        return [(path, one, other)]
    names = [argument.name for argument in fields(one)]
    return [found for name in names for found in _changed(getattr(one, name), getattr(other, name), (*path, name))]


def _local_slope(head: Head, policy: Policy) -> float:
    """d log f / ds at the offset of the policy's scores, about which centred scores lie; 0 where there is not one."""
    # Not every score has one.
    offset = getattr(policy.score, "offset", 0.0)
    if isinstance(offset, Schedule):
        return 0.0
    # A power of |s| has a slope on the positive side, the only one where it prefers larger scores.
    if not (head.smooth_at_zero or (isinstance(head, PowerHead) and offset > 0.0)):
        return 0.0
    return float(head.slope(torch.tensor([offset], dtype=torch.float64)))


def change_score(text: str, **changes: Any) -> str:
    """A family's text with arguments of its score changed; the head's text stays as it is.

    Args:
        text: the family's text, `score | head`.
        **changes: arguments of the score; `name` swaps the score itself for another that has the same arguments.

    Raises:
        ValueError: the text has no score, or the score has no such argument.
    """
    score_text, bar, head_text = text.partition("|")
    if not bar:
        raise SpecError(f"{text!r} has no score to change; it should read score | head")
    if PLACEHOLDER in score_text:
        raise SpecError(f"{{x}} stands in the score of {text}, which a sweep cannot change")
    score: Any = SCORES.parse(score_text)
    name = changes.pop("name", score.name)
    if name != score.name:
        other: Any = SCORES[name]
        arguments = [argument.name for argument in fields(score)]
        if arguments != [argument.name for argument in fields(other)]:
            raise SpecError(f"score {score.name!r} cannot become {name!r}, which has other arguments")
        score = SCORES[name](**{argument: getattr(score, argument) for argument in arguments})
    unknown = [argument for argument in changes if not hasattr(score, argument)]
    if unknown:
        raise SpecError(f"score {score.name!r} has no argument {unknown[0]!r}")
    return f"{replace(score, **changes)} | {head_text.strip()}"
