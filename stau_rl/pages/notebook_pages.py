"""Executes the notebooks and writes them as Markdown pages of the site, their figures beside them."""

import base64
import re
import warnings
from pathlib import Path
from typing import Any

from stau_rl.pages.paths import DOCS, NOTEBOOKS

PAGES = DOCS / "notebooks"


def write_pages(folder: Path = PAGES) -> list[Path]:
    """Execute every notebook and write a page of each.

    Args:
        folder: where to, made if it is not there. It may be inside docs/ alone, as links are relative.

    Returns:
        The pages.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    folder.mkdir(exist_ok=True)
    return [write_page(path, folder) for path in sorted(NOTEBOOKS.glob("*.ipynb"))]


def write_page(path: Path, folder: Path) -> Path:
    """Execute one notebook and write its page; as `write_pages`."""
    with warnings.catch_warnings():
        # Event-loop and zmq notices of the Jupyter packages are not the project's.
        warnings.simplefilter("ignore")
        import nbformat
        from nbclient import NotebookClient

        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": NOTEBOOKS}}
        client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources)
        # A kernel's notice of how it is reached is no news here; its errors are.
        client.extra_arguments = ["--IPKernelApp.log_level=ERROR"]
        client.execute()
    parts = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            # A notebook lies beside docs/, its page inside.
            parts.append(cell.source.replace("](../docs/", "](../"))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for place, output in enumerate(cell.outputs):
            figure = folder / f"{path.stem}_{number}_{place}.png"
            parts.append(_shown(output, figure))
    page = folder / f"{path.stem}.md"
    page.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return page


def _shown(output: Any, figure: Path) -> str:
    """One output as Markdown: a figure, a table, or text."""
    data = {"text/plain": output.text} if output.output_type == "stream" else output.data
    if "image/png" in data:
        figure.write_bytes(base64.b64decode(data["image/png"]))
        return f"![{figure.stem.replace('_', ' ')}]({figure.name})"
    if "text/html" in data:
        # The style that pandas puts before its table is the theme's business here.
        table = re.sub(
            r"<style.*?</style>|</?div>|\s*border=\"1\" class=\"dataframe\"", "", data["text/html"], flags=re.S
        )
        return re.sub(r"\n\s*", "\n", table).strip()
    return f"```text\n{data['text/plain'].rstrip()}\n```"
