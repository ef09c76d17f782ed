"""Where tables are printed."""

import sys

from rich.console import Console

WIDTH = 120


def wide_console(width: int = WIDTH) -> Console:
    """A console on standard output: the terminal's width, or `width` columns, at least 120, in a file or pipe."""
    return Console(width=None if sys.stdout.isatty() else max(WIDTH, width))
