"""Where tables are printed."""

import sys

from rich.console import Console

WIDTH = 120


def wide_console() -> Console:
    """A console on standard output: the terminal's width, or 120 columns in a file or pipe."""
    return Console(width=None if sys.stdout.isatty() else WIDTH)
