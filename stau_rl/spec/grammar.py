"""Specs as text: `s_tau(tau=5)`, `centred_ucb(c=0.25) | softmax(beta=4)`.

The text of a spec is a Python expression: a name, or a call with numbers, lists, strings, bare words or other specs as
arguments, joined by `|` where a family says so. A number may be an expression such as `2*3`, and where a parameter may
change with the step, one of t (`stau_rl.spec.schedule`). `parse_pipe` reads a text into calls, of which a
`stau_rl.spec.registry.Registry` makes specs; `format_spec` writes the shortest text that reads back equal.
"""

import ast
import dataclasses
import difflib
import keyword
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from stau_rl.spec.schedule import FUNCTIONS, Schedule, compute, depends_on_t, read_tree

MAX_TEXT = 20_000
MAX_SHOWN = 200


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
