"""Probe models: equal to a plain forward pass, independent of their company, and the recipe's schedule."""

import math

import pytest
import torch
from torch.testing import assert_close

from stau_rl.agents.attention.attention_model import AttentionModels
from stau_rl.agents.attention.attention_spec import PRESETS, parse_attention
from stau_rl.agents.attention.key_smoothing import half_gaussian_taps
from stau_rl.envs.tasks import parse_task
from stau_rl.probe.metrics import evaluate
from stau_rl.probe.model import ProbeModels, Shape
from stau_rl.probe.train import Recipe, items, train

CPU = torch.device("cpu")
# A row per task that the plan trains on, with the shape it uses there.
TASKS = (
    ("recall(pairs=3, keys=6, values=5)", Shape(width=8)),
    # Some items end in padding, left of a query that sees itself.
    ("recall(pairs=3, keys=6, values=5, distractor_ratio=0.2)", Shape(width=8)),
    ("silence(pairs=3, keys=6, values=5, distractor_ratio=0.5, amplitude=0.5)", Shape(width=8)),
    ("mqar(places=16, pairs=3, tokens=16)", Shape(width=8, layers=2)),
    ("passkey(places=9)", Shape(width=8, positions="none")),
)


def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def by_the_definition(models: ProbeModels, model: int, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Logits of one model, item by item, with projected and smoothed keys and every place asking."""
    spec = models.specs[model // len(models.seeds)]
    weights = {name: value[model].detach() for name, value in models.models.weights.items()}
    tokens, present, query, _, _, loud = (part[model % len(models.seeds)] for part in batch)
    found = []
    for item in range(len(tokens)):
        x = weights["embedding"][tokens[item]]
        if models.models.settings.positions == "learned":
            x = x + weights["positions"][: len(x)]
        x = norm(x, weights["gain_0"])
        for layer in range(models.models.settings.layers):
            # Padding is a zero to the smoothing.
            inputs = (norm(x, weights[f"gain_{layer}"]) if layer else x) * (loud[item] * present[item])[:, None]
            q, k, v = (inputs @ weights[f"{name}_{layer}"] for name in ("query", "key", "value"))
            if spec.fir_taps:
                taps = half_gaussian_taps(spec.fir_taps, spec.fir_sigma).to(k.dtype)
                k = torch.stack([sum(taps[i] * k[j - i] for i in range(min(j + 1, len(taps)))) for j in range(len(k))])
            n = len(x)
            visible = torch.tril(torch.ones(n, n, dtype=torch.bool), 0 if models.task.attends_itself else -1)
            visible = visible & present[item]
            if spec.scores == "cosine":
                length = visible.sum(-1, keepdim=True).clamp(min=1)
                unit_q, unit_k = (part / part.norm(dim=-1, keepdim=True).clamp(min=1e-12) for part in (q, k))
                scores = math.log(k.shape[-1]) * length.log() * (unit_q @ unit_k.T)
            else:
                scores = q @ k.T / math.sqrt(k.shape[-1])
            ((group, _),) = models.models.groups(layer)
            values = {name: value[model, 0].item() for name, value in group.values().items()}
            head = spec.head.bind(**{name: torch.tensor(value) for name, value in values.items()})
            mixed = head.weights(scores, mask=visible) @ v
            if spec.output == "rms":
                mixed = norm(mixed, torch.ones(()))
            x = x + mixed @ weights[f"output_{layer}"]
        found.append((norm(x, weights["final_gain"]) @ weights["unembedding"])[query[item]])
    return torch.stack(found)


@pytest.mark.parametrize(("text", "shape"), TASKS)
@pytest.mark.parametrize("name", ["softmax", "pn_fir_tau", "lssar_p3", "rela_fir", "s_tau_fir", "pn_fir_c"])
def test_the_short_cuts_give_the_definition(text: str, shape: Shape, name: str) -> None:
    task = parse_task(text)
    models = ProbeModels(task, [parse_attention(name)], (3, 4), shape, CPU)
    batch = items(models, task, 0, 3)
    logits, seen = models.forward(batch)
    for model in range(2):
        assert_close(logits[model], by_the_definition(models, model, batch), rtol=1e-4, atol=1e-5)
    hidden = seen.weights[~seen.mask.expand(seen.weights.shape)]
    assert (hidden == 0).all()


def test_a_model_does_not_depend_on_its_company() -> None:
    task, shape, recipe = parse_task("silence(pairs=3, keys=6, values=5)"), Shape(width=8), Recipe(6, 16, warm_up=2)
    names = ("softmax", "pn_fir_tau", "pn_fir_tau(p=4)", "sm_fir", "lssar")
    together = ProbeModels(task, [parse_attention(name) for name in names], (0, 1), shape, CPU)
    train(together, recipe)
    for number, name in enumerate(names):
        alone = ProbeModels(task, [parse_attention(name)], (1,), shape, CPU)
        train(alone, recipe)
        for part, values in alone.models.weights.items():
            assert_close(together.models.weights[part][2 * number + 1], values[0], rtol=1e-4, atol=1e-5)


def test_starts_are_shared_and_have_the_recipes_scale() -> None:
    task = parse_task("recall(keys=2000, values=2000)")
    specs = [parse_attention("softmax"), parse_attention("sm_fir")]
    models = ProbeModels(task, specs, (0, 1), Shape(), CPU)
    deviations = {"embedding": 0.5, "positions": 0.02, "query_0": 1 / 8, "key_0": 1 / 8, "value_0": 1 / 8}
    for name, deviation in (deviations | {"output_0": 1 / 16, "unembedding": 1 / 8}).items():
        values = models.models.weights[name].detach()
        assert torch.equal(values[:2], values[2:])
        assert not torch.equal(values[0], values[1])
        # The relative standard error of a deviation is (2 n)^-1/2; 1 088 positions are the fewest.
        assert abs(float(values[0].std()) / deviation - 1) < 5 * (2 * 1088) ** -0.5


def test_twins_look_like_their_originals() -> None:
    task = parse_task("recall(distractor_ratio=1, distractors=near)")
    models = ProbeModels(task, [parse_attention("softmax")], (0,), Shape(width=512), CPU).models
    table = models.weights["embedding"][0].detach()
    twins, keys = task.twins
    alike = torch.cosine_similarity(table[twins.start : twins.stop], table[keys.start : keys.stop], dim=-1)
    # The deviation of a correlation of 0.9 is 0.19 / sqrt(512) = 0.0084.
    assert (alike - 0.9).abs().max() < 6 * 0.0084
    # Their own draw is still in them: what the keys do not explain has the deviation that keeps the length.
    rest = table[twins.start : twins.stop] - 0.9 * table[keys.start : keys.stop]
    assert abs(float(rest.std() / table[keys.start : keys.stop].std()) / 0.19**0.5 - 1) < 5 * (2 * rest.numel()) ** -0.5
    correlation = torch.corrcoef(torch.stack([rest.flatten(), table[keys.start : keys.stop].flatten()]))[0, 1]
    assert abs(float(correlation)) < 5 * rest.numel() ** -0.5


def test_a_twin_is_a_mixture_of_two_starts_that_keeps_their_scale() -> None:
    task = parse_task("recall(distractor_ratio=1, distractors=near)")
    spec, shape = parse_attention("softmax"), Shape(width=16)
    start = AttentionModels(shape.settings(task), [spec], [0]).weights["embedding"][0].detach()
    table = ProbeModels(task, [spec], (0,), shape, CPU).models.weights["embedding"][0].detach()
    twins, keys = (slice(part.start, part.stop) for part in task.twins)
    assert_close(table[twins], 0.9 * start[keys] + 0.19**0.5 * start[twins])
    assert torch.equal(table[keys], start[keys])


def test_the_learning_rate_warms_up_and_falls_along_a_cosine() -> None:
    recipe = Recipe(steps=1000, rate=2e-3, warm_up=100)
    assert recipe.rate_at(0) == pytest.approx(2e-5)
    assert recipe.rate_at(99) == pytest.approx(2e-3)
    assert recipe.rate_at(100) == pytest.approx(2e-3)
    assert recipe.rate_at(550) == pytest.approx(1e-3)
    assert recipe.rate_at(999) < 1e-8


@pytest.mark.parametrize("start", [-2.0, 4.0])
def test_calibration_forgets_the_start(start: float) -> None:
    task = parse_task("silence")
    spec = parse_attention(f"pn_fir_tau(threshold={start:g}, calibrate=threshold)")
    models = ProbeModels(task, [spec], (0,), Shape(), CPU)
    models.calibrate(items(models, task, 0, Recipe().batch))
    ((group, _),) = models.models.groups(0)
    _, seen = models.forward(items(models, task, 0, 128))
    peaks = torch.where(seen.mask, seen.scores, -torch.inf).amax(-1).flatten().detach()
    assert group.values()["threshold"].item() == pytest.approx(float(peaks.quantile(0.1)) - 1, abs=1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains_with_finite_gradients(name: str) -> None:
    task = parse_task("silence(pairs=3, keys=6, values=5, distractor_ratio=0.5)")
    models = ProbeModels(task, [parse_attention(name)], (0,), Shape(width=8), CPU)
    train(models, Recipe(steps=2, batch=8, warm_up=1))
    for values in models.trained():
        assert torch.isfinite(values).all()
        assert values.grad is not None
        assert torch.isfinite(values.grad).all()


@pytest.mark.parametrize("head", ["softmax", "pn_fir_tau"])
def test_a_model_that_diverges_is_named(head: str) -> None:
    """Weights of nan would be tested without a word: their masses compare as an auroc of 1."""
    task = parse_task("silence(pairs=3, keys=6, values=5)")
    models = ProbeModels(task, [parse_attention("sparsemax"), parse_attention(head)], (4, 7), Shape(width=8), CPU)
    with pytest.raises(ValueError, match=r"^the logits of .*, seed 4, are not finite in step 5 of 5 at rate 1e\+30; "):
        train(models, Recipe(steps=5, batch=4, rate=1e30, warm_up=0))
    models = ProbeModels(task, [parse_attention("sparsemax"), parse_attention(head)], (4, 7), Shape(width=8), CPU)
    with torch.no_grad():
        models.models.weights["unembedding"][3] = math.nan
    with pytest.raises(ValueError, match=r"^the logits of .*seed 7, are not finite after its training; ") as caught:
        evaluate(models, task, 4)
    assert str(parse_attention(head)) in str(caught.value)
