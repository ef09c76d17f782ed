"""Families of specs by name: heads, scores, policies, arms, tasks.

A spec is a frozen dataclass with a class attribute `name`; a `Registry` holds one family of them and makes
specs of text.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from stau_rl.spec.grammar import MAX_SHOWN, Call, SpecError, Word, parse_pipe, show, suggest
from stau_rl.spec.schedule import Schedule

Spec = TypeVar("Spec")


class Registry(Mapping[str, type[Spec]]):
    """One family of specs by name, in order of registration.

    Args:
        family: what one member is called in messages, such as `head`.
        members: the spec classes; each a frozen dataclass with a `name`.
        elsewhere: end of the message about an unknown name: where others may come from.
    """

    def __init__(self, family: str, *members: type[Spec], elsewhere: str = "") -> None:
        self.family, self.elsewhere = family, elsewhere
        self._members: dict[str, type[Spec]] = {}
        for member in members:
            self.register(member)

    def __getitem__(self, name: str) -> type[Spec]:
        """Return the spec class called `name`."""
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._members)

    def __len__(self) -> int:
        """Count the members."""
        return len(self._members)

    def register(self, member: type[Spec]) -> type[Spec]:
        """Add a spec class; also usable as a decorator. A name already taken is a ValueError."""
        name = getattr(member, "name", None)
        if not isinstance(name, str) or not name.isidentifier() or not dataclasses.is_dataclass(member):
            raise ValueError(f"a {self.family} is a dataclass with an identifier as `name`, got {member!r}")
        if name in self._members:
            raise ValueError(f"{self.family} {name!r} is already registered")
        self._members[name] = member
        return member

    def unregister(self, name: str) -> None:
        """Take a member out again; a KeyError if there is none of that name."""
        del self._members[name]

    def parse(self, text: str) -> Spec:
        """Read the text of one member.

        Raises:
            SpecError: for text that does not parse, unknown names (the nearest is suggested) and arguments.
        """
        calls = parse_pipe(text, self.family)
        if len(calls) != 1:
            raise SpecError(f"{self.family} {show(text)}: expected one {self.family}, got a pipe of {len(calls)}")
        return self.build(calls[0])

    def build(self, call: Call) -> Spec:
        """Turn a parsed call into a spec; errors as in `parse`, and the spec's own for illegal values."""
        if call.name not in self._members:
            raise SpecError(
                f"unknown {self.family} {show(call.name)}{suggest(call.name, self._members)}{self.elsewhere}"
            )
        member = self._members[call.name]
        fields: dict[str, dataclasses.Field[Any]] = {
            field.name: field
            for field in dataclasses.fields(member)  # type: ignore[arg-type]
            if field.init
        }
        if len(call.args) > len(fields):
            raise SpecError(f"{call.name} takes at most {len(fields)} arguments, got {len(call.args)}")
        given: dict[str, Any] = dict(zip(fields, call.args, strict=False))
        for name, value in call.kwargs:
            if name not in fields:
                raise SpecError(f"{call.name} has no argument {show(name)}{suggest(name, fields)}")
            if name in given:
                raise SpecError(f"{call.name}: argument {name!r} is given twice")
            given[name] = value
        hints = typing.get_type_hints(member)
        values = {
            name: _convert(f"{call.name}: {name}", value, hints[name], fields[name].metadata)
            for name, value in given.items()
        }
        missing = [
            name
            for name, field in fields.items()
            if name not in values
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise SpecError(f"{call.name} needs the argument {missing[0]!r}")
        try:
            return member(**values)
        except SpecError:
            raise
        except ValueError as error:
            raise SpecError(str(error)) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _convert(where: str, value: Any, hint: Any, metadata: Mapping[str, Any]) -> Any:
    if "registry" in metadata:
        if isinstance(value, Word):
            value = Call(str(value))
        if not isinstance(value, Call):
            raise SpecError(f"{where} must be a {metadata['registry'].family}, got {show(value)}")
        return metadata["registry"].build(value)
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if Schedule in options and value == "t" and isinstance(value, Word):
        value = Schedule("t")
    if value is None and type(None) in options:
        return None
    converters: dict[Any, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = {
        float: ("a number", _is_number, _as_float),
        int: ("a whole number", _is_whole, int),
        str: ("a word", lambda v: isinstance(v, str), str),
        tuple[float, ...]: (
            "a list of numbers",
            lambda v: isinstance(v, tuple) and all(map(_is_number, v)),
            lambda v: tuple(map(_as_float, v)),
        ),
        tuple[tuple[float, ...], ...]: (
            "a list of lists of numbers",
            lambda v: isinstance(v, tuple) and all(isinstance(row, tuple) and all(map(_is_number, row)) for row in v),
            lambda v: tuple(tuple(map(_as_float, row)) for row in v),
        ),
        tuple[str, ...]: (
            "a list of words",
            lambda v: isinstance(v, tuple) and all(isinstance(item, str) for item in v),
            lambda v: tuple(map(str, v)),
        ),
        Schedule: ("an expression of t", lambda v: isinstance(v, Schedule), lambda v: v),
    }
    wanted = [converters[option] for option in options if option in converters]
    for _, accepts, convert in wanted:
        if accepts(value):
            return convert(value)
    shown = f"{value.name[:MAX_SHOWN]}(...)" if isinstance(value, Call) else show(value)
    if isinstance(value, Schedule):
        shown = f"{str(value)[:MAX_SHOWN]}, which changes with t"
    raise SpecError(f"{where} must be {' or '.join(name for name, *_ in wanted)}, got {shown}")
