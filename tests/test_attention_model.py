"""Models trained side by side are those trained alone; first batches set what they should; rows stay finite."""

import math

import pytest
import torch

from stau_rl.agents.attention.attention import Attended
from stau_rl.agents.attention.attention_model import AttentionModels, ModelSettings, rotate
from stau_rl.agents.attention.attention_normalisers import NormaliserGroup
from stau_rl.agents.attention.attention_spec import PRESETS, parse_attention
from stau_rl.calibration import tau_star

SMALL = ModelSettings(vocabulary=12, length=9, dim=8)


def tokens(models: int, batch: int = 6, length: int = 9, seed: int = 5) -> torch.Tensor:
    """A batch for each model: that of model m depends on m alone."""
    return torch.stack(
        [torch.randint(12, (batch, length), generator=torch.Generator().manual_seed(seed + m)) for m in range(models)]
    )


def train(models: AttentionModels, batch: torch.Tensor, steps: int = 4) -> torch.Tensor:
    """Some steps of Adam towards predicting the first token at the last position; the logits after them."""
    optimiser = torch.optim.Adam([part for part in models.parameters() if part.requires_grad], lr=1e-2)
    last = torch.tensor([batch.shape[-1] - 1])
    models.calibrate(batch, last)
    for _ in range(steps):
        logits, _ = models(batch, last)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 2), batch[..., 0].flatten(), reduction="sum")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return models(batch, last)[0].detach()


@pytest.mark.parametrize(
    "settings",
    [SMALL, ModelSettings(12, 9, 8, heads=2, layers=2, mlp=2, positions="rotary", own_key=False)],
    ids=["one layer", "two layers"],
)
def test_models_side_by_side_are_the_models_alone(settings: ModelSettings) -> None:
    """Every preset, and one with other numbers, in one batch of models; each against itself alone, after training."""
    texts = [*PRESETS, "pn_fir_tau(p=4, fir_sigma=1, fir_taps=5)", "pn_fir(threshold=-0.5)", "pn_fir"]
    specs, seeds = [parse_attention(text) for text in texts], [m % 3 for m in range(len(texts))]
    batch = tokens(len(specs))
    together = train(AttentionModels(settings, specs, seeds), batch)
    assert bool(together.isfinite().all())
    for m in range(0, len(specs), 1 if settings is SMALL else 5):
        alone = train(AttentionModels(settings, specs[m : m + 1], seeds[m : m + 1]), batch[m : m + 1])
        torch.testing.assert_close(together[m : m + 1], alone, rtol=2e-3, atol=2e-4)
    # The same seed gives the same start, whatever the spec; another seed another.
    start = AttentionModels(settings, specs, seeds).weights["query_0"]
    assert torch.equal(start[0], start[3])
    assert not torch.equal(start[0], start[1])


def test_a_shared_batch_is_a_batch_for_each() -> None:
    models = AttentionModels(SMALL, [PRESETS["sm_fir"]] * 2, [0, 1])
    batch = tokens(1)[0]
    shared, _ = models(batch)
    each, _ = models(batch.expand(2, -1, -1))
    assert torch.equal(shared, each)
    assert shared.shape == (2, 6, 9, 12)
    wanted = torch.tensor([8, 3])
    torch.testing.assert_close(models(batch, wanted)[0], shared[:, :, wanted])


@pytest.mark.parametrize("name", PRESETS)
def test_padding_is_not_seen(name: str) -> None:
    """Padded on the left or right, a model without positions says what it says of the short batch."""
    models = AttentionModels(ModelSettings(12, 9, 8, positions="none"), [PRESETS[name]], [0])
    short = tokens(1, length=5)[0]
    expected, (attended,) = models(short)
    for left in (0, 4):
        padded = torch.zeros(6, 9, dtype=torch.int64)
        padded[:, left : left + 5] = short
        present = torch.zeros(6, 9, dtype=torch.bool)
        present[:, left : left + 5] = True
        logits, (seen,) = models(padded, present=present)
        torch.testing.assert_close(logits[:, :, left : left + 5], expected, rtol=1e-4, atol=1e-5)
        own = slice(left, left + 5)
        torch.testing.assert_close(seen.weights[..., own, own], attended.weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("start", [-2.0, 0.0, 4.0])
def test_the_first_batch_sets_the_threshold(start: float) -> None:
    """One below the 10 % quantile of the rows' largest scores, from any start: the others pass the gate's middle."""
    spec = parse_attention(f"pn_fir_tau_hill_calibrated(threshold={start})")
    models = AttentionModels(SMALL, [spec] * 2, [0, 1])
    batch = tokens(2, batch=200)
    last = torch.tensor([8])
    models.calibrate(batch, last)
    _, (attended,) = models(batch, last)
    peaks = attended.scores.amax(-1).flatten(1)
    threshold = models.learned()[0]["threshold"][:, 0]
    # Of 200 rows: between the 20th and 21st smallest, at place 0.1 (200 - 1) = 19.9 counted from 0.
    below, above = peaks.detach().sort(-1).values[:, 19:21].unbind(-1)
    torch.testing.assert_close(threshold, below + 0.9 * (above - below) - 1.0)
    assert ((attended.mass >= 0.5).sum((1, 2, 3)) == 180).all()
    plain = AttentionModels(SMALL, [parse_attention(f"pn_fir_tau_hill(threshold={start})")], [0])
    plain.calibrate(batch[:1], last)
    assert plain.learned()[0]["threshold"].item() == pytest.approx(start)


def test_the_first_batch_sets_tau_to_its_closed_form() -> None:
    models = AttentionModels(
        ModelSettings(12, 9, 8, heads=2),
        [parse_attention("s_tau_closed"), parse_attention("s_tau_closed(learn=[tau])")],
        [0, 1],
    )
    batch = tokens(2)
    models.calibrate(batch)
    _, (attended,) = models(batch)
    found = models.learned()[0]["tau"]
    for m in range(2):
        expected = tau_star(attended.scores[m].detach(), mask=attended.mask[0].expand(6, 2, 9, 9), pool="head")
        torch.testing.assert_close(found[m].double(), expected.closed_form, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("name", "parameter", "own_key"),
    [
        ("s_tau_closed", "tau", True),
        ("s_tau_closed(learn=[tau])", "tau", True),
        ("pn_fir_tau_calibrated", "threshold", False),
        ("power_norm(threshold=0.5, calibrate=threshold)", "threshold", False),
    ],
)
def test_a_first_batch_that_says_nothing_leaves_what_was_there(name: str, parameter: str, own_key: bool) -> None:
    """Rows of one key have no tau*, rows of none no largest score."""
    models = AttentionModels(ModelSettings(12, 3, 8, own_key=own_key), [parse_attention(name)], [0])
    before = models.learned()[0][parameter].clone()
    models.calibrate(tokens(1)[..., :1])
    torch.testing.assert_close(models.learned()[0][parameter], before)


def test_tau_is_one_plus_softplus_of_what_is_learned() -> None:
    models = AttentionModels(SMALL, [parse_attention("s_tau(tau=1.7)")], [0])
    (raw,) = [part for name, part in models.named_parameters() if name.endswith("learned.tau")]
    assert raw.shape == (1, 1)
    assert 1 + math.log1p(math.exp(raw.item())) == pytest.approx(1.7, rel=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: AttentionModels(SMALL, [parse_attention("s_tau(tau=1)")], [0]),
            r"s_tau: a learned tau must start inside its range, > 1, got 1\.0",
        ),
        (lambda: AttentionModels(SMALL, [], []), "at least one; got 0 and 0"),
        (lambda: AttentionModels(SMALL, [PRESETS["softmax"]], [0, 1]), "got 1 and 2"),
        (lambda: ModelSettings(12, 9, dim=9, heads=2), "dim must be a multiple of heads, got dim=9, heads=2"),
        (lambda: ModelSettings(12, 9, positions="sine"), "positions must be one of learned, none, rotary, got 'sine'"),
        (lambda: ModelSettings(12, 9, layers=0), "layers must be at least 1, got 0"),
        (lambda: ModelSettings(12, 9, mlp=-1), "mlp must be at least 0, got -1"),
        (lambda: ModelSettings(12, 9, position_std=math.nan), "position_std must be finite and >= 0, got nan"),
        (lambda: ModelSettings(12, 9, 6, heads=2, positions="rotary"), "need an even width per head, got 3"),
        (
            lambda: AttentionModels(SMALL, [PRESETS["softmax"]], [0])(tokens(1, length=10)),
            "10 tokens, but learned positions reach 9",
        ),
        # Of two models the first would read the second's embeddings there.
        (
            lambda: AttentionModels(SMALL, [PRESETS["softmax"]] * 2, [0, 1])(tokens(2) + 1),
            r"tokens must lie in \[0, 12\), got 1 to 12",
        ),
    ],
)
def test_errors_say_what_is_wrong(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def by_the_definition(models: AttentionModels, model: int, tokens: torch.Tensor, loud: torch.Tensor) -> torch.Tensor:
    """Logits [length, vocabulary] of one item of one model, head by head and with complex numbers for the turns."""
    chosen, spec = models.settings, models.specs[model]
    w = {name: value[model].detach() for name, value in models.weights.items()}
    length, width = len(tokens), chosen.dim // chosen.heads
    places = torch.arange(length)

    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain

    def turned(x: torch.Tensor) -> torch.Tensor:
        angles = places[:, None] / 10_000.0 ** (torch.arange(width // 2) * 2 / width)
        numbers = torch.complex(x[:, : width // 2], x[:, width // 2 :]) * torch.exp(1j * angles)
        return torch.cat([numbers.real, numbers.imag], -1)

    x = norm(w["embedding"][tokens], w["gain_0"])
    for layer in range(chosen.layers):
        inputs = (norm(x, w[f"gain_{layer}"]) if layer else x) * loud[:, None]
        mixed = []
        for head in range(chosen.heads):
            own = slice(head * width, (head + 1) * width)
            q, k, v = (inputs @ w[f"{name}_{layer}"][:, own] for name in ("query", "key", "value"))
            scores = turned(q) @ turned(k).T / math.sqrt(width)
            mixed.append(spec.head.weights(scores, mask=places < places[:, None]) @ v)
        x = x + torch.cat(mixed, -1) @ w[f"output_{layer}"]
        hidden = norm(x, w[f"mlp_gain_{layer}"]) @ w[f"mlp_in_{layer}"]
        x = x + (0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))) @ w[f"mlp_out_{layer}"]
    return norm(x, w["final_gain"]) @ w["unembedding"]


def test_heads_turns_and_mlp_are_what_they_say() -> None:
    settings = ModelSettings(12, 9, 16, heads=2, layers=2, mlp=2, positions="rotary", own_key=False)
    models = AttentionModels(settings, [parse_attention("softmax"), parse_attention("sparsemax")], [3, 4])
    with torch.no_grad():
        # Gains of 1 would hide which one is used where.
        for name, value in models.weights.items():
            if "gain" in name:
                value.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(len(name)))
    batch = tokens(2)
    loud = torch.rand(2, 6, 9, generator=torch.Generator().manual_seed(1)) + 0.5
    logits, layers = models(batch, loudness=loud)
    for model in range(2):
        expected = torch.stack(
            [by_the_definition(models, model, item, own) for item, own in zip(batch[model], loud[model], strict=True)]
        )
        torch.testing.assert_close(logits[model], expected, rtol=1e-4, atol=1e-5)
    assert [part.weights.shape for part in layers] == [(2, 6, 2, 9, 9)] * 2
    # Places of each item's own, in any order.
    wanted = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i))[:4] for i in range(12)])
    wanted = wanted.unflatten(0, (2, 6))
    some, _ = models(batch, wanted, loudness=loud)
    torch.testing.assert_close(some, logits.gather(2, wanted[..., None].expand(-1, -1, -1, 12)), rtol=1e-5, atol=1e-6)


def test_a_centred_threshold_is_set_by_centred_scores() -> None:
    """A head that takes each row's mean from its scores meets a threshold on what is left."""
    group = NormaliserGroup([parse_attention("pn_fir_c(calibrate=threshold)")], 1)
    scores = torch.randn(1, 5, 1, 4, 6, generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(scores, dtype=torch.bool).tril(2)
    group.calibrate(Attended(scores, scores, scores.sum(-1), scores, mask))
    rows = [row[seen] for row, seen in zip(scores.flatten(0, -2), mask.flatten(0, -2), strict=True)]
    peaks = torch.stack([(row - row.mean()).max() for row in rows])
    assert group.values()["threshold"].item() == pytest.approx(float(peaks.quantile(0.1)) - 1, abs=1e-5)


def test_a_learned_tau_starts_above_its_bound() -> None:
    """Far below zero s^tau is softmax: tau* is 1, from where nothing could be learned."""
    group = NormaliserGroup([parse_attention("s_tau_closed(learn=[tau], eps=0)")], 1)
    scores = torch.tensor([-40.0, -41.0, -43.0]).expand(1, 2, 1, 1, 3)
    group.calibrate(Attended(scores, scores, scores.sum(-1), scores, torch.ones_like(scores, dtype=torch.bool)))
    assert group.values()["tau"].item() == pytest.approx(1.001, abs=1e-6)


def test_the_first_batch_sets_layer_by_layer() -> None:
    """What the second layer reads depends on the tau of the first."""
    models = AttentionModels(ModelSettings(12, 9, 8, layers=2), [parse_attention("s_tau_closed")], [0])
    batch = tokens(1)
    models.calibrate(batch)
    _, layers = models(batch)
    for found, attended in zip(models.learned(), layers, strict=True):
        expected = tau_star(attended.scores[0].detach(), mask=attended.mask[0].expand(6, 1, 9, 9), pool="head")
        torch.testing.assert_close(found["tau"][0].double(), expected.closed_form, rtol=1e-5, atol=0)


def test_tokens_that_are_not_looked_for_cost_no_error() -> None:
    models = AttentionModels(SMALL, [PRESETS["softmax"]] * 2, [0, 1])
    batch = tokens(2)
    assert torch.equal(models(batch, checked=False)[0], models(batch)[0])
    batch[0, 0, 0] = 12
    # The second model's first token, as the caller was told.
    assert bool(models(batch, checked=False)[0].isfinite().all())


def test_starts_have_the_scale_that_the_settings_say() -> None:
    settings = ModelSettings(64, 60, 64, mlp=4, embedding_std=0.3, position_std=0.1, output_scale=0.25)
    start = AttentionModels(settings, [PRESETS["softmax"]], [0]).weights
    stds = dict.fromkeys(("query_0", "key_0", "value_0", "mlp_in_0", "unembedding"), 1 / 8)
    stds |= {"embedding": 0.3, "positions": 0.1, "output_0": 1 / 32, "mlp_out_0": 1 / 64}
    assert set(start) == {*stds, "gain_0", "mlp_gain_0", "final_gain"}
    for name, value in start.items():
        if name in stds:
            # The relative standard error of a deviation is (2 n)^-1/2; 3 840 numbers of positions are the fewest.
            assert abs(float(value.detach().std()) / stds[name] - 1) < 5 * (2 * 3840) ** -0.5, name
        else:
            assert bool((value == 1).all()), name


def test_rotary_scores_see_distances_alone() -> None:
    x, y = torch.randn(2, 4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    near, far = (rotate(x, torch.arange(4) + s) @ rotate(y, torch.arange(4) + s).T for s in (0, 91))
    torch.testing.assert_close(near, far, rtol=1e-10, atol=1e-12)
