"""Heads of your own: a Python function on scores is enough, functions on lanes and for Triton compile it.

>>> import torch
>>> from stau_rl.plugin.plugin_head import forget, head, parameter
>>> @head("gaussian_tail", p=parameter(2.0, above=0.0))
... def gaussian_tail(scores, p):
...     "exp(-|s|^p) for s < 0, else 1"
...     return -scores.clamp(max=0.0).abs() ** p
>>> gaussian_tail(p=1).weights(torch.tensor([0.0, -1.0])).round(decimals=3)
tensor([0.7310, 0.2690])
>>> forget("gaussian_tail")

The file is code, and importing it runs it; whatever it is meant to compute should stand in it alone, as only its own
text is hashed: the SHA-256 of the file goes into the spec of every run that uses one of its heads.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import fields, make_dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from stau_rl.heads import HEADS, Head
from stau_rl.heads.normalise import normalise_log, prepare
from stau_rl.heads.parameter import parameter
from stau_rl.plugin.source import Source, source_of
from stau_rl.spec.schedule import FUNCTIONS, Schedule

COMPILED_PARAMETERS = 2
"""How many parameters a compiled function may have."""


class PluginHead(Head):
    """A head made by `head`; parameters are those of its function.

    Attributes:
        function: the decorated function.
        rows: it looks at whole rows.
        plugin: where it comes from.
        compiled: where its code for compiled engines comes from, by the engine.
    """

    __slots__ = ()
    function: ClassVar[Callable[..., Tensor]]
    rows: ClassVar[bool]
    plugin: ClassVar[Source]
    compiled: ClassVar[dict[str, Source]]

    def log_f(self, scores: Tensor) -> Tensor:
        """The function's answer, checked.

        Raises:
            ValueError: the function failed, or its answer is no tensor of the shape and dtype of `scores`, or holds NaN
                or +inf.
        """
        values = {name: self.fixed(getattr(self, name)) for name in self.__dataclass_fields__}  # type: ignore[attr-defined]
        try:
            answer = type(self).function(scores, **values)
        except Exception as error:
            raise ValueError(f"head {self.name!r} failed: {type(error).__name__}: {error}") from error
        if not isinstance(answer, Tensor) or answer.shape != scores.shape or answer.dtype != scores.dtype:
            kind = f"{answer.dtype} {list(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
            wanted = f"{scores.dtype} {list(scores.shape)}"
            raise ValueError(f"head {self.name!r} must return a tensor like its scores, {wanted}, got {kind}")
        if not torch.compiler.is_compiling() and not bool((answer < math.inf).all()):
            bad = scores.detach()[~(answer < math.inf)].flatten()[0]
            raise ValueError(f"head {self.name!r} must return log f(s) below +inf, got NaN or +inf at score {bad:.6g}")
        return answer

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype; a function of rows has its entries on axis 0."""
        if not self.rows:
            return super().unchecked_log_weights(scores, dim, mask)
        if mask is not None:
            raise ValueError(f"head {self.name!r} looks at whole rows and takes no mask")
        working, _ = prepare(scores, None)
        if working.shape[dim] == 0:
            return working
        return normalise_log(self.log_f(working.movedim(dim, 0)).movedim(0, dim), dim)

    @classmethod
    def numba(cls, log2_weight: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator that adds the compiled CPU engine: `log2_weight(score, ...)` is log2 f(s) up to a constant.

        The function works on sixteen float32 scores side by side, with the operators and functions of
        `stau_rl.kernels.cpu.lanes` and `cpu.math` (`select` in place of `if`), and takes the head's parameters
        by position.

        Raises:
            ValueError: the head looks at whole rows, has more than two parameters, or the arguments do not match.
        """
        origin = cls._accept("numba", log2_weight)
        if origin is not None:
            from stau_rl.kernels.cpu.plugin import device_head

            device_head(cls.name, log2_weight, len(fields(cls)), origin.cache_key)  # type: ignore[arg-type]
        return log2_weight

    @classmethod
    def triton(cls, log2_weight: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator that adds the GPU engine: `log2_weight(score, ...)` is log2 f(s) up to a constant, in Triton.

        The function gets a float32 tensor of scores and the head's parameters as float32 scalars, by position; it is
        written with `tl` and the functions of `stau_rl.kernels.gpu.device`, and compiled where Triton runs.

        Raises:
            ValueError: as for `numba`.
        """
        if cls._accept("triton", log2_weight) is not None:
            from stau_rl.kernels.gpu.bind import PLUGINS

            PLUGINS[cls.name] = (log2_weight, len(fields(cls)))  # type: ignore[arg-type]
        return log2_weight

    @classmethod
    def _accept(cls, engine: str, function: Callable[..., Any]) -> Source | None:
        """Check a device function; where it comes from, or None if the same is there already."""
        names = [member.name for member in fields(cls)]  # type: ignore[arg-type]
        if cls.rows:
            raise ValueError(f"head {cls.name!r} looks at whole rows; only elementwise heads compile")
        if len(names) > COMPILED_PARAMETERS:
            raise ValueError(f"head {cls.name!r} has {len(names)} parameters; at most {COMPILED_PARAMETERS} compile")
        # Numba and Triton keep the Python function of a compiled one under these names.
        plain = getattr(function, "py_func", getattr(function, "fn", function))
        taken = len(inspect.signature(plain).parameters)
        if taken != 1 + len(names):
            wanted = ", ".join(["score", *names])
            raise ValueError(f"head {cls.name!r}: the {engine} function must take ({wanted}), got {taken} arguments")
        origin = source_of(plain)
        known = cls.compiled.get(engine)
        if known is not None and known != origin:
            raise ValueError(f"head {cls.name!r} has a {engine} function already, from {known.file}")
        cls.compiled[engine] = origin
        return origin if known is None else None


def head(
    name: str,
    /,
    *,
    rows: bool = False,
    sharpness: str | None = None,
    smooth_at_zero: bool = False,
    source: str = "plug-in",
    **parameters: Any,
) -> Callable[[Callable[..., Tensor]], type[PluginHead]]:
    """Decorator that registers a head made of a function `f(scores, **parameters)` that returns log f(s).

    The function gets a float32 or float64 tensor and returns one of the same shape and dtype: the logarithm of the
    non-negative map, -inf where f = 0. Weights, masks, gradients and the torch engine follow. By default it is
    elementwise: it sees any shape, and an entry's value depends on its score alone. The first line of its docstring is
    the formula in tables.

    Args:
        name: the head's name in text.
        rows: the function looks at whole rows, with the entries of a row on axis 0 (`scores.max(0)`); such a head
            takes no mask and does not compile.
        sharpness: the parameter that sharpens the head, for `match_sharpness`.
        smooth_at_zero: d log f / ds exists at s = 0, so that slopes there may be matched.
        source: where it comes from, for tables.
        **parameters: the function's other arguments with their defaults: numbers, or `parameter(1.0, above=0.0)` to
            bound what is legal. Text may give each as a schedule.

    Returns:
        The head's class in place of the function: `my_head(p=3).weights(scores)`. The same code again gives the same
        class.

    Raises:
        ValueError: the name is taken, is no identifier, or the parameters do not match those of the function.
    """

    def register(function: Callable[..., Tensor]) -> type[PluginHead]:
        origin = source_of(function)
        known = HEADS.get(name)
        if known is not None:
            if issubclass(known, PluginHead) and known.plugin == origin:
                return known
            there = f" from {known.plugin.file}" if issubclass(known, PluginHead) else ""
            raise ValueError(
                f"head {name!r} is already registered{there}; take another name, or stau_rl.plugin.forget({name!r}) "
                "for a plug-in that has changed"
            )
        _check(name, function, parameters, sharpness)
        doc = inspect.getdoc(function) or "a plug-in head"
        members = [
            (key, float | Schedule, value if hasattr(value, "metadata") else parameter(float(value)))
            for key, value in parameters.items()
        ]
        made = make_dataclass(function.__name__, members, bases=(PluginHead,), frozen=True, slots=True)
        made.__module__, made.__doc__ = function.__module__, doc
        values: dict[str, Any] = {
            "name": name, "formula": doc.splitlines()[0], "source": source, "sharpness": sharpness, "rows": rows,
            "smooth_at_zero": smooth_at_zero and not rows, "function": staticmethod(function), "plugin": origin,
            "compiled": {},
        }  # fmt: skip
        for attribute, value in values.items():
            setattr(made, attribute, value)
        # The defaults must be legal.
        made()
        HEADS.register(made)
        return made

    return register


def _check(name: str, function: Callable[..., Any], parameters: dict[str, Any], sharpness: str | None) -> None:
    if name in FUNCTIONS or name in ("t", "nan", "inf"):
        raise ValueError(f"head {name!r}: the name means something else in text; take another")
    taken = list(inspect.signature(function).parameters)[1:]
    if taken != list(parameters):
        declared, wanted = (", ".join(names) or "nothing" for names in (parameters, taken))
        raise ValueError(f"head {name!r}: the function takes {wanted} after the scores, but {declared} is declared")
    for key, value in parameters.items():
        if hasattr(Head, key) or key in ("name", "function", "plugin", "rows", "numba", "triton", "compiled"):
            raise ValueError(f"head {name!r}: a parameter cannot be called {key!r}")
        if not hasattr(value, "metadata") and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"head {name!r}: the default of {key} must be a number or parameter(...), got {value!r}")
    if sharpness is not None and sharpness not in parameters:
        raise ValueError(f"head {name!r}: sharpness must name a parameter, got {sharpness!r}")


def forget(name: str) -> None:
    """Unregister a plug-in head, so that changed code may register it again.

    Raises:
        ValueError: no plug-in head has this name.
    """
    if not issubclass(HEADS.get(name, Head), PluginHead):
        raise ValueError(f"no plug-in head is called {name!r}")
    HEADS.unregister(name)
    from stau_rl.kernels.cpu.plugin import forget_device_head
    from stau_rl.kernels.gpu.bind import PLUGINS

    forget_device_head(name)
    PLUGINS.pop(name, None)


def plugin_hashes(policies: list[Any]) -> dict[str, str]:
    """SHA-256 of the code of every plug-in head in some policies, by the head's name."""
    return head_hashes([policy.head for policy in policies])


def head_hashes(heads: list[Any]) -> dict[str, str]:
    """SHA-256 of the code of every plug-in head among some heads, and inside them, by its name."""
    every = [*heads, *(getattr(one, "inner", None) for one in heads)]
    return {one.name: one.plugin.sha256 for one in every if isinstance(one, PluginHead)}


__all__ = ["PluginHead", "forget", "head", "head_hashes", "parameter", "plugin_hashes"]
