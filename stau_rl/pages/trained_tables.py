"""The longer tables behind the section on tau* and trained scores, written from the committed rows."""

import pandas as pd

from stau_rl.pages.markdown import table
from stau_rl.pages.tau_models import PER_HEAD, SOFTMAX
from stau_rl.pages.tau_rows import CLOSED, FIXED, LEAST_KL, ONE_BEST, ONE_KL, ONE_MEDIAN, SHIFTS, TRUE
from stau_rl.pages.trained_claims import (
    LEARNED,
    LOOKS,
    LOSSES,
    WINDOW,
    Agreement,
    TrainedScores,
    agreement,
    at_loss,
    difference,
    last,
    swap,
    within,
)
from stau_rl.pages.trained_text import LOOKING, RULES, estimate_text, mean_text
from stau_rl.statistics.means import mean_interval

CHOICES = {
    TRUE: "softmax, untouched",
    CLOSED: "tau* of each head, closed form",
    LEAST_KL: "tau* of each head, least KL",
    ONE_BEST: "one tau, least loss on other items",
    ONE_KL: "one tau, least mean KL",
    ONE_MEDIAN: "one tau, median closed form",
    **{f"one, {tau:g}": f"tau = {tau:g} everywhere" for tau in FIXED},
}


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


def _agreement_cells(found: Agreement) -> tuple[str, ...]:
    return (
        f"{found.heads} of {found.models}",
        f"{found.closed[0]:.2f} to {found.closed[2]:.2f}",
        f"{found.grid[0]:.1f} to {found.grid[2]:.1f}",
        estimate_text(found.pearson),
        estimate_text(found.fisher),
        estimate_text(found.spearman),
        estimate_text(found.slope, 1),
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
        cells = (mean_text(found.kept), mean_text(found.added), f"{found.collapsed} of {found.models}")
        rows.append((words, mean_text(found.accuracy), *cells))
    name = "all groups" if group is None else f"`{group}`"
    return table((name, "right answers", "kept", "loss added, nats", "collapsed"), rows)


def _from_the_start(data: TrainedScores) -> str:
    rows = []
    for rule, words in RULES.items():
        end = last(data, rule)
        own = data.heads[(data.heads["group"] == "main") & (data.heads["head_rule"] == rule)]
        taus = own["tau_learned"].dropna()
        span = f"{taus.min():.2f} to {taus.max():.2f}" if len(taus) else "-"
        rows.append((words, mean_text(mean_interval(end["loss"])), mean_text(mean_interval(end["accuracy"])), span))
    return table(("trained with", "validation loss", "right answers", "tau learned"), rows)


def _at_losses(data: TrainedScores) -> str:
    rows = []
    for loss in LOSSES:
        pairs = at_loss(data, loss)
        for look in LOOKS:
            if len(pairs) < 2:
                continue
            means = (f"{pairs[look, rule].mean():.4f}" for rule in (SOFTMAX, PER_HEAD))
            rows.append((f"{loss:g}", LOOKING[look], str(len(pairs)), *means, mean_text(difference(pairs, look), 4)))
    return table(("loss", "weights", "seeds", "softmax", "s^tau", "difference"), rows, keys=2)
