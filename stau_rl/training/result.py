"""The outcome of a training: final scores and learning curves of every seed, with a figure and files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.agents.policy_gradient.agent_settings import learned_column
from stau_rl.agents.policy_gradient.environments import env_text
from stau_rl.agents.policy_gradient.policy import Policy
from stau_rl.files.whole import whole_file
from stau_rl.statistics.means import mean_interval
from stau_rl.terminal.notebook import ShownAsTables
from stau_rl.training.folder import CURVES, FIGURE, SCORES, TrainFolder
from stau_rl.training.plot import plot_curves, save_curves
from stau_rl.training.policies import Policies
from stau_rl.training.request import kept_spec
from stau_rl.training.run import RunSpec


@dataclass(frozen=True, slots=True, eq=False)
class TrainResult(ShownAsTables):
    """An agent trained on several seeds.

    Attributes:
        spec: agent, settings and seeds, JSON-able.
        runs: what `stau_rl.training.run.play_run` gives for every seed.
        policies: the trained policies; None for a training from before they were kept.

    Examples:
        >>> result = TrainResult.load("runs/ppo")                   # doctest: +SKIP
        >>> result.table()[["seed", "sampled", "deterministic"]]    # doctest: +SKIP
        >>> result.plot().figure.savefig("curves.png")              # doctest: +SKIP
    """

    spec: dict[str, Any]
    runs: list[dict[str, Any]]
    policies: Policies | None = None

    def __repr__(self) -> str:
        """A line about the training; `table` and `curves` have the numbers."""
        steps = self.spec["settings"]["steps"]
        return f"TrainResult({self._about}, {len(self.runs)} seeds of {steps} steps)"

    def __str__(self) -> str:
        """Scores as the command line prints them."""
        digits = self._digits
        shown = self.table()[["seed", *digits]].round(digits).to_string(index=False)
        return f"{self._caption}:\n{shown}"

    def __rich__(self) -> RenderableType:
        """What a notebook shows: the scores of every seed, and their mean with its 95 % interval."""
        scores, steps = self.table(), self.spec["settings"]["steps"]
        title = f"{self._caption}; {len(scores)} seed{'s' if len(scores) > 1 else ''} of {steps} steps"
        table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("seed")
        for name in self._digits:
            table.add_column(name, justify="right")
        # First, as a long table is cut at its end.
        table.add_row("mean [95 %]", *(_mean(scores[name], digits) for name, digits in self._digits.items()))
        for row in scores.to_dict("records"):
            table.add_row(str(row["seed"]), *(f"{row[name]:.{digits}f}" for name, digits in self._digits.items()))
        return table

    @property
    def _digits(self) -> dict[str, int]:
        """Decimals of the columns that are shown."""
        return {"sampled": 1, "deterministic": 1, **dict.fromkeys(self._learned, 3)}

    @property
    def _caption(self) -> str:
        return f"Mean return of {self.spec['settings']['episodes']} episodes after training, {self._about}"

    @property
    def title(self) -> str:
        """Agent and environment."""
        return f"{self.spec['agent']} on {self._env}"

    @property
    def _about(self) -> str:
        return f"{self.title}, {self.spec['settings']['head']}"

    @property
    def _env(self) -> str:
        return env_text(self.spec["settings"]["env"], self.spec["settings"].get("env_args", {}))

    @property
    def _learned(self) -> list[str]:
        return [learned_column(name) for name in dict.fromkeys(self.spec["settings"]["learn"])]

    def table(self) -> pd.DataFrame:
        """Final scores, a row per seed.

        Returns:
            Columns `agent, env, head, seed`; `sampled` and `deterministic`, mean returns of the final evaluation with
            sampled and with likeliest actions, with their lowest and highest episode, `_low` and `_high`; and
            `learned_NAME` for every parameter that the head learns.
        """
        scores = pd.DataFrame([{k: v for k, v in run.items() if k not in ("curve", "settings")} for run in self.runs])
        scores.insert(1, "env", self._env)
        scores.insert(2, "head", self.spec["settings"]["head"])
        curves = self.curves()
        for column in self._learned:
            scores[column] = curves.groupby("seed", sort=False)[column].nth(-1).to_numpy()
        return scores

    def curves(self) -> pd.DataFrame:
        """Learning curves, a row per seed and point.

        Returns:
            Columns `seed, step, train_episodes, train_return, sampled_return`; where the head learns also
            `learned_NAME` and `entropy`, nan for points that do not have them.
        """
        table = pd.DataFrame([{"seed": run["seed"], **row} for run in self.runs for row in run["curve"]])
        extra = [*self._learned, "entropy"] if self._learned else []
        table = table.reindex(columns=[*table.columns.drop(extra, errors="ignore"), *extra])
        return table.astype(dict.fromkeys(["train_return", "sampled_return", *extra], "float64"))

    def policy(self, seed: int = 0) -> Policy:
        """The trained policy of a seed, which acts and is evaluated.

        Raises:
            ValueError: none was kept of that seed.
        """
        if self.policies is None:
            raise ValueError("this training is from before policies were kept; train anew")
        return self.policies.policy(seed)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Mean return of the training episodes against the step: a thin line per seed, their median and middle half.

        Args:
            ax: where to draw; a figure of its own by default.
        """
        ax = ax or Figure(layout="constrained").add_subplot()
        plot_curves(self.curves(), ax, self._about)
        return ax

    def save(self, directory: str | Path) -> None:
        """Write the files of a training's folder; `load` gives an equal result back.

        Args:
            directory: a new or empty one, or one of the same training.

        Raises:
            ValueError: the directory holds something else, is in use, or cannot be written.
        """
        with TrainFolder(directory, self.spec, resume=True) as folder:
            for run in self.runs:
                folder.keep(RunSpec(run["agent"], run["settings"], run["seed"]), run)
            if self.policies is not None:
                self.policies.write(folder.path)
            self.write_tables(folder.path)

    def write_tables(self, path: Path) -> None:
        """Write curves, scores and figure into a folder."""
        curves = self.curves()
        for name, table in ((f"{CURVES}.csv", curves), (SCORES, self.table())):
            with whole_file(path / name) as temporary:
                table.to_csv(temporary, index=False, lineterminator="\n")
        with whole_file(path / f"{CURVES}.parquet") as temporary:
            curves.to_parquet(temporary, index=False)
        save_curves(curves, self._about, path / FIGURE)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read the folder of a finished training.

        Raises:
            ValueError: it is no training, or a seed is not finished.
        """
        path = Path(directory)
        spec = kept_spec(path)
        if spec is None:
            raise ValueError(f"{path} is not the folder of a training: it has no settings.json")
        folder = TrainFolder(path, spec, resume=True)
        runs = []
        for seed in spec["seeds"]:
            kept = folder.read(RunSpec(spec["agent"], spec["settings"], seed))
            if kept is None:
                raise ValueError(f"{path} holds an unfinished training: seed {seed} has no result")
            runs.append(kept)
        return cls(spec, runs, Policies.read(path, spec["seeds"]))


def _mean(values: "pd.Series[float]", digits: int) -> str:
    """Mean over seeds with its Student interval; the mean alone without one, a dash where a value is not finite."""
    if not np.isfinite(values).all():
        return "-"
    found = mean_interval(values)
    if np.isnan(found.low):
        return f"{found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"
