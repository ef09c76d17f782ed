"""`stau-rl regret`: the bandit benchmark."""

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stau_rl.cli.options import (
    Counts,
    OptionalCount,
    OptionalPath,
    OptionalSeed,
    OptionalText,
    Paths,
    Texts,
    check_figures,
)

if TYPE_CHECKING:
    from stau_rl.envs.arms import Arms
    from stau_rl.regret.result import RegretResult


HEADLINE_POLICIES = (
    "centred_ucb | softmax(beta=1)",
    "centred_ucb | s_tau(tau=5)",
    "centred_ucb | softmax(beta=3.607)",
    "centred_ucb | softmax(beta=64)",
    "centred_ucb | s_tau(tau=88.7)",
    "ucb | s_tau(tau=5)",
    "random",
    "ucb1",
    "thompson",
)


@dataclass(frozen=True)
class Usual:
    """What is played where nothing else is said: the headline experiment."""

    arms: str = "bernoulli(k=10)"
    policies: tuple[str, ...] = HEADLINE_POLICIES
    horizon: int = 10_000
    instances: int = 1_000


@dataclass(frozen=True)
class Regret:
    """Which bandit policy has less regret, and is it its head's shape or only a sharper temperature?

    It plays policies on the same arms with the same luck and compares their cumulative pseudo-regret.

    Without arguments it runs the headline experiment: does s^tau have less regret than softmax on mean-centred UCB
    scores, and what is left of it against a softmax that is equally sharp?

    Example: stau-rl regret --arms "gaussian(k=10)" --policy "ucb1" --policy "ucb | softmax(beta=8)" --horizon 1000
    """

    arms: OptionalText = None
    """Arms, by default bernoulli(k=10); or bernoulli(means=[.9,.8]), gaussian(means=[1,0], sigma=1), gaussian(k=10)."""
    rewards: OptionalPath = None
    """CSV or Parquet file of real observations, a row each; instead of --arms."""
    arm: OptionalText = None
    """With --rewards: the column that names the arm."""
    reward: OptionalText = None
    """With --rewards: the column that holds the reward."""
    problem: OptionalText = None
    """A published experiment by name, see stau-rl problems: its arms, policies, steps and runs, unless others are
    given."""
    policy: Texts = ()
    """A policy, "score | head" (score: mean, ucb, centred_ucb or reward_centred_ucb; head: see stau-rl heads), a
    name such as ucb1 or thompson, or an index, which is maximised (ucb1_tuned, ucb_v, moss, moss_anytime, kl_ucb,
    kl_ucb_plus, imed, bayes_ucb); repeat it. Default: the headline's nine policies.
    Parameters of heads, c and eps may be expressions of t = 1, 2, ...: "ucb(c=1/sqrt(t)) | softmax(beta=t)"."""
    plugin: Paths = ()
    """A Python file with heads of your own; repeat it. It is run, so name only files that you trust."""
    horizon: OptionalCount = None
    """Steps per instance. Default: 10 000, or those of the problem."""
    instances: OptionalCount = None
    """Independent replicates. Default: 1 000, or those of the problem."""
    checkpoints: Counts = ()
    """Steps at which regrets are kept. Default: about eight per decade, and the last."""
    seed: OptionalSeed = None
    """Seed of every random draw, in [0, 2^64). Default: 0."""
    baseline: OptionalText = None
    """Policy that differences are taken from. Default: the first."""
    engine: str = "auto"
    """triton (fused, GPU), numba (compiled, CPU), torch (reference, any device), or auto: the first that runs."""
    device: str = "auto"
    """cpu, cuda, cuda:N or auto."""
    out: OptionalPath = None
    """Run directory to make. Default: runs/regret-DATE-TIME-PROCESS."""
    resume: bool = False
    """Continue the run in --out, or show it if it is finished; what is not given is read from the folder."""
    figure: Texts = ()
    """Also write the figure as svg or pdf into the run directory; repeat it."""
    histories: OptionalCount = None
    """Also write every step of so many first instances, histories.parquet in the run directory."""

    explain: bool = False
    """Say what the columns mean, as on a terminal the first time."""

    after_stop = ""

    def run(self) -> None:
        """Run the benchmark, print the table and say where the files are."""
        from stau_rl.machine.phases import Phases, sentence, work_age
        from stau_rl.machine.wake import uncollected, wake_gpu

        phases = Phases(work_age())
        wake_gpu(self.device, self.engine)
        with uncollected():
            from stau_rl.machine.ranks import current_ranks
            from stau_rl.plugin.load import load_plugins
            from stau_rl.regret.problems import problem
            from stau_rl.regret.report import render
            from stau_rl.regret.rivals import best_against_best, told
            from stau_rl.regret.run import run_regret
            from stau_rl.terminal.console import wide_console
            from stau_rl.terminal.glossary import to_explain
            from stau_rl.terminal.progress import nothing_yet, progress_bar

        published = None if self.problem is None else problem(self.problem)
        if self.resume and self.out is None:
            raise ValueError("--resume needs --out DIR, the directory of the run to continue")
        check_figures(self.figure)
        kept = kept_arguments(self.out) if self.resume and self.out is not None and published is None else {}
        usual = published or Usual()
        policies = list(self.policy or kept.get("policies", usual.policies))
        horizon, instances, seed = (
            wanted if given is None else given
            for given, wanted in (
                (self.horizon, kept.get("horizon", usual.horizon)),
                (self.instances, kept.get("instances", usual.instances)),
                (self.seed, kept.get("seed", 0)),
            )
        )
        # Those of another horizon would not do.
        checkpoints = self.checkpoints or (kept.get("checkpoints") if self.horizon is None else None)
        ranks = current_ranks()
        ranks.together(partial(load_plugins, self.plugin))
        if self.out == Path():
            raise ValueError("--out must name a directory, got an empty name or the current directory")
        default = Path("runs") / time.strftime(f"regret-%Y%m%d-%H%M%S-{os.getpid()}")
        out = self.out or ranks.by_first(lambda: default)
        found: list[str | Arms] = []
        ranks.together(lambda: found.append(self._arms(kept.get("arms", usual.arms))))
        arms = found[0]
        console = wide_console()
        try:
            with progress_bar(len(policies), nothing_yet(self.out, self.resume)) as report:
                result = run_regret(
                    arms,
                    policies,
                    horizon,
                    instances,
                    seed,
                    checkpoints or None,
                    baseline=self.baseline or kept.get("baseline"),
                    engine=self.engine,
                    device=self.device,
                    out=out,
                    resume=self.resume,
                    report=report,
                    phases=phases,
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"; what is finished is kept: repeat the command with --out {out} --resume to go on"
            ) from None
        if not ranks.first:
            return
        self._also_written(result, arms, policies, out)
        spec = result.spec
        if "means" in spec:
            labels = zip(spec["arm_labels"], spec["means"], strict=True)
            means = ", ".join(f"{label}: {mean:.4g}" for label, mean in labels)
            console.print(f"{len(spec['means'])} arms, mean reward of each: {means}", highlight=False, markup=False)
        console.print(render(result, to_explain("regret", self.explain)))
        if published and published.rivals and not self.policy:
            lines = [
                f"{published.title} Source: {published.source}.",
                *told(best_against_best(result, published.rivals)),
            ]
            console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
        took, timing = sum(phases.seconds().values()), result.timing
        last = [f"Engine: {engines_used(spec)}. Took {took:.1f} s. Table, figure and data: {out}"]
        if "phases" in timing:
            last.append(f"Time of the run: {sentence(timing['phases'])}.")
        if "peak_gpu_memory_mib" in timing:
            last.append(f"Peak GPU memory: {timing['peak_gpu_memory_mib'] / 1024.0:.2f} GiB.")
        if "engine_note" in spec:
            last.append(f"{spec['engine_note'][0].upper()}{spec['engine_note'][1:]}.")
        console.print("\n".join(last), highlight=False, markup=False, soft_wrap=True)

    def _also_written(self, result: "RegretResult", arms: "str | Arms", policies: list[str], out: Path) -> None:
        """Write what was asked for beside the usual files."""
        result.save_figure(*(out / f"regret.{kind}" for kind in self.figure))
        if self.histories is not None:
            from stau_rl.files.whole import whole_file
            from stau_rl.regret.histories import histories

            spec = result.spec
            wanted = min(self.histories, spec["instances"])
            table = histories(arms, policies, spec["horizon"], wanted, spec["seed"], self.engine, self.device)
            with whole_file(out / "histories.parquet") as temporary:
                table.to_parquet(temporary, index=False)

    def _arms(self, usual: str) -> "str | Arms":
        from stau_rl.envs.arms import EmpiricalArms

        if self.rewards is None:
            if self.arm is not None or self.reward is not None:
                raise ValueError("--arm and --reward name columns of a file; give the file with --rewards FILE")
            return usual if self.arms is None else self.arms
        if self.arms is not None:
            raise ValueError("--rewards brings its own arms and does not go with --arms")
        if self.arm is None or self.reward is None:
            raise ValueError("--rewards FILE needs --arm COLUMN and --reward COLUMN")
        return EmpiricalArms(str(self.rewards), self.arm, self.reward)


def kept_arguments(folder: Path) -> dict[str, Any]:
    """What a run directory says its run was begun with; nothing where it has no spec that can be read."""
    import json

    from stau_rl.regret.files import SPEC

    try:
        spec = json.loads((folder / SPEC).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    names = ("arms", "policies", "horizon", "instances", "seed", "checkpoints", "baseline")
    return {name: spec[name] for name in names if name in spec} if isinstance(spec, dict) else {}


def engines_used(spec: dict[str, Any]) -> str:
    """The engine of a run; where policies ran on several, the policies of all but the most used one."""
    by_engine: dict[str, list[str]] = {}
    for engine, policy in zip(spec["engines"], spec["policies"], strict=True):
        by_engine.setdefault(engine, []).append(policy)
    most, *others = sorted(by_engine, key=lambda engine: -len(by_engine[engine]))
    return "; ".join([most, *(f"{engine} for {', '.join(by_engine[engine])}" for engine in others)])
