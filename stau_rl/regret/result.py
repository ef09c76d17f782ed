"""The outcome of a regret benchmark: every policy on the same instances, with its tables, its figure and its files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pandas as pd
from rich.console import RenderableType

from stau_rl.regret.directory import RunDirectory
from stau_rl.regret.files import read_result
from stau_rl.regret.regrets import Regrets
from stau_rl.regret.tables import compare, summarise
from stau_rl.terminal.notebook import ShownAsTables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stau_rl.regret.plot import Legend, Scale


class RegretResult(Regrets, ShownAsTables):
    """Regret of P policies at C checkpoints on n instances of K arms; the arrays are those of `Regrets`.

    Attributes:
        spec: what was run, on which engine, as `spec.json` has it.
        policies: texts of the policies, in their order.
        checkpoints: steps at which regrets are kept.

    Examples:
        >>> import stau_rl
        >>> result = stau_rl.run_regret("bernoulli(means=[0.9, 0.1])", ["ucb1", "random"], horizon=1000, instances=64)
        >>> last = result.summary().query("step == 1000").set_index("policy")
        >>> bool(last.regret["ucb1"] < last.regret["random"])
        True
        >>> result.compare("random").columns.tolist()[:4]
        ['policy', 'baseline', 'step', 'difference']
    """

    def __repr__(self) -> str:
        """A line about the run; `summary` and `compare` have the numbers."""
        spec = self.spec
        return (
            f"RegretResult({len(self.policies)} policies on {self.arms_shown}, "
            f"{spec['instances']} instances, {spec['horizon']} steps, seed {spec['seed']})"
        )

    def __rich__(self) -> RenderableType:
        """What a notebook shows: the regrets at the horizon, compared, as `stau-rl regret` prints them first."""
        # The report parses policies, so it loads when it is asked for.
        from stau_rl.regret.report import comparison

        return comparison(self)

    def summary(self) -> pd.DataFrame:
        """A row per policy and checkpoint; columns as in `stau_rl.regret.tables.summarise`."""
        return summarise(self).copy()

    def compare(self, baseline: str | None = None) -> pd.DataFrame:
        """A row per policy and checkpoint against a baseline; columns as in `stau_rl.regret.tables.compare`.

        Args:
            baseline: a policy's text; by default the spec's baseline, or the first policy where it names
                none.

        Raises:
            ValueError: the baseline is not a policy of this result; the message lists those that are.
        """
        return compare(self, baseline).copy()

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        scale: "Scale" = "log",
        policies: Sequence[str] | None = None,
        quantiles: bool = False,
        legend: "Legend | None" = None,
        labels: Mapping[str, str] | None = None,
        title: str | None = None,
    ) -> "Axes":
        """Draw regret curves; arguments as in `stau_rl.regret.plot.plot_regret`."""
        # The library of figures loads when one is drawn.
        from stau_rl.regret.plot import plot_regret

        return plot_regret(
            self,
            ax,
            scale=scale,
            policies=policies,
            quantiles=quantiles,
            legend=legend,
            labels=labels,
            title=title,
        )

    def save_figure(self, *paths: str | Path) -> None:
        """Write the figure of a run directory as `.png`, `.svg` or `.pdf`, each file whole or not at all.

        Raises:
            ValueError: another suffix.
            OSError: a file cannot be written.
        """
        from stau_rl.regret.plot import save_figure

        save_figure(self, *map(Path, paths))

    def save(self, directory: str | Path) -> None:
        """Write the files of a run directory; `load` gives an equal result back.

        Args:
            directory: a new or empty directory, or one that holds the same spec; a finished run there stays
                as it is.

        Raises:
            ValueError: the directory holds something else, is in use, or cannot be written.
        """
        with RunDirectory.open(directory, self.spec, resume=True) as run:
            run.finish(self)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read a finished run directory.

        Raises:
            ValueError: the directory is not a finished run, or a file in it is damaged.
        """
        return read_result(Path(directory), cls)
