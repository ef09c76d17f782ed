"""The outcome of a study: its rows, with their table, figure and files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import RenderableType

from stau_rl.files.finished import check_table
from stau_rl.study.compare import COLUMNS, COMPARISONS
from stau_rl.study.folder import DIGITS, TABLE, read_rows, write_study
from stau_rl.study.report import render
from stau_rl.terminal.notebook import ShownAsTables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(ShownAsTables):
    """Families of policies, compared; `stau_rl.run_study` makes one.

    Attributes:
        rows: a row per comparison and setting, with the columns of `stau_rl.study.compare` and `p_holm`.
        notes: a sentence for each sweep, or point of one, that was left out. A result that was loaded has none.

    Examples:
        >>> from stau_rl import StudyResult
        >>> result = StudyResult.load("runs/study")  # doctest: +SKIP
        >>> result.table("tuned")[["value", "policy", "percent", "p_holm"]]  # doctest: +SKIP
        >>> result.plot("c").savefig("c.svg")  # doctest: +SKIP
    """

    rows: pd.DataFrame
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """A line about the study; `table` has the numbers."""
        families, settings = self.rows.loc[self.rows["comparison"] == "raw", "family"], self.rows["setting"].nunique()
        return f"StudyResult({len(families) // settings} families, {settings} setting{'s' if settings > 1 else ''})"

    def __rich__(self) -> RenderableType:
        """What a notebook shows, and what `stau-rl study` prints."""
        return render(self.table())

    def table(self, comparison: str | None = None) -> pd.DataFrame:
        """The rows, numbered from 0.

        Args:
            comparison: `curve`, `raw`, `slope`, `entropy`, `tuned` or `reference`, for rows of that kind alone; None
                for all.

        Raises:
            ValueError: there is no such comparison.
        """
        if comparison is None:
            return self.rows.reset_index(drop=True)
        if comparison not in COMPARISONS:
            raise ValueError(f"comparison must be one of {', '.join(COMPARISONS)}, or None, got {comparison!r}")
        return self.rows[self.rows["comparison"] == comparison].reset_index(drop=True)

    def plot(self, sweep: str | None = None) -> "Figure":
        """Regret over the parameter of each family, a panel per setting.

        Args:
            sweep: an axis such as `c`, or `base`; None for all settings.

        Returns:
            A new matplotlib figure; empty where nothing was tuned.
        """
        from stau_rl.study.plot import draw_study

        return draw_study(self.rows, sweep)

    def save_figure(self, *paths: str | Path) -> None:
        """Write the figure of the study's folder as `.png`, `.svg` or `.pdf`, each file whole or not at all.

        Raises:
            ValueError: another suffix.
            OSError: a file cannot be written.
        """
        from stau_rl.study.plot import save_study

        save_study(self.rows, *map(Path, paths))

    def save(self, directory: str | Path) -> None:
        """Write `study.csv`, and `curves.png` where something was tuned; numbers keep ten digits.

        Args:
            directory: a folder, made if it is not there. One that holds the same rows is left with the same files.

        Raises:
            ValueError: the folder holds another study's rows, or cannot be used.
        """
        check_table(Path(directory) / TABLE, self.rows, DIGITS)
        write_study(self.rows, Path(directory))

    @classmethod
    def load(cls, directory: str | Path) -> "StudyResult":
        """Read what `save`, or `run_study` with a folder, has written.

        Raises:
            ValueError: the folder holds no finished study, or its table is damaged.
        """
        path = Path(directory) / TABLE
        try:
            rows = read_rows(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{directory} holds no finished study: {error}") from error
        if list(rows.columns) != [*COLUMNS, "p_holm"] or rows.empty:
            raise ValueError(f"{path} is no table of a study: its columns are {', '.join(rows.columns)}")
        return cls(rows)
