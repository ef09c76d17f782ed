"""Fair comparison of policy families: raw, equally sharp, each at its own best, and over what moves the answer."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd

from stau_rl.machine.report import Report
from stau_rl.statistics.means import holm
from stau_rl.study.compare import play_setting
from stau_rl.study.folder import StudyFolder, rounded
from stau_rl.study.grids import Grid
from stau_rl.study.plan import plan_study
from stau_rl.study.result import StudyResult
from stau_rl.study.setting import Setting

FAMILIES = ("centred_ucb(c=0.25) | softmax(beta=1)", "centred_ucb(c=0.25) | s_tau(tau=5)")
ARMS = ("bernoulli(k=10)", "gaussian(k=10)")


def run_study(
    families: Sequence[str] = FAMILIES,
    arms: Sequence[str] = ARMS,
    horizon: int = 10_000,
    instances: int = 2_000,
    seed: int = 0,
    size: str = "small",
    sweeps: Sequence[str] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    engine: str = "auto",
    device: str = "auto",
    grid: Grid | None = None,
) -> StudyResult:
    """Compare families of policies fairly.

    Each family is tuned on a grid of equal size, on instances of its own seed, then all are compared on fresh instances
    with the same luck. `stau_rl.study.compare` says what the comparisons are, `stau_rl.study.plan` what is swept.

    Args:
        families: two or more texts, the reference first: `score | head`, a text with `{x}`, or a named policy.
        arms: texts of the arms.
        horizon: steps per instance.
        instances: evaluated instances per policy, at most.
        seed: the study's, in [0, 2^62).
        size: `small` or `full`.
        sweeps: any of `c`, `k`, `horizon`, `offset`, `scale`, `centring`; empty for the base settings alone. None takes
            all that apply; one that is named must apply to some of the arms.
        out: a folder to fill; settings that it holds already are not played again.
        resume: `out` may hold some, of a study with the same base settings.
        report: called as the work goes on, with the setting that is under way, how much of its work is done and how
            much there is.
        engine: `triton`, `numba`, `torch` or `auto`, as in `run_regret`, or several such as `triton,numba`, of which
            each policy takes the first that runs it.
        device: `cpu`, `cuda`, `cuda:N` or `auto`.
        grid: values to try, of what stands for `{x}` or of the head's sharpness, in place of log-spaced slopes: a list
            for all families, or a mapping from a family's text, or its number from 1, to its own list; `all` are those
            that are not named. Grids of different size are said below the table.

    Returns:
        The result: `table()` has a row per comparison and setting, with the columns of `stau_rl.study.compare` and
        `p_holm`; `notes` say which sweeps were left out, and why.

    Raises:
        ValueError: an argument is out of range, a text does not parse, or the folder is not free.

    Examples:
        >>> from stau_rl import run_study
        >>> families = ["ucb | softmax", "ucb | s_tau(tau=5)"]
        >>> result = run_study(families, ["bernoulli(means=[0.9, 0.1])"], 50, 40, sweeps=())
        >>> result
        StudyResult(2 families, 1 setting)
        >>> result.table("raw")[["family", "instances"]]
                          family  instances
        0  ucb | softmax(beta=1)         40
        1     ucb | s_tau(tau=5)         40
    """
    plan = plan_study(families, arms, horizon, instances, seed, size, sweeps, grid)
    return StudyResult(play_settings(plan.settings, out, resume, report, engine, device), tuple(plan.notes))


def play_settings(
    settings: Sequence[Setting],
    out: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
    engine: str = "auto",
    device: str = "auto",
) -> pd.DataFrame:
    """Rows of settings that are played one after the other, or that the folder has; arguments as in `run_study`."""
    tables: list[pd.DataFrame] = []
    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(StudyFolder(out, settings, engine, resume))
        for setting in settings:
            name = setting.value or setting.arms
            if report is not None:
                report(name, 0, 1)
            table = folder.read(setting) if folder is not None else None
            if table is None:
                begun = time.perf_counter()

                def tick(done: int, total: int, name: str = name) -> None:
                    if report is not None:
                        report(name, done, total)

                table = play_setting(setting, tick, engine, device)
                seconds = time.perf_counter() - begun
                table = rounded(table) if folder is None else folder.write(setting, table, seconds)
            tables.append(table)
            if report is not None:
                report(name, 1, 1)
        rows = pd.concat([table.dropna(axis=1, how="all") for table in tables], ignore_index=True)
        rows = with_holm(rows.reindex(columns=tables[0].columns))
        if folder is not None:
            folder.finish(rows)
    return rows


def with_holm(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a column `p_holm`: p-values of one kind of comparison, adjusted over all settings together."""
    adjusted = np.full(len(rows), np.nan)
    for kind in rows["comparison"].unique():
        mine = (rows["comparison"] == kind).to_numpy()
        adjusted[mine] = holm(rows.loc[mine, "p_value"].to_numpy(dtype=np.float64))
    return rows.assign(p_holm=adjusted)
