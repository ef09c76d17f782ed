"""Section of docs/attention.md on tau* and trained scores, written from the committed rows."""

import numpy as np
import pandas as pd

from stau_rl.envs.tasks import parse_task
from stau_rl.pages.markdown import listing
from stau_rl.pages.tau_models import GROUPS, HEADS, PER_HEAD, SHARED, SOFTMAX
from stau_rl.pages.tau_rows import CLOSED, LEAST_KL, MANY, ONE_BEST, ONE_KL, SHIFTS
from stau_rl.pages.trained_claims import (
    KEPT,
    LEARNED,
    LOOKS,
    PUBLISHED_R,
    WINDOW,
    Swap,
    TrainedScores,
    agreement,
    agreement_verdict,
    at_loss,
    difference,
    foreseen,
    last,
    sign,
    swap,
    swap_verdict,
    within,
)
from stau_rl.statistics.means import MeanInterval, mean_interval
from stau_rl.statistics.robust import Estimate

COMPARED = 0.1
"""The validation loss, nats, of the section's table; the others stand among the longer tables."""
RULES = {SOFTMAX: "softmax", PER_HEAD: "s^tau, tau per head", SHARED: "s^tau, one tau"}
LOOKING = {
    "below_1e6": "share of weights below 1e-6",
    "below_1e3": "share of weights below 1e-3",
    "top10_mass": "mass of the ten largest",
    "entropy": "entropy, nats",
}


def trained_section(data: TrainedScores, taus: pd.DataFrame) -> str:
    """The section as Markdown: the verdicts, one table, why, how it was made.

    Args:
        data: the rows of `stau_rl.pages.trained_scores`.
        taus: those of `stau_rl.pages.tau_star`, models trained for a short time.
    """
    return "\n\n".join(
        [
            "## tau* and trained scores",
            "\n".join(f"- {sentence}" for sentence in (_correlation(data), _swaps(data), _sparsity(data))),
            _claims_table(data),
            _why(data, taus),
            _made(data),
        ]
    )


def estimate_text(found: Estimate, digits: int = 2) -> str:
    """A number with its interval, where it has one."""
    if not np.isfinite(found.value):
        return "-"
    if not np.isfinite(found.low):
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def mean_text(found: MeanInterval, digits: int = 3) -> str:
    """A mean with its interval."""
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _correlation(data: TrainedScores) -> str:
    found = agreement(data.learned())
    window, every = agreement(within(data.learned())), agreement(data.heads[data.heads["shift"] == 0])
    bias = (
        f"the closed form is too small all the same, by a factor of {found.factor:.1f} in the median"
        if found.factor > 1.2
        else f"the two agree in size, the median ratio being {found.factor:.2f}"
    )
    return (
        f"**The closed-form tau\\* correlates with the grid's best tau at r = {PUBLISHED_R:g}: "
        f"{agreement_verdict(found)}.** Over {found.heads} heads of {found.models} models, tau\\* from "
        f"{found.closed[0]:.2f} to {found.closed[2]:.2f}, r = {estimate_text(found.pearson)}; {bias}. In the window "
        f"{WINDOW[0]:.2f} to {WINDOW[1]:.2f} the same rows give {window.pearson.value:.2f}. With s^tau's own models "
        f"and those that have not learned, {every.heads} heads with tau\\* up to {every.closed[2]:.1f}, r = "
        f"{estimate_text(every.pearson)}."
    )


def _swaps(data: TrainedScores) -> str:
    own, closed, one, kl = (swap(data, choice) for choice in (LEAST_KL, CLOSED, ONE_BEST, ONE_KL))
    ends = {rule: last(data, rule)["loss"] for rule in (PER_HEAD, SHARED)}
    gap = mean_interval(ends[PER_HEAD] - ends[SHARED])
    word = ("a loss no different from that of one tau", "a higher loss than one tau", "a lower loss than one tau")
    return (
        f"**One tau for all heads collapses where a tau per head does not: {swap_verdict(own, one)}.** Put into "
        f"trained softmax attention, the tau of least KL of each head keeps {100 * own.kept.mean:.1f} % of the right "
        f"answers and the best single tau {100 * one.kept.mean:.1f} %, the one of least mean KL "
        f"{100 * kl.kept.mean:.1f} %; the closed form, head by head, keeps {100 * closed.kept.mean:.1f} %. Learned "
        f"from the start, a tau per head has {word[sign(gap)]}: {mean_text(gap)} nats more."
    )


def _sparsity(data: TrainedScores) -> str:
    pairs = at_loss(data, COMPARED)
    found = {look: difference(pairs, look) for look in LOOKS}
    sparser = {1: "sparser than", -1: "less sparse than", 0: "no sparser than"}[sign(found["below_1e6"])]
    ten = {1: "more", -1: "less", 0: "no different"}[sign(found["top10_mass"])]
    numbers = (f"{LOOKING[look]} {part.mean:+.3f} [{part.low:+.3f}, {part.high:+.3f}]" for look, part in found.items())
    return (
        f"**At equal loss the weights of s^tau are {sparser} those of softmax, with {ten} mass on the ten largest.** "
        f"Where training reaches a validation loss of {COMPARED:g} nats, s^tau with a learned tau per head, less "
        f"softmax, over {len(pairs)} seeds: {'; '.join(numbers)}."
    )


def _claims_table(data: TrainedScores) -> str:
    found, window = agreement(data.learned()), agreement(within(data.learned()))
    own, closed, one = (swap(data, choice) for choice in (LEAST_KL, CLOSED, ONE_BEST))
    pairs = at_loss(data, COMPARED)
    narrow = "lower" if window.pearson.value < found.pearson.value else "no lower"
    rows = [
        ("r of tau\\* and the grid", f"{PUBLISHED_R:g}", estimate_text(found.pearson), agreement_verdict(found)),
        (f"the same, tau\\* in {WINDOW[0]:.2f} to {WINDOW[1]:.2f}", "-", estimate_text(window.pearson), narrow),
        ("answers kept after the swap, tau of least KL per head", "keeps", mean_text(own.kept), _keeps(own)),
        ("the same, closed form per head", "keeps", mean_text(closed.kept), _keeps(closed)),
        ("the same, best single tau", "collapses", mean_text(one.kept), swap_verdict(own, one).split(",")[0]),
    ]
    for look in LOOKS:
        values = [pairs[look, rule].mean() for rule in (SOFTMAX, PER_HEAD)]
        difference_ = difference(pairs, look)
        verdict = {1: "more with s^tau", -1: "less with s^tau", 0: "undecided"}[sign(difference_)]
        rows.append((f"{LOOKING[look]}, loss {COMPARED:g}", "-", f"{values[0]:.3f} to {values[1]:.3f}", verdict))
    return listing(("claim", "published", "here", "verdict"), rows)


def _keeps(found: Swap) -> str:
    return "keeps" if found.kept.mean >= KEPT else "loses"


def _why(data: TrainedScores, taus: pd.DataFrame) -> str:
    heads = data.learned()
    whole, window = agreement(heads), agreement(within(heads))
    shifted = {shift: agreement(data.learned(shift)) for shift in SHIFTS}
    mixed = agreement(pd.concat([data.learned(shift) for shift in SHIFTS]))
    most, short = max(SHIFTS), float(np.corrcoef(taus["tau_closed"], taus["tau_grid"])[0, 1])
    return (
        f"Why it depends on the range: with the scatter of all these heads, the {window.heads} of {whole.heads} within "
        f"the window would show r = {foreseen(heads):.2f}; they show {window.pearson.value:.2f}, and the heads of "
        f"`tau_star.csv`, trained for a short time, {short:.2f}. Scores that lie evenly around 0 have a closed form "
        f"near 1.5 however sharp the head is, as below 0 s^tau is softmax and takes most of the squares; the "
        f"divergence looks at the largest scores, whose tau grows with them, to {whole.grid[2]:.0f} here. Neither is a "
        f"property of the attention: {most:g} added to all scores leaves softmax's weights as they are and takes the "
        f"median closed form from {shifted[0.0].closed[1]:.2f} to {shifted[most].closed[1]:.2f}, the grid's from "
        f"{shifted[0.0].grid[1]:.1f} to {shifted[most].grid[1]:.1f}, and r from {shifted[0.0].pearson.value:.2f} to "
        f"{shifted[most].pearson.value:.2f}; heads at offsets of {', '.join(f'{shift:g}' for shift in SHIFTS)} taken "
        f"together give {mixed.pearson.value:.2f}."
    )


def _made(data: TrainedScores) -> str:
    groups = []
    for group in GROUPS:
        task, recipe = parse_task(group.task), group.recipe
        own = data.heads[(data.heads["group"] == group.name) & (data.heads["shift"] == 0)]
        right = own.groupby(["head_rule", "seed"])["accuracy"].first()
        learned = ", ".join(
            f"{(right[rule] >= LEARNED).sum()} of {len(right[rule])} of {RULES[rule]}" for rule in group.heads
        )
        groups.append(
            f"`{group.name}`: {group.layers} layers, width {group.width}, {task.length} places, {recipe.steps} steps "
            f"at a rate of {recipe.rate:g}, {'MLP' if group.mlp else 'no MLP'}; learned: {learned}"
        )
    minutes = data.timing["seconds"].sum() / 60
    commits = ", ".join(text[:12] for text in data.heads["commit"].unique())
    return (
        f"Transformers of {HEADS} heads a layer learn multi-query recall; a model has learned where at least "
        f"{100 * LEARNED:g} % of its answers are right. {'; '.join(groups)}. Rows of the last layer are the queries, "
        f"of the others all places; sparsity is that of rows of more than {MANY} keys. "
        f"`python -m stau_rl.pages.trained_scores DIR` makes the rows anew, in {minutes:.0f} minutes on one core "
        f"({data.timing['device'].iloc[0]}; {data.heads['versions'].iloc[0]}; commit {commits})."
    )
