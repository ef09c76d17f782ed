"""What is measured of a trained attention head, a number per model.

Decision: the slot of largest weight if the row's mass is at least 1/2, else to abstain. n is the number of keys that a
row may attend to.
"""

import torch
from torch import Tensor

from stau_rl.agents.attention.attention import DEAD
from stau_rl.envs.tasks.task import Batch, Task
from stau_rl.probe.model import ProbeModels
from stau_rl.probe.train import EVALUATION, items, require_finite_logits

METRICS = {
    "recall": "answerable queries that choose the right slot",
    "worst_key": "recall of the worst key",
    "decoded": "answerable queries whose most likely token is the right value",
    "decoded_worst_key": "decoded, of the worst key",
    "false_refusal": "answerable queries that abstain",
    "commit_rate": "unanswerable queries that choose a slot",
    "hallucination": "unanswerable queries whose most likely token is a value of the context",
    "silent_decoded": "unanswerable queries whose most likely token is what was to be answered",
    "dead_row_rate": "answerable queries with a key to attend to and mass < 1e-6",
    "mass_answerable": "mean row mass on answerable queries",
    "mass_unanswerable": "mean row mass on unanswerable queries",
    "auroc": "probability that an answerable query has more mass than an unanswerable one, ties half",
    "risk_80": "share of wrong decisions among the 80 % of queries with the largest weights",
    "aurc": "mean over coverages of that share",
    "sink_mass": "mean weight of the first place",
    "entropy": "entropy of the normalised weights / log n",
    "top1_mass": "largest weight",
    "top10_mass": "sum of the ten largest weights",
    "below_1e6": "share of keys with weight < 1e-6",
    "kurtosis": "excess kurtosis of the weights of a row",
}
"""Metrics and their meaning: shares and means over the tested queries; nan where a task has none of the kind."""

BINS = 20
# Masses that differ by less are equal: sums of weights are 1 but for rounding.
_TIE = 1e-6
# Items at once, times places, and times models: keeps the memory of long items and of many models in bounds.
_PLACES_AT_ONCE, _OF_ALL_MODELS = 1 << 16, 1 << 20


@torch.no_grad()
def evaluate(models: ProbeModels, task: Task, count: int) -> tuple[dict[str, Tensor], Tensor]:
    """Measure models on `count` fresh items of a task, which may be a longer form of the one trained on.

    Returns:
        Every metric, float64 [models], nan where the task has no such queries; and how the masses are spread, counts
        [models, 2, bins] of answerable and unanswerable queries in equal bins of [0, 1], larger masses in the last.

    Raises:
        ValueError: the logits of a model are not finite.
    """
    rows: dict[str, list[Tensor]] = {}
    each = len(models.specs) * len(models.seeds)
    at_once = max(1, min(_PLACES_AT_ONCE, _OF_ALL_MODELS // each) // task.length)
    for first in range(0, count, at_once):
        size = min(at_once, count - first)
        batch = items(models, task, EVALUATION + first, size)
        for name, values in measure_rows(models, task, batch).items():
            rows.setdefault(name, []).append(values.flatten(1))
    whole = {name: torch.cat(parts, 1) for name, parts in rows.items()}
    return summarise(whole, task), spread(whole["mass"], whole["answerable"])


def spread(mass: Tensor, answerable: Tensor) -> Tensor:
    """Counts of masses in `BINS` equal bins of [0, 1]: int64 [models, 2, bins], answerable queries first."""
    number = (mass * BINS).long().clamp(0, BINS - 1)
    counts = torch.zeros((mass.shape[0], 2 * BINS), dtype=torch.int64, device=mass.device)
    # The unanswerable come after the answerable.
    counts.scatter_add_(1, number + BINS * ~answerable, torch.ones_like(number))
    return counts.unflatten(1, (2, BINS))


def measure_rows(models: ProbeModels, task: Task, batch: Batch) -> dict[str, Tensor]:
    """What every query gives: [models, items, queries] each."""
    logits, seen = models.forward(batch)
    require_finite_logits(models, logits, "after its training")
    groups = len(models.specs)
    slot, target, tokens = (part.repeat(groups, 1, 1) for part in (batch.slot, batch.target, batch.tokens))
    key = tokens.gather(-1, batch.query.repeat(groups, 1, 1))
    weights, mass, mask = seen.weights, seen.mass, seen.mask
    most, choice = weights.max(-1)
    answer = logits.argmax(-1)
    values = task.kinds["values"]
    is_value = (answer >= values.start) & (answer < values.stop)
    in_context = (tokens[..., None, :] == answer[..., None]).any(-1) & is_value
    n = mask.sum(-1).to(weights.dtype)
    share = weights / mass.clamp(min=DEAD)[..., None]
    entropy = -torch.special.xlogy(share, share).sum(-1) / n.clamp(min=2).log()
    # Moments over the keys that a row may attend to, in float64: equal weights have no spread, not that of rounding.
    exact = weights.double()
    centred = torch.where(mask, exact - (exact.sum(-1) / n.clamp(min=1))[..., None], 0.0)
    variance = centred.square().sum(-1) / n
    fourth = centred.pow(4).sum(-1) / n
    return {
        "answerable": slot >= 0,
        "key": key,
        "right": (choice == slot) & (mass >= 0.5),
        "committed": mass >= 0.5,
        "decoded": answer == target,
        "hallucinated": in_context,
        "dead": (mass < DEAD) & (n > 0),
        "mass": mass,
        "most": most,
        "first": weights[..., 0],
        "entropy": torch.where(mass < DEAD, torch.nan, entropy),
        "top10": weights.topk(min(10, weights.shape[-1]), -1).values.sum(-1),
        "small": ((weights < 1e-6) & mask).sum(-1) / n,
        "kurtosis": torch.where(variance > 1e-20, fourth / variance.clamp(min=1e-20).square() - 3, torch.nan),
    }


def summarise(rows: dict[str, Tensor], task: Task) -> dict[str, Tensor]:
    """Metrics of every model from the rows of its queries, [models, queries] each."""
    answerable, silent = rows["answerable"], ~rows["answerable"]

    def mean(values: Tensor, where: Tensor) -> Tensor:
        counted = where & ~values.isnan() if values.is_floating_point() else where
        return torch.where(counted, values.double(), 0.0).sum(1) / counted.sum(1)

    wrong = ~torch.where(answerable, rows["right"], ~rows["committed"])
    order = rows["most"].argsort(dim=1, descending=True, stable=True)
    risk = wrong.gather(1, order).double().cumsum(1) / torch.arange(1, wrong.shape[1] + 1, device=wrong.device)
    everywhere = torch.ones_like(answerable)
    return {
        "recall": mean(rows["right"], answerable),
        "worst_key": worst_key(rows["right"], rows["key"], answerable, task.vocabulary),
        "decoded": mean(rows["decoded"], answerable),
        "decoded_worst_key": worst_key(rows["decoded"], rows["key"], answerable, task.vocabulary),
        "false_refusal": mean(~rows["committed"], answerable),
        "commit_rate": mean(rows["committed"], silent),
        "hallucination": mean(rows["hallucinated"], silent),
        "silent_decoded": mean(rows["decoded"], silent),
        "dead_row_rate": mean(rows["dead"], answerable),
        "mass_answerable": mean(rows["mass"], answerable),
        "mass_unanswerable": mean(rows["mass"], silent),
        "auroc": torch.stack([auroc(m[a], m[~a]) for m, a in zip(rows["mass"], answerable, strict=True)]),
        "risk_80": risk[:, max(0, round(0.8 * risk.shape[1]) - 1)],
        "aurc": risk.mean(1),
        "sink_mass": mean(rows["first"], everywhere),
        "entropy": mean(rows["entropy"], everywhere),
        "top1_mass": mean(rows["most"], everywhere),
        "top10_mass": mean(rows["top10"], everywhere),
        "below_1e6": mean(rows["small"], everywhere),
        "kurtosis": mean(rows["kurtosis"], everywhere),
    }


def worst_key(good: Tensor, key: Tensor, where: Tensor, vocabulary: int) -> Tensor:
    """Smallest share of good rows over the keys that are asked for: [models]."""
    shape = (*good.shape[:1], vocabulary)
    asked = torch.zeros(shape, dtype=torch.float64, device=good.device).scatter_add_(1, key, where.double())
    right = torch.zeros_like(asked).scatter_add_(1, key, (good & where).double())
    share = torch.where(asked > 0, right / asked.clamp(min=1), torch.inf).amin(1)
    return torch.where(share.isinf(), torch.nan, share)


def auroc(positive: Tensor, negative: Tensor) -> Tensor:
    """P(x > y) + P(x = y) / 2 for x of the first and y of the second sample, both rounded to multiples of 1e-6.

    Args:
        positive: [a].
        negative: [b].

    Returns:
        A float64 scalar; nan if a sample is empty.
    """
    if positive.numel() == 0 or negative.numel() == 0:
        return torch.tensor(torch.nan, dtype=torch.float64, device=positive.device)
    x, y = ((part.double() / _TIE).round() for part in (positive, negative))
    y = y.sort().values
    below, up_to = torch.searchsorted(y, x), torch.searchsorted(y, x, right=True)
    return (below + up_to).double().mean() / (2 * y.numel())
