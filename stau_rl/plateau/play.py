"""The plateau benchmark: how long does policy gradient take to leave a suboptimal arm, under which head?

A one-state problem with K arms and rewards uniform on [0, 1]; most of the initial probability lies on the second best
arm. Every head starts from the same probabilities, follows the gradient with step sizes from one grid, and is measured
at the one that was best for it on other draws of the rewards.

Columns of the rows:

- `kind`: `grid` (a step size, on the tuning draws) or `best` (the best step size, on the measured draws; `edge` says
  whether it lies at an end of the grid).
- `failed`, `failed_low`, `failed_high`: share of draws never within `within` of the best reward, with its 95 % Wilson
  interval; `at_start`: share that is there before the first update; `outside_at_end`: share that is not there after
  the last one.
- `steps`, `steps_low`, `steps_high`: median number of updates until the policy is there, with its 95 % interval from
  order statistics; `inf` where half of the draws never are.
"""

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pandas as pd

from stau_rl.kernels.engines import find_device
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.machine.report import Report
from stau_rl.plateau.ascent import GRADIENTS
from stau_rl.plateau.cell import Cell, play_cell, same_grid
from stau_rl.plateau.folder import PlateauFolder
from stau_rl.plateau.methods import DEFAULT_METHODS, parse_method
from stau_rl.plateau.result import PlateauResult
from stau_rl.plateau.start import draw_rewards, fits, initial_probabilities, initial_scores, parse_start
from stau_rl.spec.grammar import suggest

ARMS = (10, 100)
STARTS = ("uniform", "each(p=0.01)", "each(p=0.001)", "shared(p=0.01)", "shared(p=0.001)")
DEFAULT_GRADIENTS = ("exact", "sampled")
PUBLISHED_STEP = 0.4
"""The step size of softmax's guarantee with exact gradients: Mei, Xiao, Szepesvari, Schuurmans, ICML 2020."""
STEP_SIZES = tuple(float(f"{PUBLISHED_STEP * 10 ** (k / 2):.4g}") for k in range(-3, 8))
UPDATES, WITHIN, DRAWS, TUNING_DRAWS = 20_000, 0.01, 256, 64

Value = TypeVar("Value")


def plan_plateau(
    methods: Sequence[str] = DEFAULT_METHODS,
    arms: Sequence[int] = ARMS,
    starts: Sequence[str] | None = None,
    gradients: Sequence[str] = DEFAULT_GRADIENTS,
    step_sizes: Sequence[float] = STEP_SIZES,
    updates: int = UPDATES,
    within: float = WITHIN,
    draws: int = DRAWS,
    tuning_draws: int = TUNING_DRAWS,
    seed: int = 0,
) -> list[Cell]:
    """The cells of a benchmark, in the order in which they are played.

    Args:
        methods: texts as `stau_rl.plateau.methods` reads them.
        arms: numbers of arms, 2 to 1024.
        starts: texts of initial probabilities, by default those of `STARTS` that fit. One that leaves the second best
            of so many arms no more than the best is left out there.
        gradients: keys of `stau_rl.plateau.ascent.GRADIENTS`.
        step_sizes: the grid of all methods.
        updates: updates per policy, >= 1.
        within: distance from the best reward that counts as there, > 0.
        draws: draws of the rewards for the measurement, >= 1.
        tuning_draws: other draws, for the choice of the step size, >= 1.
        seed: in [0, 2^62).

    Raises:
        ValueError: an argument is out of range, a text does not parse, or a method cannot start there.
    """
    for name, count in (("updates", updates), ("draws", draws), ("tuning_draws", tuning_draws)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {count!r}")
    if not (within > 0 and math.isfinite(within)):
        raise ValueError(f"within must be finite and > 0, got {within!r}")
    purpose_seed(seed, "tuning")
    grid = tuple(sorted(set(step_sizes)))
    if not grid or not all(size > 0 and math.isfinite(size) for size in grid):
        raise ValueError(f"step sizes must be finite and > 0, got {list(step_sizes)}")
    for count in arms:
        if not 2 <= count <= 1024:
            raise ValueError(f"a number of arms must lie in 2 ... 1024, got {count!r}")
    for name in gradients:
        if name not in GRADIENTS:
            raise ValueError(f"unknown gradient {name!r}{suggest(name, GRADIENTS)}")
    for text in starts or ():
        if not any(fits(parse_start(text), count) for count in arms):
            raise ValueError(f"{text} leaves the second best arm no more than the best; take a smaller p or fewer arms")
    known = {str(parse_method(text)): parse_method(text) for text in methods}
    content = {text: str(getattr(getattr(method.head, "plugin", None), "sha256", "")) for text, method in known.items()}
    cells = [
        Cell(count, text, name, method, grid, updates, float(within), draws, tuning_draws, seed, content[method])
        for name in _once(gradients)
        for count in _once(arms)
        for text in _once(str(parse_start(text)) for text in starts or STARTS)
        if fits(parse_start(text), count)
        for method in known
    ]
    for cell in cells:
        method = known[cell.method]
        probabilities = initial_probabilities(draw_rewards(cell.arms, 1, seed), parse_start(cell.start))
        initial_scores(method.head, probabilities, method.top)
    if not cells or not same_grid(cells):
        raise ValueError("nothing to play: name at least one head, number of arms, start and gradient")
    return cells


def run_plateau(
    methods: Sequence[str] = DEFAULT_METHODS,
    arms: Sequence[int] = ARMS,
    starts: Sequence[str] | None = None,
    gradients: Sequence[str] = DEFAULT_GRADIENTS,
    step_sizes: Sequence[float] = STEP_SIZES,
    updates: int = UPDATES,
    within: float = WITHIN,
    draws: int = DRAWS,
    tuning_draws: int = TUNING_DRAWS,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    report: Report | None = None,
) -> PlateauResult:
    """Measure how long policy gradient takes to leave a suboptimal arm, under each head.

    Args:
        methods: heads, and heads whose sharpness is learned; `stau_rl.plateau.methods` has the texts.
        arms: numbers of arms, 2 to 1024.
        starts: texts of the initial probabilities, such as `each(p=0.01)`; None for all that fit.
        gradients: any of `exact`, `sampled` and `sampled_no_baseline`.
        step_sizes: the grid that every head's step size is chosen from.
        updates: updates per policy, >= 1.
        within: distance from the best reward that counts as there, > 0.
        draws: draws of the rewards that heads are measured on, >= 1.
        tuning_draws: other draws, on which the step sizes are chosen, >= 1.
        seed: in [0, 2^62).
        out: a folder to fill; cells that it holds already are not played again.
        resume: `out` may hold some.
        device: `cpu`, `cuda`, `cuda:N` or `auto`, a GPU where there is one.
        report: called as the work goes on, with the cell that is under way, the updates done and all of its updates.

    Returns:
        The result: `table()` has all rows, `table("best")` each head at its best step size; the module's docstring has
        the columns.

    Raises:
        ValueError: an argument is out of range, a text does not parse, a head cannot start there, the folder is not
            free, or the device is not there.

    Examples:
        >>> from stau_rl import run_plateau
        >>> heads = ["softmax", "s_tau(tau=2)"]
        >>> result = run_plateau(heads, [3], ["each(p=0.01)"], ["exact"], [4.0, 40.0], 500, draws=8, tuning_draws=8)
        >>> result
        PlateauResult(2 methods, 2 cells)
        >>> result.table("best")[["method", "failed", "steps"]]
                    method  failed  steps
        0  softmax(beta=1)     0.0   10.0
        1     s_tau(tau=2)     0.0   23.0
    """
    cells = plan_plateau(methods, arms, starts, gradients, step_sizes, updates, within, draws, tuning_draws, seed)
    return PlateauResult(play_cells(cells, out, resume, device, report))


def play_cells(
    cells: Sequence[Cell],
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    report: Report | None = None,
) -> pd.DataFrame:
    """Rows of cells that are played one after the other, or that the folder has; arguments as in `run_plateau`."""
    place = find_device(device)
    tables = []
    tell: Report = report or (lambda what, done, total: None)
    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(PlateauFolder(out, resume))
        for cell in cells:
            table = folder.read(cell) if folder is not None else None
            if table is None:
                begun = time.perf_counter()

                def tick(done: int, total: int, title: str = cell.title) -> None:
                    tell(title, done, total)

                table = play_cell(cell, place, tick)
                if folder is not None:
                    table = folder.write(cell, table, time.perf_counter() - begun)
            tables.append(table)
            tell(cell.title, 1, 1)
        rows = pd.concat([table.dropna(axis=1, how="all") for table in tables], ignore_index=True)
        rows = rows.reindex(columns=tables[0].columns)
        # As a file has it.
        rows["edge"] = rows["edge"].astype(object).where(rows["edge"].notna(), "")
        if folder is not None:
            folder.finish(rows)
    return rows


def _once(values: Iterable[Value]) -> list[Value]:
    return list(dict.fromkeys(values))
