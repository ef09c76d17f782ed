"""The one theme of every figure, on seaborn's; nothing of it stays behind in matplotlib's settings.

Nothing here goes through pyplot: no backend is chosen, no window opens, no figure is registered.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import seaborn
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from stau_rl.figures.palette import GRID, HUES, INK, PAPER, Ground, luminance

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

WIDTH = 6.6
"""Inches; a column of a paper has half as many, and half the size of the letters is still read there."""

TEXT, SMALL, TITLE = 11.0, 10.0, 12.5
LINE = 2.0

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

_active: ContextVar[Ground | None] = ContextVar("ground", default=None)


@contextmanager
def theme(ground: Ground = "light") -> Iterator[None]:
    """Draw in the project's style, whatever the user's; their settings are back on leaving.

    Args:
        ground: of the page that the figure stands on.
    """
    if ground not in PAPER:
        raise ValueError(f"ground must be 'light' or 'dark', got {ground!r}")
    before = _active.set(ground)
    try:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(settings(ground))
            yield
    finally:
        _active.reset(before)


def styled(draw: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Have a function draw in the theme around it, or in the light one where there is none."""

    @wraps(draw)
    def in_theme(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if _active.get() is not None:
            return draw(*args, **kwargs)
        with theme():
            return draw(*args, **kwargs)

    return in_theme


def settings(ground: Ground) -> dict[Any, Any]:
    """Matplotlib's settings of the theme."""
    ink, paper, grid = INK[ground], PAPER[ground], GRID[ground]
    return {
        **seaborn.axes_style("ticks"),
        **seaborn.plotting_context("paper"),
        # Ships with matplotlib: another machine draws the same letters.
        "font.family": ["DejaVu Sans"],
        "font.size": TEXT,
        "axes.labelsize": TEXT,
        "axes.titlesize": TEXT,
        "axes.titlelocation": "left",
        "figure.titlesize": TITLE,
        "figure.titleweight": "bold",
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "legend.handlelength": 2.6,
        "lines.linewidth": LINE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": grid,
        "grid.linewidth": 0.8,
        "axes.axisbelow": True,
        "axes.linewidth": 0.9,
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), paper),
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink),
        "axes.prop_cycle": cycler(color=list(HUES.values())),
        # Names of files and labels of arms may hold a dollar.
        "text.parse_math": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "stau-rl",
    }


def ground_of(axes: Axes) -> Ground:
    """What axes stand on, from the colour of their face."""
    return "dark" if luminance(to_hex(axes.get_facecolor())) < 0.2 else "light"


def ground() -> Ground:
    """The ground of the theme around; light without one."""
    return _active.get() or "light"


def plain_log(axes: Axes, which: str) -> None:
    """Label a log axis with plain numbers, and between the powers of ten where few of those are in sight.

    Args:
        axes: whose limits are final.
        which: `x` or `y`.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    few = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    subs = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) if decades < 0.8 else few
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_formatter(NullFormatter())


def plain(value: float) -> str:
    """A number as a tick says it: 0.01, 1, 10 000, and powers of ten beyond."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        text = f"{value:,.0f}".replace(",", "\N{THIN SPACE}") if abs(value) >= 1 and value % 1 == 0 else f"{value:g}"
        return text.replace("-", "\N{MINUS SIGN}")
    mantissa, power = f"{value:e}".split("e")
    factor = float(mantissa)
    tens = "10" + str(int(power)).translate(_SUPERSCRIPTS)
    return tens if factor == 1 else f"{factor:g}×{tens}"


def headline(figure: Figure, question: str) -> None:
    """Write the question that a figure answers above it."""
    figure.suptitle(question, x=0.01, horizontalalignment="left")
