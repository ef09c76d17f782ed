"""The one way a figure gets into a file: equal figures give equal bytes, and a file is whole or not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from stau_rl.figures.palette import Ground
from stau_rl.figures.style import theme
from stau_rl.files.whole import whole_file

DPI = 200
# Neither the date nor the version of the library.
METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save(draw: Callable[[], Figure], *paths: Path, ground: Ground = "light", dpi: int = DPI) -> None:
    """Draw a figure once, and write it as PNG, SVG or PDF.

    Args:
        draw: draws it.
        paths: the files to write; the suffix, `.png`, `.svg` or `.pdf`, says as what.
        ground: what it is drawn on.
        dpi: dots per inch of a PNG.

    Raises:
        ValueError: another suffix.
        OSError: a file cannot be written.
    """
    for path in paths:
        if path.suffix not in METADATA:
            raise ValueError(f"a figure is written as .png, .svg or .pdf, got {path.name!r}")
    with theme(ground):
        figure = draw()
        for path in paths:
            with whole_file(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], dpi=dpi, metadata=METADATA[path.suffix])


def both(path: Path) -> tuple[Path, Path]:
    """A figure's file as PNG, and the one as SVG beside it."""
    return path.with_suffix(".png"), path.with_suffix(".svg")
