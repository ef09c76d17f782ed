"""`stau-rl evaluate`: trained policies, played again."""

from dataclasses import dataclass

from stau_rl.cli.options import Count, OptionalCount, OptionalPath, Paths, PositionalPath


@dataclass(frozen=True)
class Evaluate:
    """How well does a trained policy play, and what does it look like?

    It plays the policies in the folder of a training, prints the mean return of every seed with its 95 % interval, over
    episodes, and the mean over seeds with its own. With as many episodes as the training's last evaluation, and the
    same --number, these are its scores.

    Example: stau-rl evaluate runs/ppo --episodes 100 --greedy --video ppo.gif
    """

    folder: PositionalPath
    """What stau-rl train --out made."""
    seed: OptionalCount = None
    """Only the policy of this seed. Default: of every finished seed."""
    episodes: Count = 100
    """Episodes per seed."""
    greedy: bool = False
    """Take the likeliest action instead of a sample."""
    number: Count = 0
    """Of the evaluation: another number has other episodes."""
    video: OptionalPath = None
    """Film an episode of the first of these policies: a file that ends in .gif, or a folder for an MP4 file (extra
    video). The environment must draw itself; those of Gymnasium need its packages for that."""
    plugin: Paths = ()
    """A Python file that registers the head of your own that was trained; repeat it."""

    after_stop = ""

    def run(self) -> None:
        """Play, and print a row per seed."""
        import numpy as np
        from rich.table import Table

        from stau_rl.cli.named_values import import_from_here
        from stau_rl.plugin.load import load_plugins
        from stau_rl.statistics.means import mean_interval
        from stau_rl.terminal.console import wide_console
        from stau_rl.training.policies import kept_seeds, load_policy, unfinished_seeds
        from stau_rl.training.video import record

        import_from_here()
        load_plugins(self.plugin)
        seeds = kept_seeds(self.folder) if self.seed is None else [self.seed]
        policies = [load_policy(self.folder, seed) for seed in seeds]
        returns = [policy.evaluate(self.episodes, greedy=self.greedy, number=self.number) for policy in policies]
        rows = [(str(seed), found, found) for seed, found in zip(seeds, returns, strict=True)]
        if len(seeds) > 1:
            rows.append(("all", np.array([found.mean() for found in returns]), np.concatenate(returns)))
        table = Table()
        for column in ("seed", "mean return", "95 % interval", "lowest", "highest"):
            table.add_column(column, justify="right")
        for name, values, episodes in rows:
            found = mean_interval(values)
            interval = "-" if len(values) == 1 else f"[{found.low:.5g}, {found.high:.5g}]"
            table.add_row(name, f"{found.mean:.5g}", interval, f"{episodes.min():.5g}", f"{episodes.max():.5g}")
        console = wide_console()
        actions = "likeliest" if self.greedy else "sampled"
        lines = [f"{policies[0].title}: {self.episodes} episodes per seed, {actions} actions"]
        console.print(lines[0], highlight=False, markup=False, soft_wrap=True)
        console.print(table, highlight=False, markup=False)
        if self.seed is None and (missing := unfinished_seeds(self.folder)):
            text = f"Without a policy, as they are not finished: seeds {', '.join(map(str, missing))}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        if self.video is not None:
            total = record(policies[0], self.video, greedy=self.greedy, number=self.number)
            text = f"Video of seed {seeds[0]}, an episode of return {total:.5g}: {self.video}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)
