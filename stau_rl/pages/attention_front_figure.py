"""The figure that docs/attention.md opens with: silence by gate and start, and by what is taught."""

from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from stau_rl.figures.grid import panels
from stau_rl.figures.labels import label_ends
from stau_rl.figures.palette import looks
from stau_rl.figures.save import both, save
from stau_rl.figures.style import ground, headline, styled
from stau_rl.pages.attention_asked import Asked
from stau_rl.pages.attention_front import NAMES, frame
from stau_rl.statistics.means import wilson_interval

TAUGHT = {"sm_fir": "softmax", "pn_fir_tau": "pn_fir_tau", "escort_fir": "escort", "lssar_fir": "lssar"}


@styled
def draw_claims(asked: Asked) -> Figure:
    """Seeds that are silent and keep recall by gate and start; made-up answers by the share of silent rows taught."""
    figure, (left, right) = panels(2, 3.6, columns=1)
    table = frame(asked)
    lines = []
    for name, look in zip(NAMES, looks(["pn_fir_tau", "s_tau", "softmax", "escort"], ground()), strict=True):
        mine = table[table["gate"] == name].sort_values("start")
        share = mine["held"] / mine["of"]
        ends = np.array([wilson_interval(held, of) for held, of in zip(mine["held"], mine["of"], strict=True)])
        lines += left.plot(mine["start"], share, marker="o", label=f"gate {name}", **look.line)
        left.fill_between(mine["start"], ends[:, 0], ends[:, 1], color=look.colour, alpha=0.15, linewidth=0)
    left.set_xlabel("start of the learned threshold")
    left.set_ylabel("seeds silent and right")
    left.set_ylim(-0.03, 1.03)
    label_ends(left, lines)
    lines = []
    part = asked.of("silence share")
    for (name, shown), look in zip(TAUGHT.items(), looks(list(TAUGHT.values()), ground()), strict=True):
        mine = part[part["normaliser"] == name]
        shares = mine["task"].str.slice(21, -1).astype(float)
        means = 100 * mine.groupby(shares)["hallucination"].mean()
        lines += right.plot(means.index, means.to_numpy(), marker="o", label=shown, **look.line)
    right.axhspan(27.2, 34.4, color="grey", alpha=0.25, linewidth=0)
    right.annotate("published for other heads", (0.5, 30.8), ha="right", va="center", fontsize="small")
    right.set_xlabel("share of unanswerable rows in training")
    right.set_ylabel("made-up answers, %")
    label_ends(right, lines)
    headline(figure, "Which heads stay silent where there is no answer?")
    return figure


def save_claims(asked: Asked, path: Path) -> None:
    """Write the figure as PNG and SVG; equal rows give equal bytes."""
    save(partial(draw_claims, asked), *both(path))
