"""The rows of the table of captured scores: softmax and s^tau at tau*, or one head and another."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stau_rl.calibration.matching import match_entropy
from stau_rl.calibration.score_kinds import (
    COMPARED,
    DESCRIBED,
    Drawn,
    Kind,
    Numbers,
    head_terms,
    numbers,
    s_tau_terms,
    softmax_terms,
)
from stau_rl.calibration.score_source import Part
from stau_rl.calibration.tau_problem import Each, Problem
from stau_rl.heads import Head

NUDGE = 1e-5
"""Relative change of a matched parameter that finds the slope of the entropy in it."""


def tau_rows(parts: Sequence[Part], eps: float, drawn: Drawn | None, each: Each) -> Iterator[dict[str, Any]]:
    """Rows of softmax, and of s^tau at both forms of tau*.

    Args:
        parts: the rows that share a tau.
        eps: floor of s^tau's map.
        drawn: how they were drawn; None for all.
        each: how a function is called on the parts.
    """
    names, columns = ("softmax", "s_tau_closed", "s_tau_kl"), ("kl", *DESCRIBED)
    if not parts:
        for name in names:
            yield _row({"weights": name, "tau": np.nan}, columns, None, drawn, "tau")
        return
    found = Problem([part.rows for part in parts], each).solve()
    scale, unit = found.scale, float(found.scale) or 1.0
    for name, u in zip(names, (None, found.closed, found.newton), strict=True):
        if u is None:
            kind, tau = Kind(columns, softmax_terms), np.nan
        else:
            influence = None
            if drawn is not None:
                influence = torch.cat(each(partial(_influence, u=u, scale=scale, closed=name == names[1]), parts), 1)
                influence = influence[0] / influence[1].mean()
            tau = float(found.tau(u, clamp=True))
            kind = Kind(columns, partial(s_tau_terms, eps=eps, scale=scale), float(u), influence=influence)
        counted = numbers(kind, parts, drawn, each)
        yield _row({"weights": name, "tau": tau}, columns, counted, drawn, "tau", counted.value_half / unit)


def _influence(part: Part, u: Tensor, scale: Tensor, closed: bool) -> Tensor:
    """What every row says against u, and how firmly: [2, rows]. Their mean ratio is how far u errs."""
    rows = part.rows()
    if closed:
        above, below = (terms.sum(-1)[0] for terms in rows.least_squares(scale))
        return torch.stack([above - float(u) * below, below])
    excess, _, _, variance = rows.newton(u, scale)[:, 0]
    return torch.stack([-excess, variance])


def pair_rows(
    parts: Sequence[Part], head: Head, against: Head, drawn: Drawn | None, each: Each
) -> Iterator[dict[str, Any]]:
    """Rows of a head, of another in its place, and of that one made as sharp; arguments as in `tau_rows`."""
    columns = (*COMPARED, *DESCRIBED)

    def row(role: str, shown: Head, kind: Kind | None) -> dict[str, Any]:
        counted = None if kind is None else numbers(kind, parts, drawn, each)
        return _row({"role": role, "weights": str(shown)}, columns, counted, drawn)

    def kind_of(shown: Head) -> Kind | None:
        return Kind(columns, partial(head_terms, head=lambda _: shown, reference=head)) if parts else None

    yield row("reference", head, kind_of(head))
    yield row("given", against, kind_of(against))
    if against.sharpness is None or {head.mass_kind, against.mass_kind} != {"simplex"}:
        return
    name = against.sharpness

    def with_value(value: float) -> Head:
        changed: dict[str, Any] = {name: value}
        return replace(against, **changed)  # type: ignore[type-var]

    def entropies(shown: Head) -> Tensor:
        return torch.cat(each(partial(_entropies, head=shown), parts))

    try:
        matched = match_entropy(head, against, lambda shown: float(entropies(shown).mean())) if parts else None
    except ValueError:
        matched = None
    if matched is None:
        yield row("as sharp", against, None)
        return
    value = float(getattr(matched, name))
    kind = Kind(columns, partial(head_terms, head=with_value, reference=head), value, value * NUDGE)
    if drawn is not None:
        off = entropies(matched) - entropies(head)
        ends = [float(entropies(with_value(value * (1 + sign * NUDGE))).mean()) for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * NUDGE * value)
        kind.influence = -off / slope if slope else None
    yield row("as sharp", matched, kind)


def _entropies(part: Part, head: Head) -> Tensor:
    scores, mask = part.read()
    return torch.special.entr(head.weights(scores, mask=mask)).sum(-1)


def _row(
    named: dict[str, Any],
    columns: Sequence[str],
    found: Numbers | None,
    drawn: Drawn | None,
    fitted: str | None = None,
    fitted_half: float = np.nan,
) -> dict[str, Any]:
    """A row with its numbers and, where rows were drawn, their intervals; NaN where there are none."""
    nothing = np.full(len(columns), np.nan)
    row = named | dict(zip(columns, nothing if found is None else found.values.tolist(), strict=True))
    if drawn is None:
        return row
    if fitted is not None:
        row |= {f"{fitted}_low": max(1.0, row[fitted] - fitted_half), f"{fitted}_high": row[fitted] + fitted_half}
    low, high = (nothing if found is None else found.low, nothing if found is None else found.high)
    for name, *ends in zip(columns, nothing if low is None else low, nothing if high is None else high, strict=True):
        row |= {f"{name}_low": float(ends[0]), f"{name}_high": float(ends[1])}
    return row
