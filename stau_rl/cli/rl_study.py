"""`stau-rl rl-study`: heads in reinforcement learning, each tuned on an equal grid."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stau_rl.cli.named_values import import_from_here, read_env_args, read_pairs
from stau_rl.cli.options import Count, OptionalCount, OptionalPath, OptionalText, Paths, Texts
from stau_rl.cli.resumable import Resumable

if TYPE_CHECKING:
    from stau_rl.rl_study.tasks import Task


@dataclass(frozen=True)
class RLStudy(Resumable):
    """Which head learns best in reinforcement learning, each tuned on an equal grid?

    It compares heads in policy-gradient agents: tuned on seeds of their own, scored on others.

    Without arguments it plays five tasks and four heads, about a thousand runs, for hours of one core: see --plan, and
    --shorter to try it out. The folder holds a file per run, rl_runs.csv and rl_curves.csv; python -m stau_rl.pages.rl
    --publish DIR makes the page docs/rl.md of them.

    With --env it is played on an environment of yours instead, by PPO unless --agent says otherwise; the rows have its
    name. Each grid of learning rates is then the one of that agent on CartPole, unless --rates says otherwise.

    Example: stau-rl rl-study --task ppo-cartpole --family "softmax(beta={x})" --family "escort(p={x}) + 1"
    """

    task: Texts = ()
    """ppo-cartpole, ppo-acrobot, a2c-cartpole, reinforce-cartpole or ppo-lunarlander (extra rl); repeat it.
    Default: all."""
    env: OptionalText = None
    """A Gymnasium id or "module:id", a task of your own beside those of --task; alone if there are none."""
    env_arg: Texts = ()
    """With --env: an argument of the environment, NAME=VALUE; repeat it."""
    agent: Texts = ()
    """With --env: reinforce, a2c or ppo; repeat it for a task each. Default: ppo."""
    steps: OptionalCount = None
    """With --env: environment steps of a run. Default: 200 000."""
    rates: OptionalText = None
    """With --env: smallest and largest learning rate of the grid, as in 3e-4,3e-3."""
    set: Texts = ()
    """With --env: another setting of the agent, NAME=VALUE; repeat it. stau-rl train --settings lists them."""
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
    explain: bool = False
    """Say what the columns mean, as on a terminal the first time."""

    work, kept = "study", "finished runs are kept"

    def run(self) -> None:
        """Play the study, print the summary and say where the files are."""
        from stau_rl.plugin.load import load_plugins
        from stau_rl.rl_study.folder import RUNS, RLStudyFolder, unused_runs, unused_text
        from stau_rl.rl_study.plan import estimate, plan
        from stau_rl.rl_study.play import run_rl_study
        from stau_rl.rl_study.table import render
        from stau_rl.rl_study.tasks import FAMILIES, TASKS, distinct, parse_family, task_named
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.glossary import to_explain
        from stau_rl.terminal.progress import nothing_yet, steps_bar

        self.check_resume()
        import_from_here()
        load_plugins(self.plugin)
        tasks = tuple(dict.fromkeys((*map(task_named, self.task), *self._own_tasks()))) or TASKS
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
        guess = ", if the environment is as fast as CartPole" if self.env else ""
        say(f"at most {runs} runs, about {minutes:.0f} core-minutes{guess}")
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
        console.print(render(result, to_explain("rl-study", self.explain)))
        if unused := unused_runs(out, result.runs, families, self.shorter, tasks):
            say(unused_text(out, unused))
        say(f"Rows: {out / RUNS}")

    def _own_tasks(self) -> "list[Task]":
        """A task per agent on --env; none without it.

        Raises:
            ValueError: an option that needs --env stands without it, or is none of its kind.
        """
        from stau_rl.agents.policy_gradient import agent_class
        from stau_rl.rl_study.tasks import OWN_STEPS, own_task

        if self.env is None:
            for name in ("env_arg", "agent", "steps", "rates", "set"):
                if getattr(self, name):
                    raise ValueError(f"--{name.replace('_', '-')} needs --env, the environment of your own")
            return []
        args, pairs, rates = read_env_args(self.env_arg), read_pairs(self.set), _rates(self.rates)
        steps = OWN_STEPS if self.steps is None else self.steps
        return [
            own_task(self.env, agent, steps, rates, args, **agent_class(agent).Settings.read_texts(pairs))
            for agent in dict.fromkeys(self.agent or ("ppo",))
        ]


def _rates(text: str | None) -> tuple[float, float] | None:
    """Two learning rates, from LOW,HIGH."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"--rates takes LOW,HIGH, two numbers, got {text!r}") from None
    return low, high
