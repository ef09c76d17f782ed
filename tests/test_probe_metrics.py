"""Metrics by hand: few rows whose every number is worked out in a comment."""

import math

import pytest
import torch

from stau_rl.agents.attention.attention import Attended
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.envs.tasks import parse_task
from stau_rl.probe.metrics import BINS, METRICS, auroc, evaluate, measure_rows, spread, summarise, worst_key
from stau_rl.probe.model import ProbeModels, Shape
from stau_rl.probe.train import EVALUATION, items

CPU = torch.device("cpu")
TASK = parse_task("silence(pairs=2, keys=5, values=3)")


class Dictated:
    """Models that answer with given logits and weights."""

    def __init__(self, logits: torch.Tensor, weights: torch.Tensor) -> None:
        self.specs = ("one",)
        mask = (torch.arange(weights.shape[-1]) < 4).expand(weights.shape)
        self.answer = logits, Attended(weights, weights, weights.sum(-1), weights, mask)

    def forward(self, _: object) -> tuple[torch.Tensor, Attended]:
        return self.answer


def test_rows_and_summary_by_hand() -> None:
    """Four queries, in order: found; refused and answered wrongly; silent; committed, with a value of the context."""
    batch = items(ProbeModels(TASK, [parse_attention("softmax")], (0,), Shape(width=4), CPU), TASK, 0, 40)
    there = torch.nonzero(batch.slot[0, :, 0] >= 0).flatten()[:2]
    gone = torch.nonzero(batch.slot[0, :, 0] < 0).flatten()[:2]
    batch = type(batch)(*(part[:, torch.cat([there, gone])] for part in batch))
    slots = batch.slot[0, :2, 0].tolist()
    weights = torch.zeros(1, 4, 1, 5)
    weights[0, 0, 0, slots[0]] = 0.75
    weights[0, 0, 0, 0] = 0.25
    weights[0, 1, 0, slots[1]] = 0.25
    weights[0, 3, 0, 2] = 0.5
    logits = torch.zeros(1, 4, 1, TASK.vocabulary)
    said = [int(batch.target[0, 0, 0]), 0, int(batch.target[0, 2, 0]), int(batch.tokens[0, 3, 1])]
    for number, token in enumerate(said):
        logits[0, number, 0, token] = 1.0
    rows = {name: part.flatten(1) for name, part in measure_rows(Dictated(logits, weights), TASK, batch).items()}
    found = {name: float(value) for name, value in summarise(rows, TASK).items()}
    assert set(found) == set(METRICS)
    assert found["recall"] == 0.5
    assert found["decoded"] == 0.5
    assert found["false_refusal"] == 0.5
    assert found["commit_rate"] == 0.5
    assert found["hallucination"] == 0.5
    assert found["silent_decoded"] == 0.5
    assert found["dead_row_rate"] == 0.0
    assert found["mass_answerable"] == pytest.approx(0.625)
    assert found["mass_unanswerable"] == pytest.approx(0.25)
    # Pairs of masses: 1 > 0, 1 > 1/2, 1/4 > 0, 1/4 < 1/2.
    assert found["auroc"] == pytest.approx(0.75)
    # By weight: found (right), committed (wrong), refused (wrong), silent (right): risks 0, 1/2, 2/3, 1/2.
    assert found["risk_80"] == pytest.approx(2 / 3)
    assert found["aurc"] == pytest.approx((0 + 1 / 2 + 2 / 3 + 1 / 2) / 4)
    assert found["sink_mass"] == pytest.approx(0.25 / 4)
    # Entropies over log 4: of (3/4, 1/4), 0 and 0; the row without mass has none.
    first = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(4)
    assert found["entropy"] == pytest.approx(first / 3, rel=1e-5)
    assert found["top1_mass"] == pytest.approx((0.75 + 0.25 + 0.0 + 0.5) / 4)
    assert found["top10_mass"] == pytest.approx((1.0 + 0.25 + 0.0 + 0.5) / 4)
    # Of four keys each: 2, 3, 4 and 3 have no weight.
    assert found["below_1e6"] == pytest.approx(12 / 16)
    # Fourth over squared second moment about the mean: of (3/4, 1/4, 0, 0) it is 41/24... worked out below; of one
    # weight among four, 7/3.
    values = torch.tensor([0.75, 0.25, 0.0, 0.0]).double() - 0.25
    fourth = float(values.pow(4).mean() / values.square().mean() ** 2)
    assert found["kurtosis"] == pytest.approx(((fourth - 3) + 2 * (7 / 3 - 3)) / 3, rel=1e-6)
    assert spread(rows["mass"], rows["answerable"])[0].tolist() == [
        [int(number in (BINS // 4, BINS - 1)) for number in range(BINS)],
        [int(number in (0, BINS // 2)) for number in range(BINS)],
    ]


def test_a_value_that_the_context_does_not_hold_is_no_hallucination() -> None:
    """Two pairs hold at most two of three values; a model says the third, and then one of those held."""
    batch = items(ProbeModels(TASK, [parse_attention("softmax")], (0,), Shape(width=4), CPU), TASK, 0, 40)
    silent = torch.nonzero(batch.slot[0, :, 0] < 0).flatten()[:1]
    batch = type(batch)(*(part[:, silent] for part in batch))
    held = set(batch.tokens.flatten().tolist())
    weights = torch.full((1, 1, 1, 5), 0.25)
    for said, share in ((min(set(TASK.kinds["values"]) - held), 0.0), (int(batch.tokens[0, 0, 1]), 1.0)):
        logits = torch.nn.functional.one_hot(torch.tensor([[[said]]]), TASK.vocabulary).float()
        rows = {name: part.flatten(1) for name, part in measure_rows(Dictated(logits, weights), TASK, batch).items()}
        assert float(summarise(rows, TASK)["hallucination"]) == share


@pytest.mark.parametrize("n", [1, 3, 7, 11, 17])
def test_equal_weights_have_no_kurtosis(n: int) -> None:
    """11 float32 weights of 1/11 have a mean that is not 1/11: rounding is no spread."""
    task = parse_task("recall(pairs=8)")
    batch = items(ProbeModels(task, [parse_attention("softmax")], (0,), Shape(width=4), CPU), task, 0, 3)
    mask = (torch.arange(17) < n).expand(1, 3, 1, 17)
    models = Dictated(torch.zeros(1, 3, 1, task.vocabulary), mask / n)
    models.answer = models.answer[0], Attended(mask / n, mask / n, (mask / n).sum(-1), mask / n, mask)
    rows = measure_rows(models, task, batch)
    assert bool(rows["kurtosis"].isnan().all())
    assert rows["entropy"].flatten().tolist() == pytest.approx([float(n > 1)] * 3, abs=1e-6)


def test_the_worst_key_counts_keys_that_were_asked_for() -> None:
    good = torch.tensor([[True, False, True, True, False]])
    key = torch.tensor([[0, 0, 0, 2, 4]])
    where = torch.tensor([[True, True, True, True, False]])
    assert float(worst_key(good, key, where, 6)) == pytest.approx(2 / 3)
    assert worst_key(good, key, torch.zeros_like(where), 6).isnan().all()


def test_auroc_counts_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randint(0, 6, (40,), generator=generator) / 10, torch.randint(0, 6, (30,), generator=generator) / 10
    pairs = [(a > b) + 0.5 * (a == b) for a in x.tolist() for b in y.tolist()]
    assert float(auroc(x, y)) == pytest.approx(sum(pairs) / 1200)
    # Masses of 1 but for rounding tie.
    assert float(auroc(torch.ones(3), 1 + torch.tensor([1e-7, -1e-7]))) == 0.5
    assert auroc(x, y[:0]).isnan()


def test_evaluation_uses_items_that_training_never_sees_and_any_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    models = ProbeModels(TASK, [parse_attention("pn_fir_tau"), parse_attention("softmax")], (0, 1), Shape(width=8), CPU)
    whole, counts = evaluate(models, TASK, 100)
    monkeypatch.setattr("stau_rl.probe.metrics._PLACES_AT_ONCE", 35)
    parts, again = evaluate(models, TASK, 100)
    assert torch.equal(counts, again)
    for name, values in whole.items():
        assert torch.allclose(values, parts[name], rtol=1e-6, atol=1e-6, equal_nan=True)
    assert counts.sum((1, 2)).tolist() == [100] * 4
    # 1000 steps of 128 items come before.
    assert EVALUATION > 10**9
    # A simplex head cannot be silent.
    assert whole["mass_unanswerable"][2:].tolist() == pytest.approx([1.0, 1.0])
    assert whole["auroc"][2:].tolist() == [0.5, 0.5]
