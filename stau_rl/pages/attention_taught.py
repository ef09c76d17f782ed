"""The figure that docs/attention.md opens with: answers made up, against how often training had none to give."""

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from stau_rl.figures.grid import one_panel
from stau_rl.figures.labels import label_ends
from stau_rl.figures.palette import INK, looks
from stau_rl.figures.style import SMALL, ground, headline, styled
from stau_rl.pages.attention_asked import Asked
from stau_rl.pages.attention_evidence import PUBLISHED_SPAN, share_of, taught
from stau_rl.statistics.means import mean_interval

SHOWN = {
    "lssar_fir": "lssar",
    "sigmoid_fir": "sigmoid",
    "pn_fir_c": "pn_fir_c",
    "pn_fir_tau": "pn_fir_tau",
    "sm_fir": "softmax",
    "softmax_off_by_one_fir": "softmax off by one",
}
_LIKE = {"lssar_fir": "lssar", "sm_fir": "softmax", "pn_fir_tau": "power_norm"}


@styled
def draw_taught(asked: Asked) -> Figure:
    """Mean hallucination of a few heads with its interval over seeds, and the published numbers."""
    figure, axes = one_panel(3.9)
    found = taught(asked)
    names = [name for name in SHOWN if name in found.names]
    lines = []
    for name, look in zip(names, looks([_LIKE.get(name, name) for name in names], ground()), strict=True):
        each = asked.of("silence share", name)
        parts = [own["hallucination"].to_numpy() for _, own in each.groupby(each["task"].map(share_of))]
        bands = [mean_interval(values) for values in parts]
        low, high = ([max(0.0, band.low) for band in bands], [min(1.0, band.high) for band in bands])
        axes.fill_between(found.shares, low, high, color=look.colour, alpha=0.15, linewidth=0)
        lines += axes.plot(
            found.shares,
            [found.of(name, share) for share in found.shares],
            marker=look.marker,
            markersize=6,
            label=SHOWN[name],
            **look.line,
        )
    axes.axhspan(*PUBLISHED_SPAN, color=INK[ground()], alpha=0.15, linewidth=0)
    axes.annotate(
        "published, other heads",
        (0.37, sum(PUBLISHED_SPAN) / 2),
        va="center",
        ha="right",
        fontsize=SMALL,
        color=INK[ground()],
    )
    axes.annotate(
        "published, pn_fir_tau: 0", (0.49, 0.04), va="bottom", ha="right", fontsize=SMALL, color=INK[ground()]
    )
    axes.set_ylim(-0.03, 1.05)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, 0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    axes.set_xlabel("unanswerable queries in training")
    axes.set_ylabel("answers made up where there is none")
    headline(figure, "Is silence taught, or does the head bring it?")
    label_ends(axes, lines)
    return figure
