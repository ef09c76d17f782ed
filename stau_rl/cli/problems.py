"""`stau-rl problems`: published experiments that can be played by name."""

from dataclasses import dataclass

from stau_rl.cli.options import OptionalText


@dataclass(frozen=True)
class Problems:
    """Which published experiments can be played again by name?

    It lists them, or shows one in full. `stau-rl regret --problem NAME` plays it; other options of that command, such
    as --instances or --engine, change its size and how it is played.

    Example: stau-rl problems --name power_35
    """

    name: OptionalText = None
    """Show this one: its source, arms and policies. Default: a line or two on each."""

    after_stop = ""

    def run(self) -> None:
        """Print the list, or one problem."""
        from stau_rl.regret.problems import PROBLEMS, problem
        from stau_rl.terminal.console import wide_console

        console = wide_console()
        for one in PROBLEMS.values() if self.name is None else [problem(self.name)]:
            lines = [one.name, f"  {one.title}", f"  {one.horizon} steps, {one.instances} runs on {one.arms}"]
            if self.name is not None:
                lines += [f"  Source: {one.source}.", *(f"  {policy}" for policy in one.policies)]
            console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
