"""`stau-rl probe`: recall and silence of attention heads."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stau_rl.cli.options import OptionalCount, OptionalNumber, OptionalPath, Paths, Texts
from stau_rl.cli.resumable import Resumable


@dataclass(frozen=True)
class Probe(Resumable):
    """Does an attention head find the right slot, and is it silent where there is none?

    It trains small attention heads and asks them.

    Every normaliser is trained from the same starts on the same items, several seeds each; the table shows means over
    seeds and their 95 % intervals.

    Example: stau-rl probe --task silence --normaliser sm_fir --normaliser "pn_fir_tau(p=4)" --seeds 5
    """

    size: Literal["small", "full"] = "small"
    """What is trained: small takes minutes on two cores, full minutes on a large GPU."""
    task: Texts = ()
    """A part of the plan such as silence or length, a part on what authors claim (gates, calibrated, "silence share",
    "mqar grid", lssar) or a piece of one ("mqar grid, 64 places 4 pairs"), or a task such as
    "recall(distractor_ratio=0.5)"; repeat it."""
    normaliser: Texts = ()
    """An attention head, such as sm_fir or "power_norm(p=4)"; repeat it. Default: the plan's."""
    seeds: OptionalCount = None
    """How many seeds. Default: 3 for small, 5 for full; a part on claims has its own number."""
    layers: OptionalCount = None
    """Attention layers. Default: the plan's, 1 for most tasks."""
    heads: OptionalCount = None
    """Attention heads per layer, each of width / heads. Default: 1."""
    width: OptionalCount = None
    """Width of the residual stream. Default: 64."""
    steps: OptionalCount = None
    """Optimiser steps. Default: the plan's, 600 for most of small, 1000 for most of full."""
    batch: OptionalCount = None
    """Items per step and model. Default: 128."""
    learning_rate: OptionalNumber = None
    """Peak learning rate; it rises over the first 100 steps and falls along a cosine. Default: 0.002."""
    items: OptionalCount = None
    """Test items per seed. Default: the plan's, 1024 for most of small, 4096 for most of full."""
    device: str = "auto"
    """cpu, cuda, or auto: a GPU if there is one."""
    processes: OptionalCount = None
    """Groups of models trained at a time, each in a process of one thread. Default: on the CPU the cores, fewer for
    little work, on a GPU half of them; at most 8."""
    plugin: Paths = ()
    """A Python file that registers heads or tasks of your own; repeat it."""
    out: OptionalPath = None
    """Folder of the probe. Default: runs/probe-DATE-TIME."""
    resume: bool = False
    """Keep the groups of models that --out holds already and train the rest."""
    details: bool = False
    """Print every metric, its median and worst seed, in place of the overview."""
    dry_run: bool = False
    """Train nothing: print what would be trained, and the seconds that it would take on an H200."""
    explain: bool = False
    """Say what the columns mean, as on a terminal the first time."""

    work, kept = "probe", "finished groups are kept"

    def run(self) -> None:
        """Train, print the tables and say where the files are."""
        from stau_rl.plugin.load import load_plugins
        from stau_rl.probe.choose import choose
        from stau_rl.probe.cost import estimate
        from stau_rl.probe.run import count_groups, default_processes, run_settings
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.glossary import to_explain
        from stau_rl.terminal.progress import nothing_yet, progress_bar

        self.check_resume()
        load_plugins(self.plugin)
        settings = choose(
            self.size,
            self.task,
            self.normaliser,
            self.seeds,
            self.steps,
            self.items,
            self.batch,
            self.learning_rate,
            self.width,
            self.layers,
            self.heads,
        )
        total = count_groups(settings, self.device)
        processes = default_processes(self.device, settings) if self.processes is None else self.processes
        if self.dry_run:
            wide_console().print(estimate(settings, processes), highlight=False, markup=False, soft_wrap=True)
            return
        started = time.perf_counter()
        out = self.out or Path("runs") / time.strftime("probe-%Y%m%d-%H%M%S")
        with progress_bar(total, nothing_yet(self.out, self.resume)) as report:
            result = run_settings(settings, self.device, out, self.resume, report, self.plugin, processes)
        console = wide_console()
        console.print(result.render(self.details, to_explain("probe", self.explain)))
        took = time.perf_counter() - started
        line = f"{total} groups of models in {took:.0f} s. All rows: {out / 'probe.csv'}; curves and figures beside it."
        console.print(line, highlight=False, markup=False, soft_wrap=True)
