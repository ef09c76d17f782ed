"""Times variants of the JAX scan, to find again which layout, batch size and form is fastest on a machine."""

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from stau_rl.speed.jax_scan import simulate
from stau_rl.speed.jax_settings import Settings


def sweep(
    *,
    arms: int = 10,
    horizon: int = 500,
    tau: float = 5.0,
    repeats: int = 5,
    instances: Iterable[int] = (65_536,),
    variants: Iterable[dict[str, Any]] | None = None,
    base: Settings | None = None,
) -> list[dict[str, Any]]:
    """Time variants of the loop, warm, on arms of means equally spaced in [0.1, 0.9].

    Args:
        arms: number of arms K.
        horizon: steps.
        tau: exponent.
        repeats: timed runs of each variant.
        instances: batch sizes.
        variants: changes to `base`, one dictionary a variant; None tries each documented choice by itself.
        base: the settings to change; None for the defaults.

    Returns:
        One row a variant and batch size: its settings, `instances`, `seconds` (median), `seconds_best`,
        `arm_steps_per_second` (from the median), `best_arm_steps_per_second`,
        `arm_steps_per_cpu_second` (best; steadier on a busy machine; None with worker processes),
        `compile_seconds`.
    """
    base = base or Settings()
    rows = []
    for variant in _one_at_a_time(base) if variants is None else variants:
        for size in instances:
            settings = replace(base, **variant)
            play = partial(
                simulate,
                means=np.linspace(0.1, 0.9, arms),
                c=1.0,
                tau=tau,
                seed=0,
                horizon=horizon,
                instances=size,
                settings=settings,
            )
            start = time.perf_counter()
            play()
            first = time.perf_counter() - start
            wall, cpu = [], []
            for _ in range(repeats):
                start, start_cpu = time.perf_counter(), time.process_time()
                play()
                wall.append(time.perf_counter() - start)
                cpu.append(time.process_time() - start_cpu)
            work = arms * horizon * size
            rows.append(
                asdict(settings)
                | {
                    "instances": size,
                    "seconds": median(wall),
                    "seconds_best": min(wall),
                    "arm_steps_per_second": work / median(wall),
                    "best_arm_steps_per_second": work / min(wall),
                    "arm_steps_per_cpu_second": work / min(cpu) if settings.processes is None else None,
                    "compile_seconds": first - min(wall),
                }
            )
    return rows


def _one_at_a_time(base: Settings) -> list[dict[str, Any]]:
    """The base itself, then every other choice of every field, one field at a time."""
    choices: dict[str, tuple[Any, ...]] = {
        "layout": ("arms_first", "instances_first", "arms_apart"),
        "sampling": ("inverse_cdf", "categorical", "gumbel"),
        "softplus": ("poly", "log", "log1p", "library"),
        "power": ("multiply", "pow", "exp_log"),
        "cdf": ("rows", "cumsum", "matmul"),
        "rng": ("threefry", "threefry_partitionable", "rbg", "unsafe_rbg"),
        "draw": ("block", "step"),
        "cache_rsqrt": (True, False),
        "unroll": (1, 2, 4, 8, 16),
        "chunk": (1024, 2048, 4096, 8192, 16_384, None),
        "processes": (None, os.cpu_count()),
        "vector_width": (None, 256, 512),
    }
    current = asdict(base)
    return [{}] + [{name: v} for name, values in choices.items() for v in values if v != current[name]]
