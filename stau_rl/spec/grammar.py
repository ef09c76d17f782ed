"""Specs as text: `s_tau(tau=5)`, `centred_ucb(c=0.25) | softmax(beta=4)`.

A spec is a frozen dataclass with a class attribute `name`; a `Registry` is one family of them. The text of a spec
is a Python expression: a name, or a call with numbers, lists, strings, bare words or other specs as arguments, joined
by `|` where a family says so. A number may be an expression such as `2*3`, and where a parameter may change with the
step, one of t (`stau_rl.spec.schedule`). `Registry.parse` reads a text, `format_spec` writes the shortest that reads
back equal.
"""

import ast
import dataclasses
import difflib
import keyword
import math
import types
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from stau_rl.spec.schedule import FUNCTIONS, Schedule, compute, depends_on_t, read_tree

MAX_TEXT = 20_000
MAX_SHOWN = 200
Spec = TypeVar("Spec")


class SpecError(ValueError):
    """A text that names no spec; the message says which part is wrong and what would be accepted."""


class Word(str):
    """A bare word in the text of a spec, as in `baseline=none`."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One parsed call: its name, positional and keyword arguments."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()


def parse_pipe(text: str, what: str) -> list[Call]:
    """Read `a(x=1) | b` into calls, left to right.

    Args:
        text: the text to read.
        what: the kind of thing it should name, for messages.

    Raises:
        SpecError: if the text is empty, too long, unbalanced or not made of calls.
    """
    if not isinstance(text, str) or not text.strip():
        raise SpecError(f"{what} must be a non-empty text, got {show(text)}")
    where = f"cannot read {what} {show(text)}"
    if len(text) > MAX_TEXT:
        raise SpecError(f"{where}: longer than {MAX_TEXT} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node = ast.parse(text.strip(), mode="eval").body
            return [_call(part, where) for part in _split(node)]
    except SpecError:
        raise
    except SyntaxError as error:
        raise SpecError(f"{where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise SpecError(f"{where}: {error}") from None


def _split(node: ast.expr) -> list[ast.expr]:
    parts = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _call(node: ast.expr, where: str) -> Call:
    if isinstance(node, ast.Name):
        return Call(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if any(keyword.arg is None for keyword in node.keywords):
            raise SpecError(f"{where}: ** is not accepted")
        return Call(
            node.func.id,
            tuple(_value(arg, where) for arg in node.args),
            tuple((str(keyword.arg), _value(keyword.value, where)) for keyword in node.keywords),
        )
    raise SpecError(f"{where}: expected name or name(argument=value), got {show(ast.unparse(node))}")


def _value(node: ast.expr, where: str) -> Any:
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (int, float, str))):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand, where)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple(_value(item, where) for item in node.elts)
    if isinstance(node, ast.Name):
        return {"nan": math.nan, "inf": math.inf}.get(node.id, Word(node.id))
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
    if isinstance(node, (ast.BinOp, ast.UnaryOp)) or called in FUNCTIONS:
        return _expression(node, where)
    if isinstance(node, ast.Call):
        return _call(node, where)
    raise SpecError(f"{where}: {show(ast.unparse(node))} is not a number, list, word or call")


def _expression(node: ast.expr, where: str) -> float | Schedule:
    tree = read_tree(node)
    if depends_on_t(tree):
        return Schedule(tree)
    value = float(compute(tree, np.ones(1))[0])
    if not math.isfinite(value):
        raise SpecError(f"{where}: {show(ast.unparse(node))} is {value}, not a finite number")
    return value


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


def show(value: Any) -> str:
    """Write a value into a message: its repr, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer too long for Python to print
        return "a number of too many digits"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def suggest(name: str, known: Mapping[str, Any]) -> str:
    """End of a message: the nearest known name, or all of them."""
    if not known:
        return "; it takes none"
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"


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


def format_spec(spec: Any) -> str:
    """Write a spec as text that parses back to it.

    Arguments equal to their default are left out, unless their field's metadata says `show`.
    """
    parts = []
    for field in dataclasses.fields(spec):
        if not field.init:
            continue
        value = getattr(spec, field.name)
        default = field.default
        if value == default and type(value) is type(default) and not field.metadata.get("show"):
            continue
        parts.append(f"{field.name}={_format_value(value)}")
    return f"{spec.name}({', '.join(parts)})" if parts else str(spec.name)


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    if isinstance(value, str):
        # Python reads a bare word as NFKC and keeps its keywords to itself; such words are quoted.
        bare = value.isascii() and value.isidentifier() and not keyword.iskeyword(value) and value not in ("nan", "inf")
        return value if bare else repr(value)
    if value is None or isinstance(value, int):
        return repr(value)
    return str(value)


def format_number(value: float) -> str:
    """Shortest text that reads back as the same float: `5`, `0.25`, `1e-08`."""
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else text
