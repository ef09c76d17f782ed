"""`python -m stau_rl.pages.speed` redraws docs/speed.png from the committed rows; `pages.tables` writes the tables.

Of every device, engine, head and number of arms the last row counts.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from stau_rl.figures.palette import COLOURS, DASHES
from stau_rl.files.whole import whole_file
from stau_rl.pages.paths import DOCS, RESULTS
from stau_rl.speed.loops import PEERS_ARMS
from stau_rl.speed.rows import PEERS, compare, latest, read

FIGURE = DOCS / "speed.png"
ROWS = RESULTS / "speed.csv"
NOTHING = "-"


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


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Draw a row of two panels per device: every loop at ten arms, and the engines by the number of arms."""
    rows = latest(rows)
    devices = list(dict.fromkeys(rows["device"]))
    with mpl.rc_context():
        mpl.rcdefaults()
        figure = Figure(figsize=(11.0, 4.0 * len(devices)), layout="constrained")
        panels = figure.subplots(len(devices), 2, squeeze=False)
        heads = list(dict.fromkeys(rows["head"]))
        for (bars, lines), device in zip(panels, devices, strict=True):
            here = rows[rows["device"] == device]
            ten = here[here["arms"] == PEERS_ARMS]
            order = list(ten.groupby("engine")["median"].max().sort_values().index)
            for h, head in enumerate(heads):
                some = ten[ten["head"] == head].set_index("engine").reindex(order)
                middle = some["median"] / 1e9
                spread = [middle - some["p20"] / 1e9, some["p80"] / 1e9 - middle]
                places = [place + 0.38 * (h - 0.5) for place in range(len(order))]
                bars.barh(places, middle, 0.36, xerr=spread, color=COLOURS[h], label=head)
                for e, (engine, curve) in enumerate(here[here["head"] == head].groupby("engine", sort=False)):
                    if curve["arms"].nunique() > 1:
                        curve = curve.sort_values("arms")
                        label, style = f"{engine}, {head}", DASHES[e % len(DASHES)]
                        lines.plot(
                            curve["arms"], curve["median"] / 1e9, style, color=COLOURS[h], marker="o", label=label
                        )
            bars.set(xscale="log", yticks=range(len(order)), yticklabels=order, title=f"{device}, {PEERS_ARMS} arms")
            bars.set_xlabel("10⁹ arm-steps per second, median, 20 % and 80 % quantiles")
            lines.set(xscale="log", yscale="log", xlabel="arms", ylabel="10⁹ arm-steps per second")
            lines.set_title("engines by the number of arms")
            for panel in (bars, lines):
                panel.grid(True, linewidth=0.4, alpha=0.5)
                if panel.get_legend_handles_labels()[0]:
                    panel.legend(fontsize=8)
        figure.savefig(path, format="png", dpi=120, metadata={"Software": None})


def _giga(value: float) -> str:
    value /= 1e9
    return f"{value:,.0f}".replace(",", " ") if value >= 100 else f"{value:.3g}"


def _number(value: float, form: str) -> str:
    return NOTHING if pd.isna(value) else format(value, form)


def main() -> None:
    """Redraw."""
    with whole_file(FIGURE) as path:
        draw(read(ROWS), path)
    sys.stdout.write(f"{FIGURE.name} drawn from {ROWS.name}\n")


if __name__ == "__main__":
    main()
