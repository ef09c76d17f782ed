"""Section of docs/attention.md on tau* and trained scores, and its longer tables, written from the committed rows."""

import numpy as np
import pandas as pd

from stau_rl.envs.tasks import parse_task
from stau_rl.pages.markdown import table
from stau_rl.pages.tau_models import GROUPS, HEADS, PER_HEAD, SHARED, SOFTMAX
from stau_rl.pages.tau_rows import CLOSED, FIXED, LEAST_KL, MANY, ONE_KL, ONE_MEDIAN, SHIFTS, TRUE
from stau_rl.pages.trained_claims import (
    KEPT,
    LEARNED,
    LOOKS,
    LOSSES,
    PUBLISHED_R,
    WINDOW,
    Agreement,
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
CHOICES = {
    TRUE: "softmax, untouched",
    CLOSED: "tau* of each head, closed form",
    LEAST_KL: "tau* of each head, least KL",
    ONE_KL: "one tau, least mean KL",
    ONE_MEDIAN: "one tau, median closed form",
    **{f"one, {tau:g}": f"tau = {tau:g} everywhere" for tau in FIXED},
}
LOOKING = {
    "below_1e6": "share of weights below 1e-6",
    "below_1e3": "share of weights below 1e-3",
    "top10_mass": "mass of the ten largest",
    "entropy": "entropy, nats",
}


def trained_section(data: TrainedScores) -> str:
    """The section as Markdown: the verdicts, one table, how it was made."""
    return "\n\n".join(
        [
            "## tau* and trained scores",
            "\n".join(f"- {sentence}" for sentence in (_correlation(data), _swaps(data), _sparsity(data))),
            _claims_table(data),
            _why(data),
            _made(data),
        ]
    )


def trained_appendix(data: TrainedScores) -> str:
    """The longer tables: tau* by group, window and shift; every choice of tau; weights at every loss."""
    parts = [
        "## tau* and trained scores",
        "Closed form of tau* against the tau of least KL(softmax || s^tau) on a grid, over heads after training. "
        "Brackets are 95 % intervals of a bootstrap that draws whole models; *independent* is Fisher's interval, which "
        "takes every head for an independent one. *Factor* is the median over heads of the grid's tau by the closed "
        "form.",
        _by_group(data),
        "The heads of softmax's models that have learned their task, with a number added to all of their scores. No "
        "weight of softmax changes.",
        _by_shift(data),
        "Softmax's models that have learned, with s^tau put in and no training after it: means over models with 95 % "
        "Student intervals; *kept* is the share of softmax's right answers; *collapsed* counts models that keep less "
        "than half of them.",
        *(_swap_table(data, group) for group in (None, *_learned_groups(data))),
        "Models of `main` after training from the start: means over seeds with 95 % Student intervals.",
        _from_the_start(data),
        "Weights where training first reaches a validation loss, layers averaged: means over the seeds that reach it "
        "with both heads, and paired differences with 95 % Student intervals.",
        _at_losses(data),
    ]
    return "\n\n".join(parts)


def _estimate(found: Estimate, digits: int = 2) -> str:
    if not np.isfinite(found.value):
        return "-"
    if not np.isfinite(found.low):
        return f"{found.value:.{digits}f}"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _mean(found: MeanInterval, digits: int = 3) -> str:
    return f"{found.mean:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _correlation(data: TrainedScores) -> str:
    found = agreement(data.learned())
    window = agreement(within(data.learned()))
    bias = (
        f"the closed form is too small all the same, by a factor of {found.factor:.1f} in the median"
        if found.factor > 1.2
        else f"the two agree in size, the median ratio being {found.factor:.2f}"
    )
    return (
        f"**The closed-form tau\\* correlates with the grid's best tau at r = {PUBLISHED_R:g}: "
        f"{agreement_verdict(found)}.** Over {found.heads} heads of {found.models} models, tau\\* from "
        f"{found.closed[0]:.2f} to {found.closed[2]:.2f}, r = {_estimate(found.pearson)}; {bias}. In the window "
        f"{WINDOW[0]:.2f} to {WINDOW[1]:.2f} the same rows give {window.pearson.value:.2f}."
    )


def _swaps(data: TrainedScores) -> str:
    own, closed, one = (swap(data, choice) for choice in (LEAST_KL, CLOSED, ONE_KL))
    ends = {rule: last(data, rule)["accuracy"] for rule in (SOFTMAX, PER_HEAD, SHARED)}
    gap = mean_interval(ends[PER_HEAD] - ends[SHARED])
    word = ("as many", "more", "fewer")[sign(gap)]
    return (
        f"**One tau for all heads collapses where a tau per head does not: {swap_verdict(own, one)}.** Put into "
        f"trained softmax attention, the tau of least KL of each head keeps {own.kept.mean:.1%} of the right answers, "
        f"the closed form {closed.kept.mean:.1%}, one tau {one.kept.mean:.1%} ({one.collapsed} of {one.models} models "
        f"collapse). Trained from the start, a tau per head has {word} right answers than one tau "
        f"({_mean(gap)} more)."
    ).replace("as many right answers than", "as many right answers as")


def _sparsity(data: TrainedScores) -> str:
    pairs = at_loss(data, COMPARED)
    words = []
    for look, more, less in (
        ("below_1e6", "more weights below 1e-6", "fewer weights below 1e-6"),
        ("below_1e3", "more below 1e-3", "fewer below 1e-3"),
        ("top10_mass", "more mass on its ten largest", "less mass on its ten largest"),
    ):
        found = difference(pairs, look)
        said = {1: more, -1: less, 0: f"no different {LOOKING[look]}"}[sign(found)]
        words.append(f"{said} ({found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}])")
    return (
        f"**Sparsity at equal loss.** Where training reaches a validation loss of {COMPARED:g} nats, s^tau with a "
        f"learned tau per head has, beside softmax, {', '.join(words)}, over {len(pairs)} seeds."
    )


def _claims_table(data: TrainedScores) -> str:
    found, window = agreement(data.learned()), agreement(within(data.learned()))
    own, one = swap(data, LEAST_KL), swap(data, ONE_KL)
    pairs = at_loss(data, COMPARED)
    rows = [
        ("r of tau\\* and the grid", f"{PUBLISHED_R:g}", _estimate(found.pearson), agreement_verdict(found)),
        (f"the same, tau\\* in {WINDOW[0]:.2f} to {WINDOW[1]:.2f}", "-", _estimate(window.pearson), "narrow range"),
        ("kept, a tau per head", "keeps", _mean(own.kept), "yes" if own.kept.mean >= KEPT else "no"),
        ("kept, one tau", "collapses", _mean(one.kept), swap_verdict(own, one).split(":")[0]),
    ]
    for look in LOOKS:
        values = [pairs[look, rule].mean() for rule in (SOFTMAX, PER_HEAD)]
        difference_ = difference(pairs, look)
        verdict = {1: "more with s^tau", -1: "less with s^tau", 0: "undecided"}[sign(difference_)]
        rows.append((f"{LOOKING[look]}, loss {COMPARED:g}", "-", f"{values[0]:.3f} to {values[1]:.3f}", verdict))
    return table(("claim", "published", "here", "verdict"), rows, keys=2)


def _why(data: TrainedScores) -> str:
    heads = data.learned()
    whole, window = agreement(heads), agreement(within(heads))
    shifted = {shift: agreement(data.learned(shift)) for shift in SHIFTS}
    mixed = agreement(pd.concat([data.learned(shift) for shift in SHIFTS]))
    most = max(SHIFTS)
    return (
        f"Why the correlation depends on the range: with the scatter of all heads, those within the window, "
        f"{window.heads} of {whole.heads}, would show r = {foreseen(heads):.2f}; they show {window.pearson.value:.2f}. "
        f"Scores that lie evenly around 0 have a closed form near 1.5 however sharp the head is, as below 0 s^tau is "
        f"softmax and takes most of the squares; the divergence looks at the largest scores, whose tau grows with "
        f"them, to {whole.grid[2]:.0f} here. And tau\\* is not a property of the attention: {most:g} added to all "
        f"scores leaves softmax's weights as they are and takes the median tau\\* from {shifted[0.0].closed[1]:.2f} to "
        f"{shifted[most].closed[1]:.2f} and the grid's from {shifted[0.0].grid[1]:.1f} to {shifted[most].grid[1]:.1f}. "
        f"Heads at different offsets ({', '.join(f'{shift:g}' for shift in SHIFTS)}) taken together give "
        f"r = {mixed.pearson.value:.2f}."
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


def _agreement_cells(found: Agreement) -> tuple[str, ...]:
    return (
        f"{found.heads} of {found.models}",
        f"{found.closed[0]:.2f} to {found.closed[2]:.2f}",
        f"{found.grid[0]:.1f} to {found.grid[2]:.1f}",
        _estimate(found.pearson),
        _estimate(found.fisher),
        _estimate(found.spearman),
        _estimate(found.slope, 1),
        f"{found.factor:.2f}",
    )


_AGREEMENT = ("heads of models", "closed form", "grid", "r", "independent", "rank", "slope", "factor")


def _by_group(data: TrainedScores) -> str:
    plain = data.heads[data.heads["shift"] == 0]
    parts = {
        "softmax, learned": data.learned(),
        f"of those, tau\\* in {WINDOW[0]:.2f} to {WINDOW[1]:.2f}": within(data.learned()),
        "all heads": plain,
    }
    for (group, rule), own in plain.groupby(["group", "head_rule"], sort=False):
        parts[f"`{group}`, {RULES[str(rule)]}"] = own
    return table(("heads", *_AGREEMENT), [(name, *_agreement_cells(agreement(own))) for name, own in parts.items()])


def _by_shift(data: TrainedScores) -> str:
    parts = {f"{shift:g} added": data.learned(shift) for shift in SHIFTS}
    parts["all of these"] = pd.concat(list(parts.values()))
    return table(("scores", *_AGREEMENT), [(name, *_agreement_cells(agreement(own))) for name, own in parts.items()])


def _learned_groups(data: TrainedScores) -> list[str]:
    own = data.swaps[(data.swaps["choice"] == TRUE) & (data.swaps["accuracy"] >= LEARNED)]
    counts = own["group"].value_counts(sort=False)
    return [str(name) for name in counts.index[counts >= 2]]


def _swap_table(data: TrainedScores, group: str | None) -> str:
    rows = []
    for choice, words in CHOICES.items():
        found = swap(data, choice, group)
        cells = (_mean(found.kept), _mean(found.added), f"{found.collapsed} of {found.models}")
        rows.append((words, _mean(found.accuracy), *cells))
    name = "all groups" if group is None else f"`{group}`"
    return table((name, "right answers", "kept", "loss added, nats", "collapsed"), rows)


def _from_the_start(data: TrainedScores) -> str:
    rows = []
    for rule, words in RULES.items():
        end = last(data, rule)
        own = data.heads[(data.heads["group"] == "main") & (data.heads["head_rule"] == rule)]
        taus = own["tau_learned"].dropna()
        span = f"{taus.min():.2f} to {taus.max():.2f}" if len(taus) else "-"
        rows.append((words, _mean(mean_interval(end["loss"])), _mean(mean_interval(end["accuracy"])), span))
    return table(("trained with", "validation loss", "right answers", "tau learned"), rows)


def _at_losses(data: TrainedScores) -> str:
    rows = []
    for loss in LOSSES:
        pairs = at_loss(data, loss)
        for look in LOOKS:
            if len(pairs) < 2:
                continue
            means = (f"{pairs[look, rule].mean():.4f}" for rule in (SOFTMAX, PER_HEAD))
            rows.append((f"{loss:g}", LOOKING[look], str(len(pairs)), *means, _mean(difference(pairs, look), 4)))
    return table(("loss", "weights", "seeds", "softmax", "s^tau", "difference"), rows, keys=2)
