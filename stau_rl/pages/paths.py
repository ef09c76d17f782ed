"""Where the files of a checkout lie that pages are made from and written to."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = ROOT / "notebooks"
RESULTS = NOTEBOOKS / "results"
README = ROOT / "README.md"
