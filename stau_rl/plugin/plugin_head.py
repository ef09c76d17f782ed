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
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from typing import Any, Literal

from torch import Tensor

from stau_rl.heads import HEADS, Head
from stau_rl.heads.base import MASS
from stau_rl.heads.parameter import parameter
from stau_rl.plugin.head_class import STATISTICS, PluginHead
from stau_rl.plugin.source import source_of
from stau_rl.spec.schedule import FUNCTIONS, Schedule

RESERVED = ("name", "function", "plugin", "rows", "sees", "log", "mask", "compiled", *STATISTICS)
"""What no parameter can be called."""


def head(
    name: str,
    /,
    *,
    rows: bool = False,
    log: bool = True,
    mass: Literal["simplex", "sub", "free"] = "simplex",
    sees: Sequence[str] = (),
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

    >>> import torch
    >>> from stau_rl.plugin.plugin_head import forget, head
    >>> @head("relu2_n", log=False, mass="free", sees=["n"])
    ... def relu2_n(scores, n):
    ...     "relu(s)^2 / n"
    ...     return scores.relu() ** 2 / n
    >>> relu2_n().weights(torch.tensor([-1.0, 3.0, 1.0, -2.0]))
    tensor([0.0000, 2.2500, 0.2500, 0.0000])
    >>> forget("relu2_n")

    Args:
        name: the head's name in text.
        rows: the function looks at whole rows, with the entries of a row on axis 0 (`scores.max(0)`); such a head
            does not compile. It takes masks if its function has an argument `mask`: boolean, in the shape of the
            scores, which are 0 where it is False.
        log: the function returns log f(s); False for one that returns f(s) >= 0 itself, as suits maps that reach 0. Its
            gradient is 0 where f = 0.
        mass: what its weights sum to. `simplex`: f(s) is divided by its sum, so 1. `sub`: f(s) are the weights, at most
            1 in sum, the rest being the probability of abstaining; more is an error. `free`: f(s) are the weights.
        sees: statistics of its row that the function takes as arguments of these names, of size 1 along the row: `n`,
            how many entries count, `max`, their largest score, and `sum`, the sum of their scores.
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
        seen = _check(name, function, parameters, sharpness, rows, mass, sees)
        doc = inspect.getdoc(function) or "a plug-in head"
        members = [
            (key, float | Schedule, value if hasattr(value, "metadata") else parameter(float(value)))
            for key, value in parameters.items()
        ]
        made = make_dataclass(function.__name__, members, bases=(PluginHead,), frozen=True, slots=True)
        made.__module__, made.__doc__ = function.__module__, doc
        values: dict[str, Any] = {
            "name": name, "formula": doc.splitlines()[0], "source": source, "sharpness": sharpness, "rows": rows,
            "smooth_at_zero": smooth_at_zero and not (rows or seen) and mass == "simplex", "mass_kind": mass,
            "sees": seen, "log": log, "function": staticmethod(function), "plugin": origin,
            "compiled": {},
        }  # fmt: skip
        for attribute, value in values.items():
            setattr(made, attribute, value)
        # The defaults must be legal.
        made()
        HEADS.register(made)
        return made

    return register


def _check(
    name: str,
    function: Callable[..., Any],
    parameters: dict[str, Any],
    sharpness: str | None,
    rows: bool,
    mass: str,
    sees: Sequence[str],
) -> tuple[str, ...]:
    """Look at what a head is declared to be; what its function sees of the row."""
    if name in FUNCTIONS or name in ("t", "nan", "inf"):
        raise ValueError(f"head {name!r}: the name means something else in text; take another")
    if mass not in MASS:
        raise ValueError(f"head {name!r}: mass must be one of {', '.join(MASS)}, got {mass!r}")
    unknown = [one for one in sees if one not in STATISTICS] if not isinstance(sees, str) else [sees]
    if unknown:
        raise ValueError(f"head {name!r}: sees must be a list of {', '.join(STATISTICS)}, got {unknown[0]!r}")
    taken = list(inspect.signature(function).parameters)[1:]
    seen = (*sees, *(["mask"] if rows and "mask" in taken else []))
    declared = [*parameters, *seen]
    if sorted(taken) != sorted(declared) or [one for one in taken if one in parameters] != list(parameters):
        have, wanted = (", ".join(names) or "nothing" for names in (declared, taken))
        raise ValueError(f"head {name!r}: the function takes {wanted} after the scores, but {have} is declared")
    for key, value in parameters.items():
        if hasattr(PluginHead, key) or key in RESERVED:
            raise ValueError(f"head {name!r}: a parameter cannot be called {key!r}")
        if not hasattr(value, "metadata") and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(f"head {name!r}: the default of {key} must be a number or parameter(...), got {value!r}")
    if sharpness is not None and sharpness not in parameters:
        raise ValueError(f"head {name!r}: sharpness must name a parameter, got {sharpness!r}")
    return seen


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
