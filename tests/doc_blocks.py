"""The blocks of code in README.md, docs/ and CONTRIBUTING.md, for the tests that run them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "notebooks"),
]


def blocks(path: Path, language: str) -> list[tuple[str, str]]:
    """Name of the example, empty for most, and text of every fenced block in a language."""
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"(?:<!-- example: (.*?) -->\n)?^```{language}\n(.*?)^```", text, flags=re.S | re.M)


def example(name: str) -> str:
    """The block below `<!-- example: NAME -->`, wherever it stands."""
    (code,) = [code for path in PAGES for found, code in blocks(path, "python") if found == name]
    return code


def own_head() -> str:
    """The plug-in file that docs/guide/own_head.md shows."""
    (code,) = [code for _, code in blocks(ROOT / "docs/guide/own_head.md", "python") if "@asinh.triton" in code]
    return code


def example_task() -> str:
    """The file of a task of one's own that docs/guide/attention.md shows."""
    (code,) = [code for _, code in blocks(ROOT / "docs/guide/attention.md", "python") if "@task(" in code]
    return code
