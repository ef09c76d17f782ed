"""`python -m stau_rl.pages.attention` writes docs/attention.md, its tables, figures and notebook from rows.

`--publish DIR` first takes the rows of a finished `stau-rl probe --size full --out DIR`; `--claims DIR ...` adds those
of parts of `stau_rl.probe.claims_plan`, such as `gates`, to the others of their kind.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from stau_rl.files.whole import whole_file
from stau_rl.pages.attention_asked import publish_claims
from stau_rl.pages.attention_data import AttentionData, publish
from stau_rl.pages.attention_figures import save_figures
from stau_rl.pages.attention_tables import tables_page
from stau_rl.pages.attention_text import page
from stau_rl.pages.notebook_outputs import write_notebook
from stau_rl.pages.notebooks import ATTENTION
from stau_rl.pages.paths import DOCS, NOTEBOOKS

PAGE = DOCS / "attention.md"
TABLES = DOCS / "attention_tables.md"
NOTEBOOK = NOTEBOOKS / "recall_and_silence.ipynb"


def write(data: AttentionData) -> None:
    """Write both pages, the figures and the notebook."""
    save_figures(data, PAGE.parent)
    for path, text in ((PAGE, page(data)), (TABLES, tables_page(data))):
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    write_notebook(NOTEBOOK, ATTENTION)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.attention", description=__doc__)
    parser.add_argument("--publish", type=Path, metavar="DIR", help="take the rows of this probe's folder first")
    parser.add_argument(
        "--claims", type=Path, nargs="+", default=(), metavar="DIR", help="add the rows of these probes"
    )
    parser.add_argument("--commit", default="", help="what made the rows, where no checkout could tell")
    started = time.perf_counter()
    options = parser.parse_args(arguments)
    try:
        if options.publish is not None:
            publish(options.publish, commit=options.commit)
        if options.claims:
            publish_claims(options.claims)
    except (OSError, ValueError) as error:
        parser.error(" ".join(str(error).split()))
    write(AttentionData.load())
    print(f"{PAGE} written in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
