"""`stau-rl train`: policy-gradient agents with any head."""

import time
from dataclasses import dataclass
from pathlib import Path

from stau_rl.cli.options import Count, OptionalCount, OptionalPath, Paths, Texts
from stau_rl.cli.resumable import Resumable


@dataclass(frozen=True)
class Train(Resumable):
    """How well does REINFORCE, A2C or PPO learn an environment with a head of your choice?

    It trains an agent with any head on any Gymnasium environment with discrete actions, on several seeds.

    Seeds run in parallel processes of one thread each. The folder holds learning curves (CSV and Parquet), a figure,
    and the scores: mean returns of the last evaluation, with sampled and with likeliest actions.

    Learned sharpness: with --set learn=tau the policy's gradient moves the head's tau as well, head_rate times as fast,
    and may sharpen onto whatever is likely early. With --set head_warmup=50000 tau stays at its start for as many
    environment steps. With --set target_entropy=0.5 no gradient moves it: each update moves it by target_entropy_rate
    towards an entropy of that share of log n, n the number of actions, as far as the head's range allows. What is
    learned is printed and kept: columns learned_tau of scores.csv and curves.csv, the latter with the policy's entropy.

    Example: stau-rl train --agent ppo --env CartPole-v1 --head "s_tau(tau=2)" --steps 500000 --seeds 10 --out runs/ppo
    """

    agent: str = "ppo"
    """reinforce, a2c or ppo."""
    env: str = "CartPole-v1"
    """Gymnasium id; "module:id" imports a module first, as in "stau_rl:stau_rl/BernoulliBandit-v0"."""
    head: str = "softmax(beta=1)"
    """The head between the action scores and the policy."""
    steps: Count = 500_000
    """Environment steps per seed."""
    seeds: Count = 1
    """How many seeds."""
    first_seed: int = 0
    """The first of them."""
    set: Texts = ()
    """Another setting of the agent, NAME=VALUE, such as learning_rate=3e-3 or learn=tau; repeat it. An unknown name is
    answered with all names; the guide to training says what each is."""
    plugin: Paths = ()
    """A Python file that registers heads of your own; repeat it."""
    processes: OptionalCount = None
    """Seeds trained at a time. Default: one per core."""
    out: OptionalPath = None
    """Folder of the training. Default: runs/train-DATE-TIME."""
    resume: bool = False
    """Go on with the training in --out; finished points of every curve are kept."""

    work, kept = "training", "what is finished is kept"

    def run(self) -> None:
        """Train, print the scores and say where the files are."""
        from stau_rl.agents.policy_gradient import agent_class
        from stau_rl.plugin.load import load_plugins
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.progress import nothing_yet, steps_bar
        from stau_rl.training.train import train

        self.check_resume()
        load_plugins(self.plugin)
        settings = agent_class(self.agent).Settings.from_texts(
            _pairs(self.set), env=self.env, head=self.head, steps=self.steps
        )
        out = self.out or Path("runs") / time.strftime("train-%Y%m%d-%H%M%S")
        started = time.perf_counter()
        opening = nothing_yet(self.out, self.resume)
        with steps_bar(f"{self.agent} {self.env}", self.steps * self.seeds, opening) as bar:
            result = train(
                self.agent,
                settings,
                self.seeds,
                out,
                first_seed=self.first_seed,
                processes=self.processes,
                resume=self.resume,
                plugins=self.plugin,
                report=lambda what, done, total: bar(done),
            )
        console = wide_console()
        took = time.perf_counter() - started
        for line in (str(result), f"Took {took:.1f} s. Curves, scores and figure: {out}"):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE texts by name.

    Raises:
        ValueError: a text of another form, a name that has an option of its own, or one given twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE, got {text!r}")
        if name in ("env", "head", "steps"):
            raise ValueError(f"--set {name} is --{name}")
        if name in pairs:
            raise ValueError(f"--set {name} is given twice: {pairs[name]!r} and {value.strip()!r}")
        pairs[name] = value.strip()
    return pairs
