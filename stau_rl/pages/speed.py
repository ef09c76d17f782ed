"""`python -m stau_rl.pages.speed` redraws docs/speed.png from the committed rows; `pages.tables` writes the tables.

Of every device, engine, head and number of arms the last row counts.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stau_rl.figures.grid import legend_below
from stau_rl.figures.palette import DASHED, DOTTED, SOLID, Look, looks
from stau_rl.figures.save import both, save
from stau_rl.figures.style import WIDTH, ground, headline, plain_log
from stau_rl.pages.paths import DOCS, RESULTS
from stau_rl.speed.loops import PEERS_ARMS
from stau_rl.speed.rows import PEERS, compare, latest, read

FIGURE = DOCS / "speed.png"
ROWS = RESULTS / "speed.csv"
NOTHING = "-"
LOWER = 2.9
"""Inches of the panels by the number of arms."""


def tables(rows: pd.DataFrame) -> dict[str, list[tuple[str, ...]]]:
    """The tables of docs/speed.md, header first: `speed` beside the peers, `speed_arms` by the number of arms.

    Args:
        rows: as in `stau_rl.speed.rows`.
    """
    rows = latest(rows)
    beside: list[tuple[str, ...]] = [
        ("device", "head", "loop", "G arm-steps/s", "the engine is", "MiB", "special-function units")
    ]
    for (device, head), some in rows[rows["arms"] == PEERS_ARMS].groupby(["device", "head"], sort=False):
        best, _ = compare(some)
        top = some.loc[some["engine"] == best, "median"].max()
        for row in some.sort_values("median", ascending=False).to_dict("records"):
            beside.append(
                (
                    str(device),
                    f"`{head}`",
                    row["engine"],
                    f"{_giga(row['median'])} ({_giga(row['p20'])}, {_giga(row['p80'])})",
                    f"{top / row['median']:.1f} x" if best else NOTHING,
                    _number(row["peak_memory_mib"], ".0f"),
                    _number(row["ceiling_share"], ".0%"),
                )
            )
    engines = rows[~rows["engine"].str.startswith(PEERS)]
    arms = sorted(engines["arms"].unique())
    by_arms: list[tuple[str, ...]] = [("device", "engine", "head", *(f"K = {k}" for k in arms))]
    for (device, engine, head), some in engines.groupby(["device", "engine", "head"], sort=False):
        medians = dict(zip(some["arms"], some["median"], strict=True))
        if len(medians) > 1:
            cells = (_giga(medians[k]) if k in medians else NOTHING for k in arms)
            by_arms.append((str(device), str(engine), f"`{head}`", *cells))
    return {"speed": beside, "speed_arms": by_arms}


def draw(rows: pd.DataFrame, *paths: Path) -> None:
    """Draw a panel per device with every loop at ten arms, and one with the engines by the number of arms.

    Args:
        rows: as in `stau_rl.speed.rows`.
        paths: the files to write: `.png` or `.svg`.
    """
    save(lambda: _figure(latest(rows)), *paths, dpi=150)


def _figure(rows: pd.DataFrame) -> Figure:
    devices = list(dict.fromkeys(rows["device"]))
    heads = [str(head) for head in dict.fromkeys(rows["head"])]
    # Dashes tell engines apart.
    styles = {head: replace(look, dash=SOLID) for head, look in zip(heads, looks(heads, ground()), strict=True)}
    loops = [rows[(rows["device"] == device) & (rows["arms"] == PEERS_ARMS)]["engine"].nunique() for device in devices]
    heights = [0.34 * count + 0.8 for count in loops]
    upper = sum(heights) + 0.5
    figure = Figure(figsize=(WIDTH, upper + LOWER), layout="constrained")
    (above,), (below,) = figure.subfigures(2, 1, squeeze=False, height_ratios=[upper, LOWER])
    loops_of = above.subplots(len(devices), 1, squeeze=False, height_ratios=heights)[:, 0]
    arms_of = below.subplots(1, len(devices), squeeze=False)[0]
    for device, loop_panel, arms_panel in zip(devices, loops_of, arms_of, strict=True):
        here = rows[rows["device"] == device]
        _loops(loop_panel, here[here["arms"] == PEERS_ARMS], styles, str(device))
        _arms(arms_panel, here, styles, str(device))
    headline(figure, "How fast is a step, beside other ways to write it?")
    legend_below(figure, {head: look.key(marker=True) for head, look in styles.items()})
    return figure


def _loops(panel: Axes, rows: pd.DataFrame, styles: dict[str, Look], device: str) -> None:
    """A line per loop, the fastest on top, and a mark per head."""
    order = list(rows.groupby("engine")["median"].max().sort_values().index)
    for number, (head, look) in enumerate(styles.items()):
        some = rows[rows["head"] == head].set_index("engine").reindex(order)
        middle = some["median"] / 1e9
        spread = [middle - some["p20"] / 1e9, some["p80"] / 1e9 - middle]
        heights = [place + 0.2 * (number - (len(styles) - 1) / 2) for place in range(len(order))]
        panel.errorbar(
            middle, heights, xerr=spread, linestyle="none", color=look.colour, marker=look.marker, markersize=6
        )
    panel.set_xscale("log")
    plain_log(panel, "x")
    panel.set_yticks(range(len(order)), order, fontsize="small")
    panel.set_ylim(-0.6, len(order) - 0.4)
    panel.set_title(f"{device}, {PEERS_ARMS} arms", fontsize="small")
    panel.set_xlabel("10⁹ arm-steps per second: median, 20 % to 80 %", fontsize="small")


def _arms(panel: Axes, rows: pd.DataFrame, styles: dict[str, Look], device: str) -> None:
    """The engines that were timed with several numbers of arms."""
    for head, look in styles.items():
        for number, (engine, curve) in enumerate(rows[rows["head"] == head].groupby("engine", sort=False)):
            if curve["arms"].nunique() > 1:
                curve, dash = curve.sort_values("arms"), (SOLID, DASHED, DOTTED)[number % 3]
                style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": dash}
                panel.plot(curve["arms"], curve["median"] / 1e9, label=str(engine), **style)
    engines = dict.fromkeys(str(line.get_label()) for line in panel.get_lines())
    panel.set_xscale("log")
    panel.set_yscale("log")
    plain_log(panel, "x")
    plain_log(panel, "y")
    panel.set_title(f"{', '.join(engines)}: {device}", fontsize="small")
    panel.set_xlabel("arms", fontsize="small")
    panel.set_ylabel("10⁹ arm-steps/s", fontsize="small")


def _giga(value: float) -> str:
    value /= 1e9
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"


def _number(value: float, form: str) -> str:
    return NOTHING if pd.isna(value) else format(value, form)


def main() -> None:
    """Redraw."""
    draw(read(ROWS), *both(FIGURE))
    sys.stdout.write(f"{FIGURE.name} drawn from {ROWS.name}\n")


if __name__ == "__main__":
    main()
