"""Tables of the pages in Markdown."""

from collections.abc import Iterable, Sequence

WIDEST = 100
"""Characters of a line, beyond which a table is split."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], keys: int = 1) -> str:
    """A table in Markdown, its header and a line per row; a wide one becomes several.

    Args:
        header: names of the columns.
        rows: the cells, as many a row as the header has.
        keys: how many columns on the left say what a row is; every part of a split table begins with them.

    Returns:
        Tables of lines of at most `WIDEST` characters, or of one column beside the keys where that alone is wider.
    """
    body = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[place]) for line in [header, *body]) + 3 for place in range(len(header))]
    left = list(range(keys))
    parts: list[list[int]] = []
    room = -1
    for place in range(keys, len(header)):
        if widths[place] > room:
            parts.append([])
            room = WIDEST - 1 - sum(widths[:keys])
        parts[-1].append(place)
        room -= widths[place]
    return "\n\n".join(_part(header, body, left + part) for part in parts or [[]])


def listing(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts, in one piece however wide: a reader of Markdown wraps its cells."""
    return _part(header, rows, range(len(header)))


def _part(header: Sequence[str], rows: Iterable[Sequence[str]], places: Sequence[int]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line[place] for place in places) + " |" for line in lines)


def code(text: str) -> str:
    """Text as code for a cell of a table; a bar in it is written so that every reader of Markdown shows a bar."""
    return f"<code>{text.replace('<', '&lt;').replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"
