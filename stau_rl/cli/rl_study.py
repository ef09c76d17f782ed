"""`stau-rl rl-study`: heads in reinforcement learning, each tuned on an equal grid."""

import time
from dataclasses import dataclass
from pathlib import Path

from stau_rl.cli.options import Count, OptionalCount, OptionalPath, Paths, Texts
from stau_rl.cli.resumable import Resumable


@dataclass(frozen=True)
class RLStudy(Resumable):
    """Which head learns best in reinforcement learning, each tuned on an equal grid?

    It compares heads in policy-gradient agents: tuned on seeds of their own, scored on others.

    Without arguments it plays five tasks and four heads, about a thousand runs, for hours of one core: see --plan, and
    --shorter to try it out. The folder holds a file per run, rl_runs.csv and rl_curves.csv; python -m stau_rl.pages.rl
    --publish DIR makes the page docs/rl.md of them.

    Example: stau-rl rl-study --task ppo-cartpole --family "softmax(beta={x})" --family "escort(p={x}) + 1"
    """

    task: Texts = ()
    """ppo-cartpole, ppo-acrobot, a2c-cartpole, reinforce-cartpole or ppo-lunarlander (extra rl); repeat it.
    Default: all."""
    family: Texts = ()
    """A head with {x} for the sharpness that is tuned, and + NUMBER for the initial scores if they are not 0; repeat
    it. The first is the reference. Without {x} there are as many points, all of them learning rates, and no control.
    Default: softmax, s_tau, s_tau + 1, escort + 1."""
    tuning_seeds: Count = 3
    """Seeds per point of the grids."""
    seeds: Count = 10
    """Evaluation seeds."""
    shorter: Count = 1
    """Divides the steps of every task, to try it out."""
    plan: bool = False
    """Only say what would be played, a line per task and family."""
    plugin: Paths = ()
    """A Python file that registers heads of your own; repeat it."""
    processes: OptionalCount = None
    """Runs at a time, of one thread each. Default: one per core."""
    out: OptionalPath = None
    """Folder of the study. Default: runs/rl-study-DATE-TIME."""
    resume: bool = False
    """Keep the runs that --out holds and play the rest. rl_runs.csv and rl_curves.csv are written
    anew and hold only the tasks, families, seeds and lengths that are asked for now; the files of other finished runs
    stay under runs/, for when they are asked for again."""

    work, kept = "study", "finished runs are kept"

    def run(self) -> None:
        """Play the study, print the summary and say where the files are."""
        from stau_rl.plugin.load import load_plugins
        from stau_rl.rl_study.folder import RUNS, RLStudyFolder, unused_runs, unused_text
        from stau_rl.rl_study.plan import estimate, plan
        from stau_rl.rl_study.play import run_rl_study
        from stau_rl.rl_study.tasks import FAMILIES, TASKS, distinct, parse_family, task_named
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.progress import nothing_yet, steps_bar

        self.check_resume()
        load_plugins(self.plugin)
        tasks = tuple(dict.fromkeys(map(task_named, self.task))) or TASKS
        families = distinct(tuple(map(parse_family, self.family)) or FAMILIES)
        if self.processes is not None and self.processes < 1:
            raise ValueError(f"--processes must be at least 1, got {self.processes}")
        runs, minutes = estimate(tasks, families, self.tuning_seeds, self.seeds, self.shorter)
        console = wide_console()

        def say(text: str) -> None:
            console.print(text, highlight=False, markup=False, soft_wrap=True)

        if self.plan:
            say(plan(tasks, families, self.tuning_seeds, self.seeds))
        else:
            out = self.out or Path("runs") / time.strftime("rl-study-%Y%m%d-%H%M%S")
            RLStudyFolder(out, self.resume)
        say(f"at most {runs} runs, about {minutes:.0f} core-minutes")
        if self.plan:
            return
        with steps_bar("runs", runs, nothing_yet(self.out, self.resume)) as bar:
            result = run_rl_study(
                tasks,
                families,
                out=out,
                resume=self.resume,
                processes=self.processes,
                tuning_seeds=self.tuning_seeds,
                seeds=self.seeds,
                shorter=self.shorter,
                plugins=self.plugin,
                report=lambda what, done, total: bar(done),
            )
        say(str(result))
        if unused := unused_runs(out, result.runs, families, self.shorter):
            say(unused_text(out, unused))
        say(f"Rows: {out / RUNS}")
