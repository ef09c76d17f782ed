"""Tables of the pages in Markdown."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: its header, then a line per row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """Text as code for a cell of a table; a bar in it is written so that every reader of Markdown shows a bar."""
    return f"<code>{text.replace('<', '&lt;').replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"
