"""Results as tables in a notebook: what a console prints of them, as HTML and as Markdown."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from html import escape
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

ROWS = 100
"""Rows of a table that are shown; a line below it says how many there are beyond."""
OPEN = 6
"""Lines of text that stand open below a table; more of them are folded until somebody asks."""


class ShownAsTables(ABC):
    """An object that shows in a notebook, and on a rich console, as its `__rich__` has it."""

    __slots__ = ()

    @abstractmethod
    def __rich__(self) -> RenderableType:
        """The tables and texts to show: rich's `Table`, `Text` or `str`, or a `Group` of them."""

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html(self.__rich__())

    def _repr_markdown_(self) -> str:
        """What a notebook shows where Markdown is all that it takes."""
        return markdown(self.__rich__())


def html(shown: RenderableType) -> str:
    """Tables and texts of a rich console as HTML; titles become captions, and every text is escaped.

    Args:
        shown: a `Table`, `Text` or `str`, or a `Group` of them.

    Raises:
        TypeError: there is something else in it.
    """
    parts = []
    for part in _parts(shown):
        if isinstance(part, Table):
            parts.append(_html_table(part))
            continue
        lines = "<br/>\n".join(map(escape, part))
        folded = len(part) > OPEN
        parts.append(f"<details><summary>Notes</summary>\n<p>{lines}</p>\n</details>" if folded else f"<p>{lines}</p>")
    return "\n".join(["<div>", *parts, "</div>"])


def markdown(shown: RenderableType) -> str:
    """As `html`, in Markdown with the tables of GitHub's dialect."""
    parts = []
    for part in _parts(shown):
        if not isinstance(part, Table):
            parts += [_escaped(line) for line in part]
            continue
        if title := _plain(part.title):
            parts.append(f"**{_escaped(title)}**")
        header, rows, beyond = _cells(part)
        rules = ["---:" if column.justify == "right" else "---" for column in part.columns]
        lines = [[_escaped(cell) for cell in header], rules, *([_escaped(cell) for cell in row] for row in rows)]
        parts.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
        parts += [beyond] if beyond else []
    return "\n\n".join(parts)


def _html_table(table: Table) -> str:
    header, rows, beyond = _cells(table)
    sides = ["right" if column.justify == "right" else "left" for column in table.columns]

    def line(tag: str, cells: list[str]) -> str:
        made = (
            f'<{tag} style="text-align: {side}">{escape(cell).replace(chr(10), "<br/>")}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    title = _plain(table.title)
    caption = f'<caption style="caption-side: top; text-align: left">{escape(title)}</caption>\n' if title else ""
    body = "\n".join(line("td", row) for row in rows)
    below = f"\n<p>{beyond}</p>" if beyond else ""
    return f"<table>\n{caption}<thead>{line('th', header)}</thead>\n<tbody>\n{body}\n</tbody>\n</table>{below}"


def _parts(shown: RenderableType) -> Iterator[Table | list[str]]:
    """Tables, and the lines of each text that is not empty."""
    if isinstance(shown, Group):
        for part in shown.renderables:
            yield from _parts(part)
    elif isinstance(shown, Table):
        yield shown
    elif lines := [line for line in _plain(shown).split("\n") if line.strip()]:
        yield lines


def _cells(table: Table) -> tuple[list[str], list[list[str]], str]:
    """Header, the first rows, and a sentence about the others."""
    header = [_plain(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    shown = [[_plain(cell) for cell in row] for row in islice(rows, ROWS)]
    left = table.row_count - len(shown)
    return header, shown, f"{left} more row{'s' if left > 1 else ''}." if left else ""


def _plain(shown: object) -> str:
    """The text that a console would show; rich takes a string for markup."""
    if shown is None:
        return ""
    if isinstance(shown, Text):
        return shown.plain
    if isinstance(shown, str):
        return Text.from_markup(shown, emoji=False).plain
    raise TypeError(f"shown must be made of rich's Table, Text, str and Group, got {type(shown).__name__}")


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~#$])", r"\\\1", text).replace("\n", "<br/>")
