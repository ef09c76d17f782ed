"""Tables made to fit a width without breaking a number."""

import copy
from dataclasses import replace

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table

# Texts, such as the name of a policy, are folded, but not into less than this.
NARROW = 20
UNBOUNDED = 100_000


def fitted(console: Console, table: Table, width: int) -> list[Table]:
    """The table as one or more of at most `width` columns, as far as that can be.

    Args:
        console: where it is to be printed.
        table: the table; its first column says what a row is.
        width: columns of text.

    Returns:
        The table itself where it fits; else with folded headers; else several tables that repeat the first column.
    """
    if _natural(console, table) <= width or least_width(console, table) <= width:
        return [table]
    if (folded := _folded(console, table, width)) is not None:
        return [folded]
    first, *others = table.columns
    pieces: list[Table] = []
    taken: list[Column] = []
    for column in others:
        if taken and _folded(console, _part(table, [first, *taken, column]), width) is None:
            pieces.append(_part(table, [first, *taken]))
            taken = []
        taken.append(column)
    pieces.append(_part(table, [first, *taken]))
    for piece in pieces[1:]:
        piece.title = None
    return [_folded(console, piece, width) or piece for piece in pieces]


def least_width(console: Console, table: Table) -> int:
    """Columns of text that a table needs to show every number, and every header of numbers, in one line.

    The columns of numbers are told to stay as they are, so that rich folds the others.
    """
    spare = 0
    for column in table.columns:
        if _is_text(column):
            spare += _width(console, column, [column.header, *column.cells]) - _least_text(console, column)
        elif column.width is None:
            column.no_wrap = True
    return _natural(console, table) - spare


def _folded(console: Console, table: Table, width: int) -> Table | None:
    """The table with fixed columns of numbers, under folded headers; None where that is too wide still."""
    columns = []
    for column in table.columns:
        if _is_text(column):
            columns.append(replace(column, min_width=_least_text(console, replace(column, min_width=None))))
            continue
        words = [word for line in str(column.header).split("\n") for word in line.split()]
        needed = _width(console, replace(column, min_width=None), [*words, *column.cells])
        columns.append(replace(column, min_width=None, width=needed, no_wrap=False))
    made = _part(table, columns)
    return made if least_width(console, made) <= width else None


def _part(table: Table, columns: list[Column]) -> Table:
    """A table of some of its columns."""
    made = copy.copy(table)
    made.columns = [replace(column, _index=index) for index, column in enumerate(columns)]
    return made


def _is_text(column: Column) -> bool:
    return column.justify != "right" and not column.no_wrap


def _least_text(console: Console, column: Column) -> int:
    """To what a column of texts may be folded."""
    widest = _width(console, column, [column.header, *column.cells])
    if column.overflow == "fold":
        return min(widest, max(NARROW, column.min_width or 0))
    options = console.options.update(width=UNBOUNDED)
    return max((Measurement.get(console, options, cell).minimum for cell in (column.header, *column.cells)), default=1)


def _width(console: Console, column: Column, cells: list[RenderableType]) -> int:
    """Columns of text that cells take in one line each."""
    options = console.options.update(width=UNBOUNDED)
    widest = max((Measurement.get(console, options, cell).maximum for cell in cells), default=1)
    return max(widest, column.min_width or 0)


def _natural(console: Console, table: Table) -> int:
    """Columns of text that a table takes with nothing folded, its title left out."""
    return Measurement.get(console, console.options.update(width=UNBOUNDED), table).maximum
