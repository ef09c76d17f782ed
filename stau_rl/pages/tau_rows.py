"""Rows of a group of trained models: tau* of every head, the swap of softmax for s^tau, and weights along training."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stau_rl.agents.attention.attention import Attended
from stau_rl.agents.attention.attention_model import AttentionModels
from stau_rl.calibration import tau_star
from stau_rl.envs.tasks import parse_task
from stau_rl.heads.log_softplus import log_phi
from stau_rl.heads.s_tau import EPS
from stau_rl.machine.stamp import current_commit, device_name, versions
from stau_rl.machine.threads import one_torch_thread
from stau_rl.pages.tau_models import SOFTMAX, Group, capture, measure, swapped, train

HEADS_KIND, SWAP, CURVE = "heads", "swap", "curve"
GRID = tuple(2.0 ** (step / 8) for step in range(81))
"""Candidates of tau, 1 to 1 024, nine per cent apart."""
FIXED = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 15.0, 30.0, 60.0)
SHIFTS = (0.0, 3.0, 10.0)
"""Added to all scores of softmax's heads, whose weights do not change."""
TRUE, CLOSED, LEAST_KL, ONE_KL, ONE_MEDIAN, ONE_BEST = (
    "softmax",
    "per head, closed form",
    "per head, least KL",
    "one, least KL",
    "one, median closed form",
    "one, least loss",
)
CAPTURED, MEASURED, TESTED, CHOOSING = 8, 128, 512, 1 << 20
"""How many items are for scores, for the losses along training and for a swap, and the first of those on which the one
tau of least loss is chosen; no item of a swap is among those of scores or of the choice."""
MANY = 10
"""Sparsity is that of rows with more keys than this: the ten largest of fewer are all."""


def group_rows(group: Group) -> pd.DataFrame:
    """Train a group and give all rows; `kind` is `heads`, `swap` or `curve`."""
    models, task = group.models(), parse_task(group.task)
    curve: list[dict[str, object]] = []
    with one_torch_thread():

        def watch(step: int) -> None:
            curve.extend(curve_rows(group, models, step))

        train(models, group, watch)
        layers = capture(models, task, CAPTURED)
        heads = head_rows(group, models, layers)
        swaps = swap_rows(group, models, layers)
    rows = pd.DataFrame([*heads, *swaps, *curve])
    about = {"commit": current_commit(), "versions": _versions(), "device": device_name()}
    return rows.assign(group=group.name, **about)


def _versions() -> str:
    return " ".join(f"{name}={number}" for name, number in versions("numpy", "torch").items())


def divergences(scores: Tensor, mask: Tensor, taus: Tensor) -> Tensor:
    """Mean KL(softmax || s^tau) over the rows of each head, for each tau: [models, heads, taus], nats.

    Args:
        scores: [models, items, heads, queries, keys].
        mask: boolean, broadcasting against them; every row has a key.
        taus: [taus].
    """
    scores, mask = scores.double(), mask.expand(scores.shape)
    masked = scores.masked_fill(~mask, -torch.inf)
    phi = log_phi(torch.where(mask, scores, 0.0), EPS)
    p = masked.softmax(-1)
    own = (p * torch.where(mask, scores, 0.0)).sum(-1) - masked.logsumexp(-1)
    mean_phi = (p * phi).sum(-1)
    hidden = phi.masked_fill(~mask, -torch.inf)
    found = [(own - tau * mean_phi + (tau * hidden).logsumexp(-1)).mean((1, 3)) for tau in taus.double()]
    return torch.stack(found, -1)


def head_rows(group: Group, models: AttentionModels, layers: list[Attended]) -> list[dict[str, object]]:
    """A row per head (and, of softmax's, per shift): tau* in closed form, by Newton's method and on the grid."""
    taus, rows = torch.tensor(GRID), []
    task = parse_task(group.task)
    right = measure(models, task, TESTED, CAPTURED)
    learned = models.learned()
    for number, layer in enumerate(layers):
        mask = layer.mask.expand(layer.scores.shape)
        inside = torch.where(mask, layer.scores, 0.0).double()
        offset = inside.sum(-1) / mask.sum(-1)
        spread = ((torch.where(mask, inside - offset[..., None], 0.0).square().sum(-1)) / mask.sum(-1)).mean((1, 3))
        for shift in SHIFTS:
            which = [m for m, (name, _) in enumerate(group.names) if shift == 0 or name == SOFTMAX]
            scores = layer.scores[which].double() + shift
            found = tau_star(scores, mask=mask[which], pool=(1, 3), clamp=True)
            kl = divergences(scores, mask[which], taus)
            for place, model in enumerate(which):
                name, seed = group.names[model]
                for head in range(scores.shape[2]):
                    own = (place, head)
                    rows.append(
                        {
                            "kind": HEADS_KIND,
                            "head_rule": name,
                            "seed": seed,
                            "layer": number,
                            "head": head,
                            "shift": shift,
                            "tau_closed": float(found.closed_form[own]),
                            "kl_closed": float(found.kl_closed_form[own]),
                            "tau_newton": float(found.newton[own]),
                            "kl_newton": float(found.kl_newton[own]),
                            "tau_grid": GRID[int(kl[own].argmin())],
                            "kl_grid": float(kl[own].min()),
                            "tau_learned": _learned(learned[number], model, head),
                            "offset": float(offset.mean((1, 3))[model, head]) + shift,
                            "spread": float(spread[model, head].sqrt()),
                            "accuracy": float(right.accuracy[model]),
                            "loss": float(right.loss[model]),
                        }
                    )
    return rows


def _learned(values: dict[str, Tensor], model: int, head: int) -> float:
    return float(values["tau"][model, head]) if "tau" in values else np.nan


def swap_rows(group: Group, models: AttentionModels, layers: list[Attended]) -> list[dict[str, object]]:
    """Loss and accuracy of softmax's models, untouched and with s^tau put in, a row per model and choice of tau."""
    which = [m for m, (name, _) in enumerate(group.names) if name == SOFTMAX]
    task = parse_task(group.task)
    parts = [(layer.scores[which].double(), layer.mask.expand(layer.scores.shape)[which]) for layer in layers]
    found = [tau_star(scores, mask=mask, pool=(1, 3), clamp=True) for scores, mask in parts]
    closed, newton = (
        torch.stack([torch.nan_to_num(getattr(part, name), nan=1.0) for part in found])
        for name in ("closed_form", "newton")
    )
    # Every head weighs alike in the one tau, and every model has its own one.
    curves = [divergences(scores, mask, torch.tensor(GRID)) for scores, mask in parts]
    one = torch.tensor(GRID)[torch.stack(curves).mean((0, 2)).argmin(-1)]
    median = closed.transpose(0, 1).flatten(1).median(1).values
    shape = closed.shape
    choices = {
        CLOSED: closed,
        LEAST_KL: newton,
        ONE_KL: one[None, :, None].expand(shape),
        ONE_MEDIAN: median[None, :, None].expand(shape),
        ONE_BEST: _least_loss(group, models, which)[None, :, None].expand(shape),
        **{f"one, {tau:g}": torch.full(shape, tau) for tau in FIXED},
    }
    results = {TRUE: (torch.full(shape, torch.nan), measure(models, task, TESTED, CAPTURED), which)}
    for name, taus in choices.items():
        # Far out, a head whose rows are all but flat has any tau.
        taus = taus.clamp(max=GRID[-1])
        results[name] = (taus, measure(swapped(models, which, taus), task, TESTED, CAPTURED), [*range(len(which))])
    rows: list[dict[str, object]] = []
    for name, (taus, measured, places) in results.items():
        for number, (model, place) in enumerate(zip(which, places, strict=True)):
            rows.append(
                {
                    "kind": SWAP,
                    "choice": name,
                    "seed": group.names[model][1],
                    "tau_least": float(taus[:, number].min()),
                    "tau_most": float(taus[:, number].max()),
                    "loss": float(measured.loss[place]),
                    "accuracy": float(measured.accuracy[place]),
                }
            )
    return rows


def _least_loss(group: Group, models: AttentionModels, which: list[int]) -> Tensor:
    """Of `FIXED`, the one tau of least loss after the swap, on items of its own: [models]."""
    layers, heads = models.settings.layers, models.settings.heads
    task = parse_task(group.task)
    losses = [
        measure(swapped(models, which, torch.full((layers, len(which), heads), tau)), task, MEASURED, CHOOSING).loss
        for tau in FIXED
    ]
    return torch.tensor(FIXED)[torch.stack(losses).argmin(0)]


def curve_rows(group: Group, models: AttentionModels, step: int) -> list[dict[str, object]]:
    """A row per model and layer: loss, accuracy and what the weights look like after so many steps."""
    task = parse_task(group.task)
    measured = measure(models, task, MEASURED, CAPTURED)
    rows: list[dict[str, object]] = []
    for number, layer in enumerate(capture(models, task, CAPTURED)):
        looks = weights_of(layer)
        for model, (name, seed) in enumerate(group.names):
            rows.append(
                {
                    "kind": CURVE,
                    "head_rule": name,
                    "seed": seed,
                    "step": step,
                    "layer": number,
                    "loss": float(measured.loss[model]),
                    "accuracy": float(measured.accuracy[model]),
                    **{key: float(values[model]) for key, values in looks.items()},
                }
            )
    return rows


def weights_of(layer: Attended) -> dict[str, Tensor]:
    """Sparsity, top-10 mass and entropy of a layer's weights, over its rows of more than ten keys: [models] each."""
    mask = layer.mask.expand(layer.weights.shape)
    keys = mask.sum(-1)
    many = keys > MANY
    weights = layer.weights.double()

    def mean(values: Tensor) -> Tensor:
        return torch.where(many, values, 0.0).sum((1, 2, 3)) / many.sum((1, 2, 3))

    return {
        "below_1e6": mean(((weights < 1e-6) & mask).sum(-1) / keys),
        "below_1e3": mean(((weights < 1e-3) & mask).sum(-1) / keys),
        "top10_mass": mean(weights.topk(min(MANY, weights.shape[-1]), -1).values.sum(-1)),
        "top1_mass": mean(weights.amax(-1)),
        "entropy": mean(torch.special.entr(weights).sum(-1)),
    }
