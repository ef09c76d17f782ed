"""`python -m stau_rl.pages.attention` writes docs/attention.md, its figures and its notebook from the committed rows.

`--publish DIR` first takes the rows of a finished `stau-rl probe --size full --out DIR`.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from stau_rl.files.whole import whole_file
from stau_rl.pages.attention_data import AttentionData, publish
from stau_rl.pages.attention_figures import save_figures
from stau_rl.pages.attention_text import page
from stau_rl.pages.notebooks import ATTENTION, notebook
from stau_rl.pages.paths import DOCS, NOTEBOOKS

PAGE = DOCS / "attention.md"
NOTEBOOK = NOTEBOOKS / "recall_and_silence.ipynb"


def write(data: AttentionData) -> None:
    """Write the page, the figures and the notebook."""
    save_figures(data, PAGE.parent)
    for path, text in ((PAGE, page(data)), (NOTEBOOK, notebook(ATTENTION))):
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.attention", description=__doc__)
    parser.add_argument("--publish", type=Path, metavar="DIR", help="take the rows of this probe's folder first")
    parser.add_argument("--commit", default="", help="what made the rows, where no checkout could tell")
    started = time.perf_counter()
    options = parser.parse_args(arguments)
    if options.publish is not None:
        try:
            publish(options.publish, commit=options.commit)
        except (OSError, ValueError) as error:
            parser.error(" ".join(str(error).split()))
    write(AttentionData.load())
    print(f"{PAGE} written in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
