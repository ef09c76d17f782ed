"""The figure of the published experiment: regret against sharpness, three heads that meet at argmax."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from stau_rl.figures.grid import one_panel
from stau_rl.figures.labels import label_ends
from stau_rl.figures.palette import INK, looks, on
from stau_rl.figures.save import both, save
from stau_rl.figures.style import SMALL, ground, headline, plain_log, styled

NAMES = {"clamp_power": "max(s, eps)^tau", "s_tau": "softplus(s)^tau", "softmax": "softmax"}
LOOKS = {"clamp_power": "escort", "s_tau": "s_tau", "softmax": "softmax"}


@styled
def draw_published(rows: pd.DataFrame) -> Figure:
    """Mean regret over tau or beta, with the two published grids shaded and the 35 % between their steep ends."""
    figure, axes = one_panel(4.4)
    styles = dict(zip(NAMES, looks(list(LOOKS.values()), ground()), strict=True))
    lines, steep = [], {}
    for head, name in NAMES.items():
        mine = rows[rows["head"] == head].sort_values("sharpness")
        look = styles[head]
        lines += axes.plot(mine["sharpness"], mine["regret"], marker=".", label=name, **look.line)
        axes.fill_between(mine["sharpness"], mine["regret_low"], mine["regret_high"], color=look.colour, alpha=0.2)
        grid = mine[mine["published"].astype(bool)]
        if len(grid):
            steep[head] = grid.iloc[-1]
            ends = grid["sharpness"].min(), grid["sharpness"].max()
            # One band above the other, so that both are seen where they overlap.
            low, high = (0.0, 0.06) if head == "softmax" else (0.06, 0.12)
            axes.axvspan(*ends, low, high, color=look.colour, alpha=0.3, linewidth=0)
            axes.annotate(
                f"published grid of {name}",
                (ends[1] * 1.15, (low + high) / 2),
                xycoords=("data", "axes fraction"),
                va="center",
                fontsize=SMALL - 1,
            )
            axes.plot(steep[head]["sharpness"], steep[head]["regret"], "o", color=look.colour, markersize=7)
    limit = float(rows.loc[rows["head"] == "argmax", "regret"].iloc[0])
    reach = rows.loc[rows["head"] != "argmax", "sharpness"]
    dots: dict[str, Any] = {"color": INK[ground()], "linestyle": (0, (1, 2)), "linewidth": 1.2}
    (bound,) = axes.plot([reach.min(), reach.max()], [limit, limit], label="argmax", **dots)
    ours, theirs = steep["clamp_power"], steep["softmax"]
    percent = 100 * (ours["regret"] / theirs["regret"] - 1)
    place = theirs["sharpness"]
    axes.annotate(
        "", (place, ours["regret"]), (place, theirs["regret"]), arrowprops={"arrowstyle": "<->", "color": INK[ground()]}
    )
    axes.annotate(
        f"the {percent:.0f} %".replace("-", "\N{MINUS SIGN}"),
        (place, float(np.sqrt(ours["regret"] * theirs["regret"]))),
        (8 * place, 1.2 * theirs["regret"]),
        arrowprops={"arrowstyle": "-", "color": INK[ground()], "linewidth": 0.7},
        color=on(styles["clamp_power"].colour, ground(), 4.5),
        fontweight="bold",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(0.72 * limit, 1.1 * float(rows["regret"].max()))
    axes.set_xlabel("sharpness: tau of the powers, beta of softmax")
    axes.set_ylabel("cumulative pseudo-regret, 3 000 steps")
    for which in ("x", "y"):
        plain_log(axes, which)
    headline(figure, "Where does the published 35 % come from?")
    label_ends(axes, [*lines, bound])
    return figure


def save_published(rows: pd.DataFrame, path: Path) -> None:
    """Write the figure as PNG and SVG; equal rows give equal bytes."""
    save(partial(draw_published, rows), *both(path))
