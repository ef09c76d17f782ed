"""`python -m stau_rl.pages.headline DIR` draws docs/headline.* from the run directory of `stau-rl regret --out DIR`.

As PNG and SVG, on light and on dark ground.
"""

import argparse
import sys
from pathlib import Path

from stau_rl.figures.palette import GROUNDS
from stau_rl.figures.save import both
from stau_rl.pages.paths import DOCS
from stau_rl.regret.plot import save_figure
from stau_rl.regret.result import RegretResult

FIGURE = DOCS / "headline.png"


def draw(run: Path, figure: Path = FIGURE) -> None:
    """Write the figure of a finished run in every form that pages use."""
    result = RegretResult.load(run)
    for ground in GROUNDS:
        name = figure.stem + ("_dark" if ground == "dark" else "")
        save_figure(result, *both(figure.with_stem(name)), ground=ground)


def main() -> None:
    """Redraw."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.headline", description=__doc__)
    parser.add_argument("run", type=Path, metavar="DIR", help="directory of a finished run")
    draw(parser.parse_args().run)
    sys.stdout.write(f"{FIGURE.name} drawn\n")


if __name__ == "__main__":
    main()
