"""`stau-rl study`: families of policies, compared fairly."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stau_rl.cli.options import Count, OptionalPath, Paths, Texts, check_figures
from stau_rl.cli.resumable import Resumable


@dataclass(frozen=True)
class Study(Resumable):
    """What is left of a difference between heads where both are equally sharp, or each is at its best?

    It compares families of policies raw, equally sharp, and each at its own best parameter.

    A family is "score | head"; the head's sharpness is tuned on instances of another seed, with equal grids for all.
    "centred_ucb | softmax(beta={x})" tunes whatever stands for {x}. The first family is the reference. Without
    arguments it asks what is left of "s^tau has 35 % less regret than softmax".

    Example: stau-rl study --family "ucb | softmax" --family "ucb | escort" --arms "gaussian(k=10)" --sweep c
    """

    family: Texts = ()
    """A family; repeat it. Default: softmax(beta=1) and s_tau(tau=5) on centred_ucb(c=0.25)."""
    arms: Texts = ()
    """Arms; repeat it. Default: bernoulli(k=10) and gaussian(k=10)."""
    horizon: Count = 10_000
    """Steps per instance."""
    instances: Count = 2_000
    """Evaluated instances per policy; fewer where the size does not allow as many."""
    seed: int = 0
    """The study's seed, in [0, 2^62); tuning draws from another one, derived from it."""
    size: Literal["small", "full"] = "small"
    """Points of the grids and work per policy."""
    grid: Texts = ()
    """Values of {x}, or of the head's sharpness, to try, such as 0.1,0.3,1,3; "2=0.1,1" is for the second family
    alone, whose text may stand for its number; repeat it. Default: log-spaced slopes, as many for all."""
    sweep: Texts = ()
    """An axis to sweep: c, k, horizon, offset, scale, centring, or none; repeat it. Default: all that apply."""
    engine: str = "auto"
    """What plays the policies: auto, triton, numba or torch, or several such as triton,numba, the preferred first."""
    device: str = "auto"
    """Where: cpu, cuda, cuda:N, or auto."""
    plugin: Paths = ()
    """A Python file that registers heads of your own; repeat it."""
    out: OptionalPath = None
    """Folder of the study. Default: runs/study-DATE-TIME."""
    resume: bool = False
    """Keep the settings that --out holds already and play the rest; its base settings must be these."""
    figure: Texts = ()
    """Also write the figure as svg or pdf into the folder; repeat it."""
    explain: bool = False
    """Say what the columns mean, as on a terminal the first time."""

    work, kept = "study", "finished settings are kept"

    def run(self) -> None:
        """Play the study, print the table and say where the files are."""
        from stau_rl.plugin.load import load_plugins
        from stau_rl.study.grids import read_grids
        from stau_rl.study.plan import plan_study
        from stau_rl.study.play import ARMS, FAMILIES, play_settings
        from stau_rl.study.report import TABLE_WIDTH, render
        from stau_rl.study.result import StudyResult
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.glossary import to_explain
        from stau_rl.terminal.progress import nothing_yet, progress_bar

        self.check_resume()
        check_figures(self.figure)
        if "none" in self.sweep and set(self.sweep) != {"none"}:
            others = ", ".join(name for name in self.sweep if name != "none")
            raise ValueError(
                f"--sweep none leaves out every sweep, but {others} was asked for as well; drop one of them"
            )
        load_plugins(self.plugin)
        started = time.perf_counter()
        sweeps = tuple(name for name in self.sweep if name != "none") if self.sweep else None
        plan = plan_study(
            self.family or FAMILIES,
            self.arms or ARMS,
            self.horizon,
            self.instances,
            self.seed,
            self.size,
            sweeps,
            read_grids(self.grid),
        )
        settings = plan.settings
        out = self.out or Path("runs") / time.strftime("study-%Y%m%d-%H%M%S")
        with progress_bar(len(settings), nothing_yet(self.out, self.resume)) as report:
            rows = play_settings(settings, out, self.resume, report, self.engine, self.device)
        result = StudyResult(rows, tuple(plan.notes))
        figure = out / "curves.png"
        if figure.exists():
            result.save_figure(*(out / f"curves.{kind}" for kind in self.figure))
        console = wide_console(TABLE_WIDTH)
        console.print(render(result.table(), to_explain("study", self.explain)))
        for note in result.notes:
            console.print(f"Left out: {note}.", highlight=False, markup=False, soft_wrap=True)
        took = time.perf_counter() - started
        played = f"{len(settings)} setting{'s' if len(settings) > 1 else ''}"
        curves = f"curves: {figure}" if figure.exists() else "no curves, as nothing was tuned"
        line = f"{played} in {took:.0f} s. All rows: {out / 'study.csv'}, {curves}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
