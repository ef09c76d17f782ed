"""Choosing what a probe trains: settings of a plan by task and normaliser, or a task of one's own."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stau_rl.envs.tasks import TASKS, Task, parse_task
from stau_rl.probe.claims_plan import PARTS, claims
from stau_rl.probe.plan import PART, Setting, plan
from stau_rl.spec.grammar import suggest


def choose(
    size: str = "small",
    tasks: str | Sequence[str] = (),
    normalisers: str | Sequence[str] = (),
    seeds: int | None = None,
    steps: int | None = None,
    items: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    width: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
) -> list[Setting]:
    """The settings that some options ask for.

    >>> from stau_rl.probe.choose import choose
    >>> [(setting.part, setting.normalisers) for setting in choose("small", "silence", ["sm_fir", "pn_fir_tau"])]
    [('silence', ('sm_fir', 'pn_fir_tau'))]

    Args:
        size: of the plan, `small` or `full`.
        tasks: names of its parts or of tasks, whose settings are kept; parts of `stau_rl.probe.claims_plan`, of any
            size; or full texts of tasks, which make settings of their own. One text or several; empty for all of the
            plan, without the parts of claims.
        normalisers: what is trained in place of the plan's, one text or several; empty for the plan's.
        seeds: how many; 3 for small, 5 for full and a part's own number for claims if not given.
        steps: optimiser steps, in place of the plan's.
        items: test items per seed, in place of the plan's.
        batch: items per step and model, in place of the plan's.
        learning_rate: its peak, in place of the plan's.
        width: of the residual stream, in place of the plan's.
        layers: attention layers, in place of the plan's.
        heads: attention heads per layer, each of width / heads, in place of the plan's.

    Raises:
        ValueError: a text does not parse, or a number is out of range.
    """
    tasks, normalisers = ((texts,) if isinstance(texts, str) else texts for texts in (tasks, normalisers))
    settings = plan(size, (3 if size == "small" else 5) if seeds is None else seeds)
    kept: list[Setting] = [] if tasks else list(settings)
    for text in tasks:
        mine = [setting for setting in settings if setting.part == text]
        mine = mine or [setting for setting in settings if setting.task == text]
        mine = mine or claims(text, seeds)
        if not mine:
            task = _own_task(text, [*(setting.part for setting in settings), *PARTS])
            # A task that the size leaves out is trained as the whole plan trains it.
            known = [*settings, *plan("full", len(settings[0].seeds))]
            # A task of one's own is trained as recall is.
            like = next((one for one in known if parse_task(one.task).name == task.name), settings[0])
            mine = [replace(like, part=PART, task=text, factors=())]
        kept += [setting for setting in mine if setting not in kept]
    if normalisers:
        kept = [replace(setting, normalisers=tuple(dict.fromkeys(normalisers))) for setting in kept]
    if learning_rate is not None and not 0 < learning_rate < math.inf:
        raise ValueError(f"learning_rate must be finite and > 0, got {learning_rate}")
    recipe = _given(steps=steps, batch=batch, rate=learning_rate)
    shape = _given(width=width, layers=layers, heads=heads)
    return [
        replace(
            setting,
            recipe=replace(setting.recipe, **recipe),
            shape=replace(setting.shape, **shape),
            **_given(items=items),
        )
        for setting in kept
    ]


def _given(**values: float | None) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _own_task(text: str, parts: Sequence[str]) -> Task:
    """The task of a text that names no part of the plan; the error for an unknown name lists the parts too."""
    name = text.split("(")[0].strip()
    if "(" not in text and name not in TASKS:
        known = dict.fromkeys((*parts, *TASKS))
        raise ValueError(f"unknown part of the plan or task {name!r}{suggest(name, known)}")
    return parse_task(text)
