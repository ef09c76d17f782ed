"""The outcome of a plateau benchmark: its rows, with their table, figure and files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import RenderableType

from stau_rl.files.finished import check_table
from stau_rl.plateau.folder import CURVES, DIGITS, FIGURE, TABLE, read_tables, split_rows, write_tables
from stau_rl.plateau.report import render
from stau_rl.terminal.notebook import ShownAsTables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("grid", "best", "curve")


@dataclass(frozen=True, eq=False, repr=False)
class PlateauResult(ShownAsTables):
    """How long each head stays at a suboptimal arm; `stau_rl.run_plateau` makes one.

    Attributes:
        rows: all rows; `stau_rl.plateau.play` has the columns, `stau_rl.plateau.cell` those of `curve` rows.

    Examples:
        >>> from stau_rl import PlateauResult
        >>> result = PlateauResult.load("runs/plateau")  # doctest: +SKIP
        >>> result.table("best")[["start", "method", "failed", "steps"]]  # doctest: +SKIP
        >>> result.plot().savefig("plateau.svg")  # doctest: +SKIP
    """

    rows: pd.DataFrame

    def __repr__(self) -> str:
        """A line about the benchmark; `table` has the numbers."""
        methods, cells = self.rows["method"].nunique(), self.rows["setting"].nunique()
        return f"PlateauResult({methods} method{'s' if methods > 1 else ''}, {cells} cell{'s' if cells > 1 else ''})"

    def __rich__(self) -> RenderableType:
        """What a notebook shows, and what `stau-rl plateau` prints."""
        return render(self.rows)

    def table(self, kind: str | None = None) -> pd.DataFrame:
        """The rows, numbered from 0.

        Args:
            kind: `grid` (every step size, on the tuning draws), `best` (the best one, on the measured draws) or `curve`
                (distance to the best reward over the updates), for rows of that kind alone; None for all.

        Raises:
            ValueError: there is no such kind.
        """
        if kind is None:
            return self.rows.reset_index(drop=True)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, or None, got {kind!r}")
        return self.rows[self.rows["kind"] == kind].reset_index(drop=True)

    def plot(self) -> "Figure":
        """Distance to the best reward over the updates, a panel per problem; a new matplotlib figure."""
        from stau_rl.plateau.plot import draw_plateau

        return draw_plateau(self.table("curve"), float(self.rows["within"].iloc[0]))

    def save(self, directory: str | Path) -> None:
        """Write `plateau.csv`, `plateau_curves.csv` and `plateau.png`; numbers keep eight digits.

        Args:
            directory: a folder, made if it is not there. One that holds the same rows is left with the same files.

        Raises:
            ValueError: the folder holds another benchmark's rows, or cannot be used.
        """
        from stau_rl.plateau.plot import save_plateau

        folder = Path(directory)
        for name, rows in zip((TABLE, CURVES), split_rows(self.rows), strict=True):
            check_table(folder / name, rows, DIGITS)
        write_tables(self.rows, folder)
        # Drawn from what the tables keep, so that what is loaded gives the same figure.
        save_plateau(self.load(folder).table("curve"), folder / FIGURE)

    @classmethod
    def load(cls, directory: str | Path) -> "PlateauResult":
        """Read what `save`, or `run_plateau` with a folder, has written.

        Raises:
            ValueError: the folder holds no finished benchmark, or a table in it is damaged.
        """
        try:
            return cls(read_tables(Path(directory)))
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{directory} holds no finished plateau benchmark: {error}") from error
