"""Names at the ends of their lines, each where its line ends or as near to it as the other names let it."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.transforms import offset_copy
from numpy.typing import NDArray

from stau_rl.figures.palette import on
from stau_rl.figures.style import SMALL, ground_of

LETTERS = 26
"""Longer names are broken."""

GAP = 16.0
"""Between the axes and the names, in points: room for the leaders."""

LEADING = 1.22


def label_ends(axes: Axes, lines: Sequence[Line2D], size: float = SMALL, letters: int = LETTERS) -> bool:
    """Write the label of every line right of the axes, and lead to it from the line's end.

    Args:
        axes: with final scales and limits, in a figure with a layout that makes room for what stands outside.
        lines: with labels; one without a finite point gets none.
        size: of the letters, in points.
        letters: longer names are broken.

    Returns:
        Whether they had room; if not, nothing is written, and a legend is the better way.
    """
    ends = [end for line in lines if (end := _end(line)) is not None]
    named = [line for line in lines if _end(line) is not None]
    figure = axes.get_figure(root=True)
    assert figure is not None
    # The layout has to settle before anything can be measured.
    figure.draw_without_rendering()
    height = axes.get_window_extent().height * 72 / figure.dpi
    names = [broken(str(line.get_label()), letters) for line in named]
    sizes = np.array([(name.count("\n") + 1) * LEADING * size + 2 for name in names]) / height
    if sizes.sum() > 1.05:
        return False
    wanted = (axes.transScale + axes.transLimits).transform(np.array(ends, dtype=np.float64).reshape(-1, 2))[:, 1]
    places = spread(wanted, sizes, -0.03, 1.03)
    beside = offset_copy(axes.transAxes, figure, x=GAP, units="points")
    for line, name, end, place in zip(named, names, ends, places, strict=True):
        colour = on(to_hex(line.get_color()), ground_of(axes), 4.5)
        axes.annotate(
            name,
            end,
            (1.0, place),
            textcoords=beside,
            color=colour,
            fontsize=size,
            linespacing=1.05,
            verticalalignment="center",
            annotation_clip=False,
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.7,
                "relpos": (0.0, 0.5),
                "shrinkA": 2,
                "shrinkB": 0,
            },
        )
    return True


def spread(wanted: NDArray[np.float64], sizes: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Middles of intervals that do not overlap, as near to wanted middles as they can be (least squares).

    Args:
        wanted: where the middles would be.
        sizes: lengths of the intervals.
        low: where the lowest may begin.
        high: where the highest may end; the sizes fit between.

    Returns:
        The middles, in the order of `wanted`.
    """
    if not wanted.size:
        return wanted
    order = np.argsort(wanted, kind="stable")
    length = sizes[order]
    # Less the room that those below take, the order alone is to be kept: isotonic regression by pooling neighbours.
    below = np.cumsum(length) - length / 2
    blocks: list[tuple[float, int]] = []
    for value in wanted[order] - below:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    pooled = np.repeat([mean for mean, _ in blocks], [count for _, count in blocks])
    found = np.empty_like(wanted, dtype=np.float64)
    found[order] = pooled.clip(low, max(low, high - length.sum())) + below
    return found


def broken(name: str, letters: int = LETTERS) -> str:
    """A name on several lines if it is long: a pipe after its bar, any other text between words."""
    if len(name) <= letters:
        return name
    if " | " in name:
        return name.replace(" | ", " |\n")
    return "\n".join(textwrap.wrap(name, letters, break_long_words=False))


def _end(line: Line2D) -> tuple[float, float] | None:
    """The last point of a line that has a place on the axes."""
    x, y = (np.asarray(values, dtype=np.float64) for values in line.get_data())
    seen = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    return (float(x[seen[-1]]), float(y[seen[-1]])) if seen.size else None
