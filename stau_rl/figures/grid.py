"""Small multiples: panels of equal size, two across so that they are read in a column, and one legend for all."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.style import SMALL, WIDTH

COLUMNS = 2


def panels(count: int, height: float = 2.4, *, columns: int = COLUMNS, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels, row by row; a place left over in the last row is blank.

    Args:
        count: how many panels.
        height: of a panel, in inches.
        columns: at most so many stand side by side.
        shared: `sharex` and `sharey` as of `Figure.subplots`.
    """
    across = max(1, min(columns, count))
    down = max(1, -(-count // across))
    figure = Figure(figsize=(WIDTH, height * down + 0.5), layout="constrained")
    each = list(np.asarray(figure.subplots(down, across, squeeze=False, **shared)).ravel())
    for spare in each[count:]:
        spare.remove()
    return figure, each[:count]


def one_panel(height: float = 4.0) -> tuple[Figure, Axes]:
    """A figure of one panel."""
    figure, (panel,) = panels(1, height)
    return figure, panel


def legend_below(figure: Figure, handles: Mapping[str, Any], columns: int = 2, note: str = "") -> None:
    """One legend for all panels, below them.

    Args:
        figure: a figure in constrained layout.
        handles: artist by name.
        columns: names side by side.
        note: a line over the names.
    """
    if handles:
        artists, names = list(handles.values()), list(handles)
        style: dict[str, Any] = {"ncols": min(columns, len(handles)), "title_fontsize": SMALL}
        figure.legend(artists, names, loc="outside lower center", title=note or None, **style)
