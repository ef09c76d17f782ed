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
    return "\n\n".join(_plain(header, body, left + part) for part in parts or [[]])


def _plain(header: Sequence[str], rows: Iterable[Sequence[str]], places: Sequence[int]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line[place] for place in places) + " |" for line in lines)
