"""The outcome of a probe: rows, their summary over seeds, its figures and its files."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pandas as pd
from rich.console import RenderableType

from stau_rl.files.finished import write_table
from stau_rl.probe.curves import curve_table
from stau_rl.probe.folder import COLUMNS, CURVES, SUMMARY, TABLE, Maps, ProbeFolder, read_group, read_probe
from stau_rl.probe.overview import overview
from stau_rl.probe.summary import render, summary
from stau_rl.terminal.notebook import ShownAsTables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, eq=False)
class ProbeResult(ShownAsTables):
    """What trained attention heads did, as `stau_rl.run_probe` returns it.

    Examples:
        >>> import stau_rl
        >>> short = {"seeds": 2, "steps": 2, "items": 8, "device": "cpu"}
        >>> result = stau_rl.run_probe("passkey(places=4)", ["softmax", "ssmax"], **short)
        >>> result
        ProbeResult(1 setting, 2 normalisers, 2 seeds)
        >>> result.summary()["normaliser"].unique().tolist()
        ['softmax', 'ssmax']

    Attributes:
        rows: a row per setting, normaliser, seed and length, with the columns `stau_rl.probe.folder.COLUMNS`.
        maps: for each group of models that trained together `weights`, float32 [normalisers, examples, keys], of the
            first seed; `masses`, int64 [normalisers, 2, bins], counts of row masses of all seeds on queries with and
            without an answer; `normalisers`; `setting`, its part of the plan and its task; `slots`, int64 [examples],
            the right place of each example, -1 where the key is absent; and what `stau_rl.probe.curves` keeps. Groups
            of an older version lack the last two.
    """

    rows: pd.DataFrame
    maps: tuple[Maps, ...]

    @classmethod
    def of(cls, groups: Sequence[tuple[pd.DataFrame, Maps]]) -> Self:
        """The result of groups in their order: rows and maps of each."""
        # A column that is empty in one table would decide the type of the whole.
        rows = pd.concat([table.dropna(axis=1, how="all") for table, _ in groups], ignore_index=True)
        return cls(rows.reindex(columns=list(COLUMNS)), tuple(maps for _, maps in groups))

    def __repr__(self) -> str:
        """A line about the probe; `table` and `summary` have the numbers."""
        counts = (
            (len(self.settings), "setting"),
            (self.rows["normaliser"].nunique(), "normaliser"),
            (self.rows["seed"].nunique(), "seed"),
        )
        return f"ProbeResult({', '.join(f'{n} {word}' + 's' * (n != 1) for n, word in counts)})"

    def __rich__(self) -> RenderableType:
        """What a notebook shows: the tables of `render`."""
        return self.render()

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The settings in their order: part of the plan, task."""
        return list(dict.fromkeys((str(group["setting"][0]), str(group["setting"][1])) for group in self.maps))

    def table(self) -> pd.DataFrame:
        """A copy of `rows`; `stau_rl.probe.metrics.METRICS` says what each metric means."""
        return self.rows.copy()

    def summary(self) -> pd.DataFrame:
        """A row per setting, normaliser, length and metric, over the seeds.

        Returns:
            Columns `part, task, normaliser, factor, metric, median, worst, low, high, seeds`: the median, the worst
            seed, and the 95 % interval of the mean; see `stau_rl.probe.summary.summary`.
        """
        return summary(self.rows)

    def curves(self) -> pd.DataFrame:
        """A row per model and step that was looked at: loss and share of right answers, of items not yet learned.

        Returns:
            Columns `part, task, normaliser, seed, step, loss, right`; see `stau_rl.probe.curves.curve_table`.
        """
        return curve_table(self.maps)

    def render(self, details: bool = False, explain: bool = True) -> RenderableType:
        """Tables for a rich console: what `stau-rl probe` prints.

        Args:
            details: every metric with its median and worst seed, at least 120 columns wide; without, one table of the
                metrics that tell most, with intervals over seeds.
            explain: say what the columns mean.
        """
        return render(self.rows, explain) if details else overview(self.rows, explain)

    def plot(self, kind: str = "masses", setting: str | None = None) -> "Figure":
        """Draw one setting, a panel per normaliser.

        Args:
            kind: `masses`, how the mass of the rows is spread on queries with and without an answer; `maps`, the
                weights of a few queries; or `curves`, the share of right answers while it trained.
            setting: the part of the plan, or the task; None for the first.

        Raises:
            ValueError: there is no such kind or setting.
        """
        from stau_rl.probe.plot import draw_curves, draw_maps, draw_masses

        kinds = {"masses": draw_masses, "maps": draw_maps, "curves": draw_curves}
        if kind not in kinds:
            raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}")
        found = [names for names in self.settings if setting is None or setting in names]
        if not found:
            known = dict.fromkeys(name for names in self.settings for name in names)
            raise ValueError(f"setting must be one of {', '.join(known)}, got {setting!r}")
        part, task = found[0]
        groups = [group for group in self.maps if (*group["setting"],) == (part, task)]
        if kind == "curves":
            groups = [group for group in groups if "curve_steps" in group]
            if not groups:
                raise ValueError(f"{task} was trained before learning curves were kept; train it anew")
        return kinds[kind](groups, task)

    def save(self, directory: str | Path) -> None:
        """Write the files of a probe's folder, as `stau_rl.probe.folder` lists them; `load` gives the result back.

        Args:
            directory: a new or empty folder, or one that holds this probe.

        Raises:
            ValueError: the folder holds another probe, is in use, or cannot be written.
        """
        with ProbeFolder(directory, resume=True) as folder:
            groups = self.rows.groupby("group", sort=False)
            if others := folder.groups() - set(groups.groups):
                raise ValueError(
                    f"{directory} holds a group of another probe, {min(others)}; name a new or empty folder"
                )
            kept = []
            for (name, rows), maps in zip(groups, self.maps, strict=True):
                folder.write(str(name), rows, maps)
                kept.append(folder.read(str(name)) or (rows, maps))
            # The tables follow from the groups' files, so that loading gives the same.
            type(self).of(kept).write_tables(folder.path)

    def write_tables(self, folder: Path) -> None:
        """Write what is written once all groups are there: the tables and the figures."""
        write_table(folder / TABLE, self.rows)
        write_table(folder / SUMMARY, self.summary())
        write_table(folder / CURVES, self.curves(), digits=6)
        # Batch machines may lack what draws; a resumed run elsewhere draws from the same files.
        with suppress(ModuleNotFoundError):
            from stau_rl.probe.plot import save_figures

            save_figures(self.maps, folder)

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read the folder of a finished probe.

        Raises:
            ValueError: the folder holds no finished probe, or a file in it is damaged.
        """
        path = Path(directory)
        try:
            names = [str(name) for name in read_probe(path / TABLE)["group"].unique()]
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{path} holds no finished probe ({error}); finish it with --resume") from error
        groups = []
        for name in names:
            group = read_group(path, name)
            if group is None:
                raise ValueError(f"{path}: the group {name} is missing or damaged; train it again with --resume")
            groups.append(group)
        return cls.of(groups)
