"""One cell of the plateau benchmark: a problem and a method, tuned on some draws of the rewards, measured on others."""

import contextlib
import hashlib
import json
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from stau_rl.kernels.purposes import purpose_seed
from stau_rl.machine.stamp import current_commit
from stau_rl.plateau.ascent import Problem, ascend
from stau_rl.plateau.methods import parse_method
from stau_rl.plateau.start import parse_start
from stau_rl.statistics.distribution import quantile_interval
from stau_rl.statistics.means import wilson_interval

FORMAT = 1
POINTS_PER_DECADE = 8
BAND = (0.1, 0.5, 0.9)
COLUMNS = (
    "kind", "arms", "start", "gradient", "method", "step_size", "edge", "draws", "updates", "within",
    "failed", "failed_low", "failed_high", "at_start", "outside_at_end", "steps", "steps_low", "steps_high",
    "step", "gap_q10", "gap_q50", "gap_q90", "seed", "setting", "commit", "versions", "device",
)  # fmt: skip
"""Columns of a cell's rows; `stau_rl.plateau.play` says what they hold."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured; two equal cells give equal rows.

    Attributes:
        arms: number of arms.
        start: text of the initial probabilities.
        gradient: a key of `stau_rl.plateau.ascent.GRADIENTS`.
        method: text of the method.
        step_sizes: the grid, ascending; the same for every method.
        updates: updates per policy.
        within: distance from the best reward that counts as there.
        draws: draws of the rewards for the measurement.
        tuning_draws: draws, others, for the choice of the step size.
        seed: the benchmark's seed.
        content: digest of a plug-in head's code.
    """

    arms: int
    start: str
    gradient: str
    method: str
    step_sizes: tuple[float, ...]
    updates: int
    within: float
    draws: int
    tuning_draws: int
    seed: int
    content: str = ""

    @property
    def identity(self) -> str:
        """Hexadecimal digest of everything that decides the numbers."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """What it is, for progress and file names."""
        return f"K={self.arms} {self.start} {self.gradient} {self.method}"

    @property
    def file_name(self) -> str:
        """Name of the file that holds its rows."""
        shown = "".join(letter if letter.isalnum() or letter in ".=" else "-" for letter in self.title)
        return f"{shown[:80]}-{self.identity}.csv"

    def problem(self, draws: int, seed: int) -> Problem:
        """The problem, for some draws."""
        return Problem(self.arms, parse_start(self.start), self.gradient, self.updates, self.within, draws, seed)


def play_cell(cell: Cell, device: str = "cpu", report: Callable[[int, int], None] | None = None) -> pd.DataFrame:
    """Tune and measure.

    Every step size of the grid is tried on the tuning draws (rows of kind `grid`). The best one has the least share of
    failures and, among equals, the least mean of steps, a failure counting as one more than all updates. It is played
    on the other draws: a row of kind `best`, and `curve` rows with quantiles over the draws of the distance to the best
    reward, at log-spaced numbers of updates.

    Args:
        cell: what is measured.
        device: `cpu`, `cuda` or `cuda:N`.
        report: called with the updates done and all of them, those of the tuning and of the measurement together.

    Returns:
        A table with `COLUMNS`.

    Raises:
        ValueError: the method cannot start there.
    """
    tell = report or (lambda done, total: None)
    work = 2 * cell.updates
    method = parse_method(cell.method)
    tuning = ascend(
        cell.problem(cell.tuning_draws, purpose_seed(cell.seed, "tuning")),
        method,
        cell.step_sizes,
        device=device,
        report=lambda done: tell(done, work),
    ).steps.numpy()
    best = best_place(tuning, cell.updates)
    places = checkpoints(cell.updates)
    played = ascend(
        cell.problem(cell.draws, purpose_seed(cell.seed, "evaluation")),
        method,
        cell.step_sizes[best : best + 1],
        places,
        device=device,
        report=lambda done: tell(cell.updates + done, work),
    )
    gaps = played.curve[:, 0].numpy()
    shared = {
        "arms": cell.arms, "start": cell.start, "gradient": cell.gradient, "method": cell.method,
        "updates": cell.updates, "within": cell.within, "seed": cell.seed, "setting": cell.identity,
        "commit": current_commit(), "versions": versions(), "device": device_name(device),
    }  # fmt: skip
    edge = "low" if best == 0 else "high" if best == len(cell.step_sizes) - 1 else ""
    rows: list[dict[str, Any]] = [
        {"kind": "grid", "step_size": size, **summary(steps)}
        for size, steps in zip(cell.step_sizes, tuning, strict=True)
    ]
    size = cell.step_sizes[best]
    outside = float((gaps[-1] > cell.within).mean())
    rows.append({"kind": "best", "step_size": size, "edge": edge, "outside_at_end": outside})
    rows[-1] |= summary(played.steps[0].numpy())
    for place, row in zip(places, np.quantile(gaps, BAND, axis=1).T, strict=True):
        low, middle, high = map(float, row)
        rows.append({"kind": "curve", "step_size": size, "step": place, "draws": cell.draws})
        rows[-1] |= {"gap_q10": low, "gap_q50": middle, "gap_q90": high}
    return pd.DataFrame([shared | row for row in rows]).reindex(columns=list(COLUMNS))


def best_place(steps: NDArray[np.float64], updates: int) -> int:
    """Which step size is best: steps [step sizes, draws], inf for a failure. The smaller one of equals."""
    failed = np.isinf(steps).mean(axis=1)
    mean = np.minimum(steps, updates + 1).mean(axis=1)
    return int(np.lexsort((mean, failed))[0])


def summary(steps: NDArray[np.float64]) -> dict[str, float]:
    """Share of failures with its Wilson interval, share there at the start, median of steps with its interval.

    The median's interval comes from order statistics; it and the median are inf where half of the draws fail.
    """
    failures = int(np.isinf(steps).sum())
    low, high = wilson_interval(failures, steps.size)
    median_low, median_high = quantile_interval(steps, 0.5)
    # The order statistic itself: the mean of a number and inf would be inf.
    median = float(np.sort(steps)[(steps.size - 1) // 2])
    return {
        "draws": steps.size, "failed": failures / steps.size, "failed_low": low, "failed_high": high,
        "at_start": float((steps == 0).mean()), "steps": median, "steps_low": median_low, "steps_high": median_high,
    }  # fmt: skip


def checkpoints(updates: int) -> list[int]:
    """0, 1 and log-spaced numbers up to the last update."""
    count = max(2, round(POINTS_PER_DECADE * math.log10(updates)) + 1) if updates > 1 else 1
    return sorted({0, updates, *(int(place) for place in np.rint(np.geomspace(1, updates, count)))})


def versions() -> str:
    """Versions that decide rounding."""
    return f"python={platform.python_version()} torch={version('torch')}"


def device_name(device: str) -> str:
    """The processor's name, or at least its architecture."""
    if device != "cpu":
        return str(torch.cuda.get_device_name(device))
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return f"{platform.machine()} CPU"


def same_grid(cells: Sequence[Cell]) -> bool:
    """Whether all cells try the same step sizes, on as many draws, for as many updates."""
    return len({(cell.step_sizes, cell.tuning_draws, cell.updates) for cell in cells}) <= 1
