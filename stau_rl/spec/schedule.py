"""Schedules: numbers that change with the step, written as expressions of t such as `4*log(t)`.

t = 1, 2, ... is the number of the step, so that log(t) is 0 at the first step and no schedule starts by dividing by
zero. An expression holds numbers, t, `+ - * / **`, unary minus, parentheses, and the functions in `FUNCTIONS`; it is
read into a tree and computed in float64, and nothing in it is ever executed as Python.
"""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tree = float | str | tuple[Any, ...]
"""A finite number >= 0, the word `t`, or (operator or function, operand, ...)."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log": np.log,
    "log2": np.log2,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
}
_OPERATORS: dict[type[ast.operator], tuple[str, Callable[..., Any]]] = {
    ast.Add: ("+", np.add),
    ast.Sub: ("-", np.subtract),
    ast.Mult: ("*", np.multiply),
    ast.Div: ("/", np.true_divide),
    ast.Pow: ("**", np.power),
}
_COMPUTE: dict[str, Callable[..., Any]] = {**FUNCTIONS, **dict(_OPERATORS.values()), "neg": np.negative}
# How tightly each form binds; a number, t and a call bind tightest.
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "**": 4}
_TIGHTEST = 5
MAX_DEPTH = 50
MAX_TEXT = 2_000
KNOWN = f"numbers, t, + - * / ** and {', '.join(FUNCTIONS)}"
# Steps computed together. Blocks start at fixed steps, so that the value at t never depends on who asks for it.
BLOCK = 1024


@dataclass(frozen=True, slots=True)
class Schedule:
    """A number that changes with the step t = 1, 2, ...

    Attributes:
        tree: the expression; `parse` makes it from text.

    Examples:
        >>> import stau_rl
        >>> schedule = stau_rl.Schedule.parse("1 + 5*log(t)")
        >>> schedule.at(1), round(schedule.at(100), 4)
        (1.0, 24.0259)
    """

    tree: Tree

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """Read an expression of t.

        Raises:
            ValueError: the text is no such expression, is too long or too deeply nested, or does not depend on t.
        """
        try:
            if len(text) > MAX_TEXT:
                raise ValueError(f"longer than {MAX_TEXT} characters")
            tree = read_tree(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else error
            raise ValueError(f"cannot read the schedule {text[:200]!r}: {reason}") from None
        if not depends_on_t(tree):
            raise ValueError(f"the schedule {text[:200]!r} does not depend on t; give the number itself")
        return cls(tree)

    def __call__(self, t: NDArray[Any]) -> NDArray[np.float64]:
        """Values at the steps `t`, float64 of the same shape; nan or an infinity where the expression has no value."""
        return compute(self.tree, np.asarray(t, dtype=np.float64))

    def steps(self, first: int, last: int) -> NDArray[np.float64]:
        """Values at t = first, ..., last, float64 [last - first + 1]; the same for a step whatever the range."""
        blocks = range(first // BLOCK, last // BLOCK + 1)
        values = np.concatenate([_block(self, block) for block in blocks])
        start = first - blocks[0] * BLOCK
        return values[start : start + last - first + 1]

    def at(self, t: int) -> float:
        """The value at one step."""
        return float(_block(self, t // BLOCK)[t % BLOCK])

    def times(self, factor: float) -> "Schedule":
        """This schedule multiplied by a finite number >= 0."""
        return Schedule(("*", float(factor), self.tree))

    def __str__(self) -> str:
        """Text that parses back to this schedule."""
        return _write(self.tree)

    def __repr__(self) -> str:
        """Python that makes this schedule."""
        return f"Schedule.parse({str(self)!r})"


def read_tree(node: ast.expr, depth: int = 1) -> Tree:
    """The tree of a parsed expression.

    Raises:
        ValueError: for anything but the forms named at the top of this module; the message shows it.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"an expression nested deeper than {MAX_DEPTH}")
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return _finite(node.value)
    if isinstance(node, ast.Name) and node.id == "t":
        return "t"
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        symbol = _OPERATORS[type(node.op)][0]
        return symbol, read_tree(node.left, depth + 1), read_tree(node.right, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
        return read_tree(node.operand, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return "neg", read_tree(node.operand, depth + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        name, many = node.func.id, node.func.id in ("min", "max")
        if node.keywords or not (len(node.args) >= 2 if many else len(node.args) == 1):
            raise ValueError(f"{name} takes {'two or more arguments' if many else 'one argument'}")
        return name, *(read_tree(argument, depth + 1) for argument in node.args)
    shown = ast.unparse(node)
    raise ValueError(f"{shown[:100]!r} is no part of an expression of t, which may hold {KNOWN}")


def _finite(number: float) -> float:
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if value == math.inf:
        raise ValueError("a number beyond the range of float64")
    return value


def depends_on_t(tree: Tree) -> bool:
    """Whether t occurs in the tree."""
    return tree == "t" or (isinstance(tree, tuple) and any(map(depends_on_t, tree[1:])))


def compute(tree: Tree, t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values of a tree at the steps `t`, in their shape."""

    def value(part: Tree) -> Any:
        if isinstance(part, tuple):
            return _COMPUTE[part[0]](*map(value, part[1:]))
        return t if part == "t" else np.float64(part)

    with np.errstate(all="ignore"):
        return np.broadcast_to(np.asarray(value(tree), dtype=np.float64), t.shape)


@lru_cache(maxsize=64)
def _block(schedule: Schedule, block: int) -> NDArray[np.float64]:
    return schedule(block * BLOCK + np.arange(BLOCK))


def _write(tree: Tree, binding: int = 0) -> str:
    """Text of a tree, in parentheses if it binds less tightly than `binding`."""
    if isinstance(tree, str):
        return tree
    if not isinstance(tree, tuple):
        return repr(tree).removesuffix(".0")
    name, *operands = tree
    own = _BINDING.get(name, _TIGHTEST)
    if own == _TIGHTEST:
        return f"{name}({', '.join(map(_write, operands))})"
    if name == "neg":
        text = f"-{_write(operands[0], own)}"
    elif name == "**":
        # Groups from the right, and takes a signed exponent as it is.
        text = f"{_write(operands[0], own + 1)}**{_write(operands[1], _BINDING['neg'])}"
    else:
        text = f"{_write(operands[0], own)}{name}{_write(operands[1], own + 1)}"
    return text if own >= binding else f"({text})"
