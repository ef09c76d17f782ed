"""Writes the compiled loop of one specialisation from the templates in `stau_rl.kernels.cpu.steps`.

The generated module is a real file, because Numba's disk cache keys on one; its name carries a hash of its
text and of all device code that it draws in, so that an edit anywhere can never meet a stale machine code.
"""

import ast
import copy
import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import numba

from stau_rl.kernels.cpu import steps as numba_steps
from stau_rl.kernels.cpu.cache import import_text, put_text, remove_unsealed
from stau_rl.kernels.cpu.heads import DEVICE_HEADS


class _Expand(ast.NodeTransformer):
    """Resolves flags, arm loops and arm subscripts of the template language."""

    def __init__(self, spec: "Specialisation", bodies: dict[str, list[ast.stmt]]) -> None:
        self.arms, self.unrolled, self.bodies = spec.arms, spec.unrolled, bodies
        self.flags = spec.flags | (set() if spec.unrolled else {"MANY"})
        self.arm: int | None = None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.AST]:
        if isinstance(node.value, ast.Name) and node.value.id in self.bodies:
            return self._visit_all(self.bodies[node.value.id])
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        if isinstance(node.test, ast.Name) and node.test.id.isupper():
            return self._visit_all(node.body if node.test.id in self.flags else node.orelse)
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.AST]:
        if not (isinstance(node.iter, ast.Name) and node.iter.id == "ARMS"):
            return self.generic_visit(node)
        if not self.unrolled:
            node.iter = ast.parse("range(K)", mode="eval").body
            return self.generic_visit(node)
        copies: list[ast.AST] = []
        for arm in range(self.arms):
            self.arm = arm
            copies += self._visit_all(node.body)
        self.arm = None
        return copies

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self.arm) if node.id == "k" and self.arm is not None else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = _arm_subscript(node)
        if name is None:
            return self.generic_visit(node)
        if self.unrolled and name not in MEMORY:
            return ast.Name(f"{name}_{self.arm}", node.ctx)
        return ast.parse(f"load({name}, {self._start(name)})", mode="eval").body

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        name = _arm_subscript(target)
        if name is None or (self.unrolled and name not in MEMORY):
            return self.generic_visit(node)
        return ast.Expr(
            ast.Call(
                ast.Name("store", ast.Load()),
                [
                    ast.Name(name, ast.Load()),
                    ast.parse(self._start(name), mode="eval").body,
                    self.visit(node.value),
                ],
                [],
            )
        )

    def _start(self, name: str) -> str:
        arm = "k" if self.arm is None else str(self.arm)
        return f"{arm} * B + v" if name in MEMORY else f"{arm} * WIDTH"

    def _visit_all(self, statements: list[ast.stmt]) -> list[ast.AST]:
        visited: list[ast.AST] = []
        for statement in copy.deepcopy(statements):
            result = self.visit(statement)
            visited += result if isinstance(result, list) else [result]
        return visited


def _arm_subscript(node: ast.AST) -> str | None:
    """The name in `name[k]`, or None."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Name):
        return node.value.id if node.slice.id == "k" else None
    return None


@cache
def _template(name: str) -> ast.FunctionDef:
    tree = ast.parse(inspect.getsource(numba_steps))
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _body(name: str) -> list[ast.stmt]:
    """Statements of a template without its docstring and its return."""
    return _template(name).body[1:-1]


HEADER = """# Written by stau_rl.kernels.cpu.codegen; edits are lost.
import math

import numpy as np
from numba import njit

from stau_rl.kernels.cpu.beta import beta_draw, stream
from stau_rl.kernels.cpu.heads import DEVICE_HEADS
from stau_rl.kernels.cpu.indices import INDICES
from stau_rl.kernels.cpu.lanes import *
from stau_rl.kernels.cpu.math import (
    exp2_nonpositive, gumbel, normal_quantile, normal_quantile64, power_switches, whole_power,
)
from stau_rl.kernels.cpu.philox import philox
from stau_rl.kernels.cpu.tally import optimal_plays, pseudo_regret

K, B, CACHE = {arms}, {lanes}, {cache}
F32, F64, I32, I64 = np.float32(0), np.float64(0), np.int32(0), np.int64(0)
COUNT, GAIN, REAL = {count}, {gain}, {real}
ONE, ACTIONS, SECOND = np.uint64(1), np.uint64(0), np.uint64(3)
INVERSE_ARMS, LOWEST, SMALLEST, UNIT, TIE = 1.0 / K, {lowest}, 1e-37, 2.0**-24, 1e-12
{head}
"""
ROWS = (
    "count", "gain", "bound", "mu", "mean", "root", "preference", "reward_sum", "gap", "words", "snapshot",
    "regret", "optimal", "late_optimal", "actions", "rewards",
)  # fmt: skip
MEMORY = frozenset(ROWS[:7])
DEVICE_MODULES = (
    "beta", "heads", "heads_wide", "indices", "lanes", "math", "philox", "tally", "../philox",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Specialisation:
    """What the machine code of a loop depends on; parameters of heads and policies are run-time arguments.

    Attributes:
        choose: name of the template that picks the arm.
        head: registry key of the head, or None.
        arms: number of arms K.
        lanes: instances per block, a multiple of 16.
        unrolled: whether loops over the arms are unrolled.
        count: NumPy type of the pull counts.
        gain: NumPy type of the reward sums.
        real: NumPy type of the running means and of 1 / sqrt(n).
        flags: the flags of the template language that are set.
        index: name of the index's device function, or None.
    """

    choose: str
    head: str | None
    arms: int
    lanes: int
    unrolled: bool
    count: str
    gain: str
    real: str
    flags: frozenset[str]
    index: str | None = None


def write_source(spec: Specialisation, on_disk: bool = True) -> str:
    """Source text of a specialisation's module."""
    bodies = {
        "CHOOSE": _body(spec.choose),
        "UPDATE": _body("update"),
        "BUFFERS": ast.parse(_buffers(spec)).body,
        "ROWS": ast.parse("\n".join(f"{name} = all_{name}[b]" for name in ROWS)).body,
    }
    function = copy.deepcopy(_template("play"))
    for argument in function.args.args:
        argument.arg = f"all_{argument.arg}" if argument.arg in ROWS else argument.arg
    function = _Expand(spec, bodies).visit(function)
    function.decorator_list = [ast.parse('njit(error_model="numpy", nogil=True, cache=CACHE)', mode="eval").body]
    head = ""
    if spec.head is not None:
        head = f"device_head = DEVICE_HEADS[{spec.head!r}]\n"
        form = "wide" if "WIDE" in spec.flags else "log2_weight"
        head += f"log2_weight, head_base = device_head.{form}, device_head.base\n"
        head += "head_slope = device_head.slope\n"
    if spec.index is not None:
        head = f"index = INDICES[{spec.index!r}]\n"
    scalar = {name: f"np.{name}(0)" for name in ("int32", "int64", "float32", "float64")}
    header = HEADER.format(
        arms=spec.arms, lanes=spec.lanes, cache=on_disk, head=head,
        count=scalar[spec.count], gain=scalar[spec.gain], real=scalar[spec.real],
        lowest="-3e38" if spec.real == "float32" else "-1.7e308",
    )  # fmt: skip
    return header + ast.unparse(ast.fix_missing_locations(function)) + "\n"


def _buffers(spec: Specialisation) -> str:
    """Statements that allocate what the looped form keeps outside registers."""
    lines = [f"{name} = np.empty(K * WIDTH, np.{spec.real})" for name in ("score", "level")]
    shares = "float32" if spec.choose == "choose_by_weight" else spec.real
    lines += [f"{name} = np.empty(K * WIDTH, np.{shares})" for name in ("edge", "weight")]
    kinds = {"count": spec.count, "gain": spec.gain, "bound": "int32", "mu": "float64"}
    kinds |= {"mean": spec.real, "root": spec.real}
    lines += [f"lane_{name} = np.empty(WIDTH, np.{kind})" for name, kind in kinds.items()]
    return "\n".join(lines)


@cache
def load_loop(spec: Specialisation) -> Callable[..., None]:
    """Write, import and return the compiled `play` of one specialisation."""
    folder, device_code = _cache_folder(), _device_code(spec)
    text = write_source(spec, folder is not None and device_code is not None)
    digest = hashlib.sha256(f"{text}{device_code}".encode()).hexdigest()[:20]
    name = f"stau_rl_loop_{digest}"
    if folder is None or device_code is None:
        module = ModuleType(name)
        exec(compile(text, f"<{name}>", "exec"), module.__dict__)
        return module.play
    path = folder / f"{name}.py"
    put_text(path, text)
    play = import_text(name, path, text).play
    remove_unsealed(play)
    return play


def _device_code(spec: Specialisation) -> str | None:
    """Everything besides the text that the machine code depends on; None if some of it is in no file."""
    files = {(Path(__file__).parent / f"{name}.py").resolve() for name in DEVICE_MODULES}
    origin: str | None = ""
    if spec.head is not None:
        head = DEVICE_HEADS[spec.head]
        origin = head.origin
        # A head that was registered from elsewhere brings its own file.
        functions = (head.log2_weight, head.slope, head.base, head.wide)
        files |= {Path(inspect.getfile(function.py_func)) for function in functions if function is not None}  # type: ignore[attr-defined]
    if origin is None or not all(file.is_file() for file in files):
        return None
    return "".join(file.read_text() for file in sorted(files)) + origin + numba.__version__


def _cache_folder() -> Path | None:
    """A folder for generated modules that this user may write to, or None."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "stau_rl" / "numba"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None
