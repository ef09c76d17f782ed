"""Grids of a family's parameter that are set by hand, in place of log-spaced slopes.

A value is what stands for `{x}`, or the sharpness of the head in a family without it. Budgets are to be equal, so grids
of different size are named below the table of a study.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from stau_rl.agents.bandit import Policy
from stau_rl.study.family import Family

Grid = Sequence[float] | Mapping[int | str, Sequence[float]]
"""Values for all families, or by a family's number from 1, its text, or `all` for those that are not named."""
ALL = "all"


def set_grids(grid: Grid | None, families: Sequence[str], horizon: int) -> tuple[tuple[float, ...] | None, ...]:
    """The grid of every family, ascending; None where it has none of its own, and nothing at all where no family has.

    Args:
        grid: as above, in any order; a family without a parameter may not be named, and has no part in `all`.
        families: texts of the families, the reference first.
        horizon: steps for which every value must be legal.

    Raises:
        ValueError: there is no such family, or it has no parameter; a grid has fewer than two values, a value twice, or
            one that the family refuses.
    """
    if grid is None:
        return ()
    known = [Family(text) for text in families]
    given: dict[int, Sequence[float]] = {}
    named: Mapping[int | str, Sequence[float]] = grid if isinstance(grid, Mapping) else {ALL: grid}
    for key, values in named.items():
        if key == ALL:
            continue
        place = _place(key, families)
        if place in given:
            raise ValueError(f"grid: {families[place]} is named twice, the second time as {key!r}")
        if not known[place].tunable:
            raise ValueError(f"grid: {families[place]} has no parameter to tune; put {{x}} where its values go")
        given[place] = values
    if ALL in named:
        others = {place: named[ALL] for place, one in enumerate(known) if one.tunable and place not in given}
        if not others:
            raise ValueError("grid: no family is left that has a parameter to tune; put {x} where its values go")
        given |= others
    return tuple(
        _values(given[place], known[place], horizon) if place in given else None for place in range(len(known))
    )


def read_grids(texts: Sequence[str]) -> Grid | None:
    """Grids from texts such as `0.1,1,3`, `2=0.1,1` or `ucb(c={x}) | argmax=0,0.5`; None where there are none.

    Raises:
        ValueError: a value is no number, or a family is named twice.
    """
    grids: dict[int | str, Sequence[float]] = {}
    for text in texts:
        # A family's text has equal signs of its own; values have none.
        name, _, listed = text.rpartition("=")
        key = name.strip() or ALL
        if key in grids:
            raise ValueError(f"--grid: {key} is given twice")
        try:
            grids[key] = [float(value) for value in listed.split(",")]
        except ValueError:
            raise ValueError(
                f"--grid takes numbers as in 0.1,0.3,1, or FAMILY=0.1,0.3,1 with its number or text, got {text!r}"
            ) from None
    return grids or None


def _place(key: int | str, families: Sequence[str]) -> int:
    """Which family a key names."""
    text = str(key).strip()
    if text.isdecimal() and not isinstance(key, bool):
        if 1 <= int(text) <= len(families):
            return int(text) - 1
    else:
        try:
            family = Family(text)
            text = family.canonical if family.templated else str(family.raw)
        except ValueError:
            # No text of a family at all, so none of these.
            pass
        if text in families:
            return families.index(text)
    listed = ", ".join(f"{number} {one}" for number, one in enumerate(families, 1))
    raise ValueError(f"grid: there is no family {key!r}; there are {listed}, or {ALL}")


def _values(values: Sequence[float], family: Family, horizon: int) -> tuple[float, ...]:
    """A family's values, ascending, each of them legal and a policy of its own."""
    where = f"grid of {family.text}"
    if isinstance(values, str) or not all(
        isinstance(one, (int, float)) and not isinstance(one, bool) for one in values
    ):
        raise ValueError(f"{where}: values must be numbers, got {values!r}")
    found = sorted(map(float, values))
    twice = [f"{value:g}" for value, times in Counter(found).items() if times > 1]
    if twice:
        raise ValueError(f"{where}: {', '.join(twice)} stands there more than once; leave the repeats out")
    if len(found) < 2:
        raise ValueError(f"{where}: needs two values or more, got {', '.join(f'{one:g}' for one in found) or 'none'}")
    refused, made = [], dict[Policy, float]()
    for value in found:
        try:
            if not math.isfinite(value):
                raise ValueError(f"{value} is not finite")
            policy = family.with_value(value)
            policy.check_steps(horizon)
        except ValueError as error:
            refused.append(f"{value:g} ({error})")
            continue
        if policy in made:
            raise ValueError(f"{where}: {made[policy]:g} and {value:g} are both {policy}; leave one out")
        made[policy] = value
    if refused:
        raise ValueError(f"{where}: refuses {', '.join(refused)}")
    return tuple(found)
