"""The class that a head of your own becomes: its function's answer checked, normalised as it declares, masked."""

import inspect
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from stau_rl.heads import Head
from stau_rl.heads.look import everywhere
from stau_rl.heads.normalise import normalise_log, prepare
from stau_rl.plugin.source import Source, source_of

COMPILED_PARAMETERS = 2
"""How many parameters a compiled function may have."""
STATISTICS = ("n", "max", "sum")
"""What a head may ask to see of its row: how many entries count, their largest score, the sum of their scores."""
MOST_MASS = 1.0 + 1e-3
"""What the weights of a row of mass at most 1 may sum to, rounding included."""


class PluginHead(Head):
    """A head made by `head`; parameters are those of its function.

    Attributes:
        function: the decorated function.
        rows: it looks at whole rows.
        log: the function gives log f(s), and not f(s) itself.
        sees: the statistics of its row, and `mask`, that the function asks for.
        plugin: where it comes from.
        compiled: where its code for compiled engines comes from, by the engine.
    """

    __slots__ = ()
    function: ClassVar[Callable[..., Tensor]]
    rows: ClassVar[bool]
    log: ClassVar[bool]
    sees: ClassVar[tuple[str, ...]]
    plugin: ClassVar[Source]
    compiled: ClassVar[dict[str, Source]]

    def log_f(self, scores: Tensor) -> Tensor:
        """The function's answer, checked; where it sees its row, the entries of a row are on axis 0 and all count.

        Raises:
            ValueError: the function failed, or its answer is no tensor of the shape and dtype of `scores`, or holds NaN
                or +inf.
        """
        return self._answer(scores, self._seen(scores, None, 0), None, self._values())

    def unchecked_log_weights(self, scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
        """Log-weights in the working dtype; a function of rows has its entries on axis 0."""
        if self.rows and mask is not None and "mask" not in self.sees:
            raise ValueError(
                f"head {self.name!r} looks at whole rows and takes no mask; give its function an argument `mask`"
            )
        working, mask = prepare(scores, mask)
        if working.shape[dim] == 0:
            return working
        kept = None if mask is None else mask.expand(working.shape)
        values = self._values()
        if self.rows:
            turned = {
                name: _aligned(value, working.ndim).movedim(dim, 0) if isinstance(value, Tensor) else value
                for name, value in values.items()
            }
            entries, counted = working.movedim(dim, 0), None if kept is None else kept.movedim(dim, 0)
            answer = self._answer(entries, self._seen(entries, counted, 0), counted, turned).movedim(0, dim)
        else:
            answer = self._answer(working, self._seen(working, kept, dim), kept if self.sees else None, values)
        if self.mass_kind == "simplex":
            return normalise_log(answer, dim, mask)
        answer = answer if kept is None else torch.where(kept, answer, -torch.inf)
        if self.mass_kind == "sub":
            self._require_share(answer, dim)
        return answer

    def _logarithm(self, answer: Tensor, scores: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and not everywhere(answer >= 0):
            bad = scores.detach()[~(answer >= 0)].flatten()[0]
            raise ValueError(f"head {self.name!r} must return f(s) >= 0, got a negative one or NaN at score {bad:.6g}")
        positive = answer > 0
        return torch.where(positive, torch.where(positive, answer, 1.0).log(), -torch.inf)

    def _require_share(self, log_weights: Tensor, dim: int) -> None:
        if torch.compiler.is_compiling():
            return
        mass = log_weights.detach().exp().sum(dim)
        if not everywhere(mass <= MOST_MASS):
            raise ValueError(
                f"head {self.name!r} is registered with mass='sub', but the weights of a row sum to "
                f"{float(torch.func.debug_unwrap(mass).max()):.6g}; divide them, or say mass='free'"
            )

    def _values(self) -> dict[str, Any]:
        return {name: self.fixed(getattr(self, name)) for name in self.__dataclass_fields__}  # type: ignore[attr-defined]

    def _seen(self, scores: Tensor, mask: Tensor | None, dim: int) -> dict[str, Tensor]:
        """What the function asks to see of the rows along an axis, which has size 1 then, and the mask."""
        kept = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
        made: dict[str, Callable[[], Tensor]] = {
            "n": lambda: kept.sum(dim, keepdim=True).to(scores.dtype),
            "max": lambda: torch.where(kept, scores, -torch.inf).amax(dim, keepdim=True),
            "sum": lambda: torch.where(kept, scores, 0.0).sum(dim, keepdim=True),
            "mask": lambda: kept,
        }
        return {name: made[name]() for name in self.sees}

    def _answer(self, scores: Tensor, seen: dict[str, Tensor], mask: Tensor | None, values: dict[str, Any]) -> Tensor:
        """What the function says, -inf under the mask; no value there reaches it."""
        if mask is not None:
            scores = torch.where(mask, scores, 0.0)
        try:
            answer = type(self).function(scores, **values, **seen)
        except Exception as error:
            raise ValueError(f"head {self.name!r} failed: {type(error).__name__}: {error}") from error
        if not isinstance(answer, Tensor) or answer.shape != scores.shape or answer.dtype != scores.dtype:
            kind = f"{answer.dtype} {list(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
            wanted = f"{scores.dtype} {list(scores.shape)}"
            raise ValueError(f"head {self.name!r} must return a tensor like its scores, {wanted}, got {kind}")
        if mask is not None:
            answer = torch.where(mask, answer, -torch.inf if self.log else 0.0)
        if not self.log:
            answer = self._logarithm(answer, scores)
        if not torch.compiler.is_compiling() and not everywhere(answer < math.inf):
            bad = scores.detach()[~(answer < math.inf)].flatten()[0]
            raise ValueError(f"head {self.name!r} must return log f(s) below +inf, got NaN or +inf at score {bad:.6g}")
        return answer

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
        if cls.rows or cls.sees:
            raise ValueError(f"head {cls.name!r} looks at whole rows; only elementwise heads compile")
        if cls.mass_kind != "simplex":
            raise ValueError(f"head {cls.name!r} has mass={cls.mass_kind!r}; only heads of mass 1 compile")
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


def _aligned(value: Tensor, axes: int) -> Tensor:
    """A tensor with axes of size 1 in front, so that it has as many as the scores that it broadcasts against."""
    return value[(None,) * (axes - value.ndim)]
