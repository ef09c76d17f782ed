"""The line of the published experiment in the table of claims, from its own committed rows.

`notebooks/results/published_curve.csv` has a row per head and sharpness with the columns `head`, `sharpness`,
`published` (whether the published grid has it), `regret`, `regret_low` and `regret_high`.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from stau_rl.pages.claim_lines import Line
from stau_rl.pages.claim_verdict import CLAIMED
from stau_rl.pages.paths import DOCS, RESULTS
from stau_rl.regret.report import interval

ROWS, FIGURE = "published_curve.csv", "published_curve.png"
HEADS = ("clamp_power", "softmax")
HEADING = "The published experiment"
# Percent within which a number is the published one.
NEAR = 1.0


def published_line(folder: Path = RESULTS) -> Line | None:
    """The published 35 % beside ours, each head at the best of its published grid; None where the rows are not there.

    The interval is that of a ratio of two means whose errors are taken as independent, which is wide for paired runs.
    """
    path = folder / ROWS
    if not path.exists():
        return None
    rows = pd.read_csv(path)
    mine = rows[rows["published"].astype(bool)].to_dict("records")
    best = [min((row for row in mine if row["head"] == head), key=lambda row: float(row["regret"])) for head in HEADS]
    ratio = best[0]["regret"] / best[1]["regret"]
    error = float(np.hypot(*((row["regret_high"] - row["regret_low"]) / 2 / row["regret"] for row in best)))
    percent, low, high = (100 * (ratio * (1 + sign * error) - 1) for sign in (0, -1, 1))
    near = low - NEAR <= -CLAIMED <= high + NEAR
    return Line(
        f"{CLAIMED:g} % less, as published",
        f"-{CLAIMED:g} %",
        f"{interval(percent, low, high)} %",
        "reproduced" if near else "not reproduced",
        HEADING,
    )


def top_figure(folder: Path = DOCS) -> str | None:
    """The figure of the published experiment, if it has been drawn."""
    return FIGURE if (folder / FIGURE).exists() else None
