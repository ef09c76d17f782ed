"""Where lines are so close that the eye sees one, one line of all their colours is drawn, in dashes that take turns."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

NOTE = "a line of several colours: curves that coincide"

DASH = 3.0
"""Length of a dash of each colour, in line widths."""

POINTS = 301
"""Places across the axes where lines are compared."""

SHORTEST = 0.06
"""A stretch shorter than this share of the axes' width is a crossing."""

Stretch = tuple[int, int, tuple[int, ...]]


def stretches(heights: NDArray[np.float64], within: float) -> list[Stretch]:
    """Where neighbouring curves coincide: maximal runs of places with the same curves together.

    Args:
        heights: curves x places; nan where a curve has none.
        within: curves no further apart than this are together.

    Returns:
        First place, last place and the numbers of the curves, two or more, of every stretch.
    """
    each: dict[tuple[int, ...], list[int]] = {}
    for place, column in enumerate(heights.T):
        for members in _together(column, within):
            each.setdefault(members, []).append(place)
    found = []
    for members, places in each.items():
        for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
            whole = [place for _, place in run]
            found.append((whole[0], whole[-1], members))
    return sorted(found)


def _together(column: NDArray[np.float64], within: float) -> list[tuple[int, ...]]:
    """Groups of two or more numbers of heights that span no more than a distance, from the lowest up."""
    groups: list[list[int]] = []
    for number in np.argsort(column, kind="stable"):
        if np.isnan(column[number]):
            break
        if groups and column[number] - column[groups[-1][0]] <= within:
            groups[-1].append(int(number))
        else:
            groups.append([int(number)])
    return [tuple(sorted(group)) for group in groups if len(group) > 1]


def show_coinciding(axes: Axes, lines: Sequence[Line2D]) -> list[list[Line2D]]:
    """Draw one line of all their colours where lines are no further apart than a line is wide.

    Args:
        axes: theirs, with final scales and limits.
        lines: of which some may coincide; none goes back in x.

    Returns:
        The lines of every stretch so drawn; what is drawn has a label that legends leave out.
    """
    if len(lines) < 2:
        return []
    figure = axes.get_figure(root=True)
    assert figure is not None
    to_axes = axes.transScale + axes.transLimits
    across = np.linspace(0.0, 1.0, POINTS)
    heights = np.full((len(lines), POINTS), np.nan)
    reach = []
    for number, line in enumerate(lines):
        points = np.column_stack(line.get_data()).astype(np.float64)
        points = to_axes.transform(points[np.isfinite(points).all(axis=1)])
        if len(points):
            heights[number] = np.interp(across, points[:, 0], points[:, 1], left=np.nan, right=np.nan)
        reach.append(np.flatnonzero(np.isfinite(heights[number])))
    # What lies below or above the axes is not seen.
    heights[(heights < -0.01) | (heights > 1.01)] = np.nan
    width = max(line.get_linewidth() for line in lines)
    within = width / (axes.get_position().height * figure.get_figheight() * 72)
    found = []
    for first, last, members in stretches(heights, within):
        if last - first < SHORTEST * POINTS:
            continue
        group = [lines[number] for number in members]
        places = slice(first, last + 1)
        middle = np.column_stack([across[places], heights[list(members), places].mean(axis=0)])
        _in_turns(axes, to_axes.inverted().transform(middle), group, width)
        if all(first <= reach[number][0] + 2 and reach[number][-1] - 2 <= last for number in members):
            for turn, line in enumerate(group):
                line.set_markevery((turn, len(group)))
        found.append(group)
    return found


def _in_turns(axes: Axes, points: NDArray[Any], group: Sequence[Line2D], width: float) -> None:
    for turn, line in enumerate(group):
        style: dict[str, Any] = {"color": line.get_color(), "linewidth": width, "linestyle": in_turn(turn, len(group))}
        axes.plot(*points.T, label="_nolegend_", zorder=line.get_zorder() + 0.1, dash_capstyle="butt", **style)


def in_turn(turn: int, members: int) -> tuple[float, tuple[float, float]]:
    """Dashes of the line whose turn it is; those of all members fill the line and never overlap."""
    return (members - turn) % members * DASH, (DASH, (members - 1) * DASH)
