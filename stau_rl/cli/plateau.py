"""`stau-rl plateau`: how long policy gradient takes to leave a suboptimal arm."""

import time
from dataclasses import dataclass
from pathlib import Path

from stau_rl.cli.options import Count, Numbers, OptionalPath, Paths, RepeatedCounts, Texts
from stau_rl.cli.resumable import Resumable


@dataclass(frozen=True)
class Plateau(Resumable):
    """How long does policy gradient stay at a suboptimal arm under each head?

    It measures how many updates the policy needs to leave, and how often it does not.

    One state, K arms, most of the initial probability on the second best. Every head starts from the same
    probabilities and is measured at the best of the same step sizes, chosen on other draws of the rewards. A head is
    text: "softmax(beta=1)"; "fixed(escort(p=2), top=1)" with another largest initial score than 10;
    "learned(s_tau(tau=2))" with tau learned by the same gradient, or with a remedy, "learned(s_tau(tau=2), rate=0.01)",
    freeze=2000 (updates) or target=0.05 (entropy as a share of log K).

    Example: stau-rl plateau --arms 10 --start "each(p=0.01)" --gradient exact --head softmax --head "s_tau(tau=3)"
    """

    head: Texts = ()
    """A head; repeat it. Default: softmax, escort, s_tau fixed, learned, and learned with each remedy."""
    arms: RepeatedCounts = ()
    """A number of arms; repeat it. Default: 10 and 100."""
    start: Texts = ()
    """uniform, each(p=0.01) (every arm but the second best has p) or shared(p=0.01) (the best has p, those below the
    second best p together); repeat it. Default: uniform, and both at 0.01 and 0.001."""
    gradient: Texts = ()
    """exact, sampled (one pull per update, baseline V) or sampled_no_baseline; repeat it. Default: the first two."""
    step_size: Numbers = ()
    """A step size of the grid, for all heads; repeat it. Default: eleven, 0.4 times powers of the root of 10."""
    updates: Count = 20_000
    """Updates per policy."""
    within: float = 0.01
    """Distance from the best reward that counts as there."""
    draws: Count = 256
    """Draws of the rewards that heads are measured on."""
    tuning_draws: Count = 64
    """Other draws, on which each head's step size is chosen."""
    seed: int = 0
    """The benchmark's seed, in [0, 2^62); tuning draws from another one, derived from it."""
    device: str = "auto"
    """cpu, cuda, cuda:N, or auto: a GPU where there is one."""
    plugin: Paths = ()
    """A Python file that registers heads of your own; repeat it. It is run, so name only files that you trust."""
    out: OptionalPath = None
    """Folder of the benchmark. Default: runs/plateau-DATE-TIME."""
    resume: bool = False
    """Keep the cells that --out holds already and play the rest."""
    explain: bool = False
    """Say what the columns mean, as on a terminal the first time."""

    work, kept = "benchmark", "finished cells are kept"

    def run(self) -> None:
        """Play the benchmark, print the table and say where the files are."""
        from stau_rl.plateau.folder import CURVES, FIGURE, TABLE
        from stau_rl.plateau.methods import DEFAULT_METHODS
        from stau_rl.plateau.play import ARMS, DEFAULT_GRADIENTS, STEP_SIZES, plan_plateau, play_cells
        from stau_rl.plateau.report import render, width
        from stau_rl.plateau.result import PlateauResult
        from stau_rl.plugin.load import load_plugins
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.glossary import to_explain
        from stau_rl.terminal.progress import nothing_yet, progress_bar

        self.check_resume()
        load_plugins(self.plugin)
        cells = plan_plateau(
            self.head or DEFAULT_METHODS,
            self.arms or ARMS,
            self.start or None,
            self.gradient or DEFAULT_GRADIENTS,
            self.step_size or STEP_SIZES,
            self.updates,
            self.within,
            self.draws,
            self.tuning_draws,
            self.seed,
        )
        out = self.out or Path("runs") / time.strftime("plateau-%Y%m%d-%H%M%S")
        started = time.perf_counter()
        with progress_bar(len(cells), nothing_yet(self.out, self.resume)) as report:
            result = PlateauResult(play_cells(cells, out, self.resume, self.device, report))
        rows = result.table()
        console = wide_console(width(rows))
        console.print(render(rows, to_explain("plateau", self.explain)))
        files = f"Rows: {out / TABLE}, curves: {out / CURVES}"
        try:
            result.save(out)
        except ModuleNotFoundError as error:
            files += f", no figure ({error})"
        else:
            files += f", figure: {out / FIGURE}"
        line = f"{len(cells)} cells in {time.perf_counter() - started:.0f} s. {files}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
