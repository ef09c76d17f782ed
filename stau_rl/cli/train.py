"""`stau-rl train`: policy-gradient agents with any head."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stau_rl.cli.named_values import import_from_here, read_env_args, read_pairs
from stau_rl.cli.options import OptionalCount, OptionalPath, OptionalText, Paths, Texts
from stau_rl.cli.resumable import Resumable


@dataclass(frozen=True)
class Train(Resumable):
    """How well does REINFORCE, A2C or PPO learn an environment with a head of your choice?

    It trains an agent with any head on any Gymnasium environment with discrete actions, on several seeds.

    Seeds run in parallel processes of one thread each. The folder holds learning curves (CSV and Parquet), a figure,
    the scores, which are mean returns of the last evaluation, with sampled and with likeliest actions, and the
    policies: stau-rl evaluate plays them.

    With --out DIR --resume a training goes on: what is not given is read from the folder. More --seeds are added. More
    --steps go on from where its seeds stand, to the same bytes as one training of that length, where the learning rate
    does not depend on it (--set anneal=false); else they are refused.

    Learned sharpness: with --set learn=tau the policy's gradient moves the head's tau as well, head_rate times as fast,
    and may sharpen onto whatever is likely early. With --set head_warmup=50000 tau stays at its start for as many
    environment steps. With --set target_entropy=0.5 no gradient moves it: each update moves it by target_entropy_rate
    towards an entropy of that share of log n, n the number of actions, as far as the head's range allows. What is
    learned is printed and kept: columns learned_tau of scores.csv and curves.csv, the latter with the policy's entropy.

    Example: stau-rl train --agent ppo --env CartPole-v1 --head "s_tau(tau=2)" --steps 500000 --seeds 10 --out runs/ppo
    """

    agent: OptionalText = None
    """reinforce, a2c or ppo. Default: ppo."""
    env: OptionalText = None
    """Gymnasium id; "module:id" imports a module first, from the current folder too, as in
    "stau_rl:stau_rl/BernoulliBandit-v0". Default: CartPole-v1."""
    env_arg: Texts = ()
    """An argument of the environment, NAME=VALUE, as in map_name=8x8 or is_slippery=false; repeat it. The value is
    read as JSON where it is JSON, else as text."""
    head: OptionalText = None
    """The head between the action scores and the policy. Default: softmax(beta=1)."""
    steps: OptionalCount = None
    """Environment steps per seed. Default: 500 000."""
    seeds: OptionalCount = None
    """How many seeds. Default: 1."""
    first_seed: OptionalCount = None
    """The first of them. Default: 0."""
    set: Texts = ()
    """Another setting of the agent, NAME=VALUE, such as learning_rate=3e-3 or learn=tau; repeat it. --settings lists
    them."""
    settings: bool = False
    """Only list the settings that --set takes, with each agent's default and what they are."""
    plugin: Paths = ()
    """A Python file that registers heads of your own; repeat it."""
    device: OptionalText = None
    """cpu, cuda, cuda:N or auto: where the networks learn; environments and actions stay on the CPU. Default: cpu."""
    tensorboard: bool = False
    """Also write the curves into the folder for TensorBoard, while seeds are trained (extra tensorboard)."""
    processes: OptionalCount = None
    """Seeds trained at a time. Default: one per core."""
    out: OptionalPath = None
    """Folder of the training. Default: runs/train-DATE-TIME."""
    resume: bool = False
    """Go on with the training in --out; finished points of every curve are kept. Options that are left out are those
    of the training there."""

    work, kept = "training", "what is finished is kept"

    def run(self) -> None:
        """Train, print the scores and say where the files are."""
        from stau_rl.plugin.load import load_plugins
        from stau_rl.terminal.console import wide_console
        from stau_rl.terminal.progress import nothing_yet, steps_bar
        from stau_rl.training.request import asked_for
        from stau_rl.training.train import train

        if self.settings:
            _print_settings()
            return
        self.check_resume()
        import_from_here()
        load_plugins(self.plugin)
        folder = self.out if self.resume else None
        given = self._given(folder)
        request = asked_for(self.agent, given, self.first_seed, self.seeds, folder, self.device)
        out = self.out or Path("runs") / time.strftime("train-%Y%m%d-%H%M%S")
        started = time.perf_counter()
        label = f"{request.agent} {request.settings.env}"
        total = request.settings.steps * request.seeds
        with steps_bar(label, total, nothing_yet(self.out, self.resume)) as bar:
            result = train(
                self.agent,
                given,
                self.seeds,
                out,
                first_seed=self.first_seed,
                processes=self.processes,
                resume=self.resume,
                plugins=self.plugin,
                tensorboard=self.tensorboard,
                device=self.device,
                report=lambda what, done, total: bar(done),
            )
        console = wide_console()
        took = time.perf_counter() - started
        for line in (str(result), f"Took {took:.1f} s. Curves, scores, policies and figure: {out}"):
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _given(self, folder: Path | None) -> dict[str, Any]:
        """The settings that were given, by name."""
        from stau_rl.agents.policy_gradient import agent_class
        from stau_rl.training.request import kept_spec

        kept = None if folder is None else kept_spec(folder)
        kind = agent_class(self.agent or (kept["agent"] if kept else "ppo")).Settings
        own = {"env": self.env, "head": self.head, "steps": self.steps, "env_args": read_env_args(self.env_arg) or None}
        given = {name: value for name, value in own.items() if value is not None}
        return given | kind.read_texts(read_pairs(self.set))


def _print_settings() -> None:
    from rich.table import Table

    from stau_rl.cli.settings_table import settings_table
    from stau_rl.terminal.console import wide_console

    header, rows = settings_table()
    table = Table()
    for column in header:
        table.add_column(column, overflow="fold", no_wrap=column != header[-1])
    for row in rows:
        table.add_row(*row)
    wide_console().print(table, highlight=False, markup=False)
