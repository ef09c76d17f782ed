"""Writes the notebooks, with the outputs that their files keep, as Markdown pages of the site, figures beside them."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from stau_rl.pages.notebook_outputs import is_current, paths
from stau_rl.pages.paths import DOCS

PAGES = DOCS / "notebooks"


def write_pages(folder: Path = PAGES) -> list[Path]:
    """Write a page of every notebook; none is executed.

    Args:
        folder: where to, made if it is not there. It may be inside docs/ alone, as links are relative.

    Returns:
        The pages.

    Raises:
        ValueError: a notebook's outputs are not those of its cells and rows.
    """
    folder.mkdir(exist_ok=True)
    return [write_page(path, folder) for path in paths()]


def write_page(path: Path, folder: Path) -> Path:
    """Write the page of one notebook; as `write_pages`."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if not is_current(path.stem, notebook):
        raise ValueError(
            f"the outputs in {path.name} are of other cells or rows; run python -m stau_rl.pages.notebook_outputs "
            f"{path.stem}, which needs the extra notebooks"
        )
    parts = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            # A notebook lies beside docs/, its page inside.
            parts.append(source.replace("](../docs/", "](../"))
            continue
        parts.append(f"```python\n{source}\n```")
        for place, output in enumerate(cell["outputs"]):
            figure = folder / f"{path.stem}_{number}_{place}.png"
            parts.append(_shown(output, figure))
    page = folder / f"{path.stem}.md"
    page.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return page


def _shown(output: dict[str, Any], figure: Path) -> str:
    """One output as Markdown: a figure, a table, or text."""
    data = {"text/plain": output["text"]} if output["output_type"] == "stream" else output["data"]
    if "image/png" in data:
        figure.write_bytes(base64.b64decode(data["image/png"]))
        return f"![{figure.stem.replace('_', ' ')}]({figure.name})"
    if "text/html" in data:
        # The style that pandas puts before its table is the theme's business here.
        table = re.sub(
            r"<style.*?</style>|</?div>|\s*border=\"1\" class=\"dataframe\"", "", "".join(data["text/html"]), flags=re.S
        )
        return re.sub(r"\n\s*", "\n", table).strip()
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
