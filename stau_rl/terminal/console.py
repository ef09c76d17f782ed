"""Where tables are printed."""

import sys

from rich.console import Console

WIDTH = 120


def wide_console(width: int = WIDTH) -> Console:
    """A console on standard output of `width` columns, 120 or more; a wider terminal's width is taken.

    A narrower terminal wraps the lines by itself, which keeps every number where a squeezed table would cut it off.
    """
    terminal = Console().width if sys.stdout.isatty() else 0
    return Console(width=max(WIDTH, width, terminal))
