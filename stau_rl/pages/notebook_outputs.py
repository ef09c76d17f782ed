"""`python -m stau_rl.pages.notebook_outputs` executes the notebooks and keeps what they show in their files.

A file keeps the digest of its cells and of the committed rows that they show, so that outputs of other cells or rows
are seen. Times, versions and the numbers of a kernel's session are left out. It needs the extra `notebooks`.
"""

import argparse
import base64
import hashlib
import io
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stau_rl.files.whole import whole_file
from stau_rl.pages.notebooks import ROWS, notebook
from stau_rl.pages.paths import NOTEBOOKS, RESULTS

DIGEST = "outputs_of"
"""Name in a notebook's metadata."""
COLOURS = 256
"""Of a figure; the file is a third as large as with all of them."""
TIMEOUT = 300
"""Seconds of a cell."""
NEEDED = ("nbformat", "nbclient", "ipykernel")


def main(arguments: Sequence[str] | None = None) -> None:
    """Execute the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.notebook_outputs", description=__doc__)
    known = {path.stem: path for path in paths()}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all by default")
    for name in (names := parser.parse_args(arguments).names):
        if name not in known:
            parser.error(f"NAME must be one of {', '.join(known)}, got {name!r}")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        parser.error(
            f"{', '.join(missing)} missing; install the extra notebooks: "
            "pip install -e '.[notebooks]' -c constraints.txt"
        )
    for name in names or known:
        sys.stderr.write(f"executing {name}\n")
        text = executed(known[name])
        with whole_file(known[name]) as temporary:
            temporary.write_text(text, encoding="utf-8")


def paths() -> list[Path]:
    """The notebooks."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def write_notebook(path: Path, sources: Sequence[tuple[str, str]]) -> None:
    """Write a notebook of cells (kind, source); a file with outputs of these cells and rows is left alone."""
    text = notebook(sources)
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if is_current(path.stem, kept) and without_outputs(kept) == text:
            return
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    sys.stderr.write(f"{path.name} has no outputs: run python -m stau_rl.pages.notebook_outputs {path.stem}\n")


def executed(path: Path) -> str:
    """The text of a notebook with the outputs of all its cells, executed from top to bottom.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    import nbformat

    played = nbformat.read(path, as_version=4)
    play(played)
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    count = 0
    for cell, done in zip(body["cells"], played.cells, strict=True):
        if cell["cell_type"] == "code":
            count += 1
            cell |= {"execution_count": count, "outputs": [_kept(output, count) for output in done.outputs]}
    body["metadata"][DIGEST] = digest(path.stem, body)
    return as_text(body)


def play(notebook: Any) -> None:
    """Execute all cells of a notebook of nbformat, in place and in the notebooks' folder."""
    with warnings.catch_warnings():
        # Event-loop and zmq notices of the Jupyter packages are not the project's.
        warnings.simplefilter("ignore")
        from nbclient import NotebookClient

        resources = {"metadata": {"path": NOTEBOOKS}}
        client = NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources=resources)
        # A kernel's notice of how it is reached is no news here; its errors are.
        client.extra_arguments = ["--IPKernelApp.log_level=ERROR"]
        client.execute()


def is_current(name: str, body: Mapping[str, Any]) -> bool:
    """Whether a notebook's outputs are those of its cells and of the committed rows."""
    return body["metadata"].get(DIGEST) == digest(name, body)


def digest(name: str, body: Mapping[str, Any]) -> str:
    """SHA-256 of a notebook's cells, without outputs, and of the committed files that it reads.

    Args:
        name: of the notebook's file, without its suffix; `stau_rl.pages.notebooks.ROWS` has what it reads.
        body: the notebook.
    """
    found = hashlib.sha256(without_outputs(body).encode())
    for path in sorted(path for pattern in ROWS.get(name, ()) for path in RESULTS.glob(pattern)):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def without_outputs(body: Mapping[str, Any]) -> str:
    """The text of a notebook as `stau_rl.pages.notebooks.notebook` has it."""
    bare: dict[str, Any] = {"execution_count": None, "outputs": []}
    cells = [cell | (bare if cell["cell_type"] == "code" else {}) for cell in body["cells"]]
    metadata = {name: value for name, value in body["metadata"].items() if name != DIGEST}
    return as_text({**body, "cells": cells, "metadata": metadata})


def as_text(body: Mapping[str, Any]) -> str:
    """The text of a notebook's file."""
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _kept(output: Any, count: int) -> dict[str, Any]:
    """One output as it is committed: figures with few colours, and nothing that differs between two executions."""
    kept: dict[str, Any] = json.loads(json.dumps(output))
    if "execution_count" in kept:
        kept["execution_count"] = count
    data = kept.get("data", {})
    if "image/png" in data:
        # Beside a figure its address in memory says nothing.
        data = {"image/png": _small(data["image/png"])}
        kept["metadata"] = {}
    for kind, text in data.items():
        if kind != "image/png":
            data[kind] = text.splitlines(keepends=True)
    if "data" in kept:
        kept["data"] = data
    if isinstance(kept.get("text"), str):
        kept["text"] = kept["text"].splitlines(keepends=True)
    return kept


def _small(figure: str) -> str:
    """A PNG in base64 with `COLOURS` colours, and without what matplotlib notes of itself."""
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(figure))).convert("RGB")
    file = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    main()
