"""Where tables are printed."""

import sys
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table

from stau_rl.terminal.fitting import fitted, least_width

WIDTH = 120


class TableConsole(Console):
    """A console in whose tables no cell is cut or broken where its column holds numbers.

    On a terminal that is too narrow for a table, headers are folded, and then the table is split into several that
    repeat its first column. In a file, where nothing bounds a line, it is as wide as it needs to be.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's own, with tables, alone or in groups, made to fit."""
        parts = [part for one in objects for part in _flat(one)]
        if not any(isinstance(part, Table) for part in parts):
            super().print(*objects, **options)
            return
        others: list[RenderableType] = []
        for part in parts:
            if not isinstance(part, Table):
                others.append(part)
                continue
            if others:
                super().print(Group(*others), **options)
                others = []
            pieces = fitted(self, part, self.width) if self.is_terminal else [part]
            width = self.width
            for piece in pieces:
                self.width = max(width, least_width(self, piece))
                super().print(piece, **options)
            self.width = width
        if others:
            super().print(Group(*others), **options)


def _flat(one: Any) -> list[Any]:
    """What a group holds, groups in it included; the thing itself where it is none."""
    return [part for inner in one.renderables for part in _flat(inner)] if isinstance(one, Group) else [one]


def wide_console(width: int = WIDTH) -> Console:
    """A console on standard output: as wide as the terminal, elsewhere of `width` columns, 120 or more."""
    # There is no standard output where it was closed.
    if sys.stdout is not None and sys.stdout.isatty():
        return TableConsole()
    return TableConsole(width=max(WIDTH, width))
