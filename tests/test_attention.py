"""Attention with any normaliser: key smoothing, masks, lengths, specs as text, plug-ins."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stau_rl.agents.attention.attention import attend, attention_scores
from stau_rl.agents.attention.attention_spec import PRESETS, AttentionSpec, parse_attention
from stau_rl.agents.attention.key_smoothing import half_gaussian_taps, smooth_keys
from stau_rl.heads import HEADS, Head, Softmax, SoftplusNorm, SpecError
from stau_rl.plugin.load import load_plugin
from stau_rl.plugin.plugin_head import forget

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_normalisers.json").read_text(encoding="utf-8"))
EVERY = [head() for head in HEADS.values()]
each_head = pytest.mark.parametrize("head", EVERY, ids=str)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def causal(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


# Key smoothing


def test_the_filter_is_the_exact_one() -> None:
    expected = torch.tensor(GOLDEN["fir_half_gaussian_sigma2_7taps"], dtype=torch.float64)
    torch.testing.assert_close(half_gaussian_taps(), expected, rtol=1e-15, atol=0)
    assert half_gaussian_taps(1, 0.3).tolist() == [1.0]


@pytest.mark.parametrize("length", [1, 2, 6, 7, 8, 63])
@pytest.mark.parametrize("taps", [1, 3, 7])
def test_smoothing_is_the_sum_it_says(length: int, taps: int) -> None:
    keys, weights = normal(2, 3, length, 4), half_gaussian_taps(taps, 1.5)
    expected = torch.zeros_like(keys)
    for j in range(length):
        for i in range(min(taps, j + 1)):
            expected[:, :, j] += weights[i] * keys[:, :, j - i]
    torch.testing.assert_close(smooth_keys(keys, weights), expected, rtol=1e-14, atol=1e-15)
    each = torch.stack([weights, torch.eye(taps, dtype=torch.float64)[0]])[:, None]
    torch.testing.assert_close(smooth_keys(keys, each)[0], expected[0], rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(smooth_keys(keys, each)[1], keys[1], rtol=0, atol=0)


def test_smoothing_looks_left_alone_and_not_under_the_mask() -> None:
    keys, mask = normal(9, 4), torch.tensor([True, False, True, True, False, True, True, True, True])
    later = keys.clone()
    later[5:] += 1.0
    assert torch.equal(smooth_keys(keys, half_gaussian_taps())[:5], smooth_keys(later, half_gaussian_taps())[:5])
    dirty = keys.masked_fill(~mask[:, None], math.nan).requires_grad_()
    clean = keys.masked_fill(~mask[:, None], 0.0)
    smoothed = smooth_keys(dirty, half_gaussian_taps(), mask)
    torch.testing.assert_close(smoothed, smooth_keys(clean, half_gaussian_taps()), rtol=0, atol=0)
    smoothed.square().sum().backward()
    assert dirty.grad is not None
    assert bool(dirty.grad.isfinite().all())
    assert bool((dirty.grad[~mask] == 0).all())


@pytest.mark.parametrize(
    ("taps", "sigma", "message"),
    [(0, 2.0, "taps must be at least 1, got 0"), (7, 0.0, "sigma must be"), (7, math.nan, "got nan")],
)
def test_a_filter_that_is_none(taps: int, sigma: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        half_gaussian_taps(taps, sigma)


# One step of attention


@pytest.mark.parametrize("length", [1, 7, 63])
def test_softmax_attention_is_that_of_torch(length: int) -> None:
    q, k, v = (normal(2, 3, length, 8, seed=seed) for seed in range(3))
    ours = attend(q, k, v, Softmax(), causal(length))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ours.output, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("queries", [3, 40])
def test_scores_are_those_of_the_smoothed_keys(queries: int) -> None:
    """Few queries smooth the scores, many the keys; it makes no difference."""
    q, k = normal(2, queries, 8), normal(2, 11, 8, seed=1)
    mask = torch.rand(2, queries, 11, generator=torch.Generator().manual_seed(3)) < 0.7
    mask[..., 4] = False
    attended = attend(q, k, k, Softmax(), mask, fir=half_gaussian_taps())
    smoothed = smooth_keys(k, half_gaussian_taps(), mask.any(-2))
    torch.testing.assert_close(attended.scores, q @ smoothed.transpose(1, 2) / 8**0.5, rtol=1e-12, atol=1e-13)


def test_lssa_scores_by_hand() -> None:
    """Log d log n cos(q, k), n the keys in the row: d = 4; n = 1, 2, 3 down a causal mask."""
    q, k = normal(3, 4), normal(3, 4, seed=1)
    got = attention_scores(q, k, causal(3), "cosine")
    for i in range(3):
        for j in range(i + 1):
            cosine = float(q[i] @ k[j] / (q[i].norm() * k[j].norm()))
            assert float(got[i, j]) == pytest.approx(math.log(4) * math.log(i + 1) * cosine, rel=1e-12)
    attended = attend(q, k, k, SoftplusNorm(), causal(3), scores="cosine")
    torch.testing.assert_close(attended.weights, SoftplusNorm().weights(got, mask=causal(3)))


@each_head
@pytest.mark.parametrize("length", [1, 7, 63, 127, 129])
def test_what_no_query_may_see_leaks_nowhere(head: Head, length: int) -> None:
    """NaN in keys and values that are masked for every query; rows without any key."""
    q, k, v = (normal(2, length, 8, seed=seed) for seed in range(3))
    seen = torch.rand(2, length, generator=torch.Generator().manual_seed(3)) < 0.7
    seen[0] = False
    mask = causal(length) & seen[:, None, :]
    parts = [q.requires_grad_(), *(part.masked_fill(~seen[..., None], math.nan).requires_grad_() for part in (k, v))]
    attended = attend(*parts, head, mask, fir=half_gaussian_taps())
    assert bool(attended.output.isfinite().all())
    assert bool((attended.output[0] == 0).all() & (attended.mass[0] == 0).all())
    torch.testing.assert_close(attended.weights.sum(-1), attended.mass)
    clean = attend(
        q, *(part.masked_fill(~seen[..., None], 0.0) for part in (k, v)), head, mask, fir=half_gaussian_taps()
    )
    assert torch.equal(attended.output, clean.output)
    attended.output.square().sum().backward()
    for part in parts:
        assert part.grad is not None
        assert bool(part.grad.isfinite().all())
    for part in parts[1:]:
        assert part.grad is not None
        assert bool((part.grad[~seen] == 0).all())


@pytest.mark.parametrize("scores", ["dot", "cosine"])
@pytest.mark.parametrize("length", [1, 7])
def test_a_query_that_may_look_nowhere_leaks_nowhere(length: int, scores: str) -> None:
    """The last place of the first sequence is padding, its query included, and holds NaN."""
    there = torch.ones(2, length, dtype=torch.bool)
    there[0, -1] = False
    mask = causal(length) & there[:, None, :] & there[:, :, None]
    parts = [normal(2, length, 8, seed=seed).masked_fill(~there[..., None], math.nan) for seed in range(3)]
    for part in parts:
        part.requires_grad_()
    attended = attend(*parts, Softmax(), mask, fir=half_gaussian_taps(), scores=scores)
    assert bool((attended.output[0, -1] == 0).all())
    attended.output.square().sum().backward()
    for part in parts:
        assert part.grad is not None
        assert bool(part.grad.isfinite().all() & (part.grad[~there] == 0).all())


@settings(max_examples=60, deadline=None)
@given(spec=st.sampled_from(list(PRESETS.values())), data=st.data())
def test_any_mask(spec: AttentionSpec, data: st.DataObject) -> None:
    queries, keys = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    bits = data.draw(st.lists(st.booleans(), min_size=queries * keys, max_size=queries * keys))
    mask = torch.tensor(bits).reshape(queries, keys)
    q, k, v = normal(queries, 6), normal(keys, 6, seed=1).requires_grad_(), normal(keys, 6, seed=2)
    fir = half_gaussian_taps(spec.fir_taps, spec.fir_sigma) if spec.fir_taps else None
    attended = attend(q, k, v, spec.head, mask, fir=fir, scores=spec.scores, output=spec.output)
    assert bool((attended.weights[~mask] == 0).all() & (attended.mass[~mask.any(-1)] == 0).all())
    assert bool(attended.output.isfinite().all())
    attended.output.sum().backward()
    assert k.grad is not None
    assert bool(k.grad.isfinite().all())


# Specs as text


@pytest.mark.parametrize("name", PRESETS)
def test_presets_read_back(name: str) -> None:
    assert parse_attention(name) == PRESETS[name]
    assert parse_attention(str(PRESETS[name])) == PRESETS[name]


def test_a_preset_takes_new_values_and_a_normaliser_stands_alone() -> None:
    changed = parse_attention("pn_fir_tau(p=4, fir_sigma=1, threshold=-1)")
    assert str(changed) == (
        "attention(head=power_norm(p=4, threshold=-1, gate=clamp), fir_taps=7, fir_sigma=1, learn=[threshold])"
    )
    assert parse_attention("sm_fir(fir_taps=3)").fir_taps == 3
    assert parse_attention("relu_norm") == AttentionSpec(HEADS["relu_norm"]())
    assert parse_attention("attention(s_tau(tau=5), fir_taps=7)").head == HEADS["s_tau"](5.0)
    assert parse_attention("attention(learn=[beta])").learn == ("beta",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pn_fir_tao", "unknown attention head 'pn_fir_tao'; did you mean 'pn_fir_tau'?"),
        ("pn_fir(q=3)", "pn_fir has no argument 'q'"),
        ("pn_fir(3)", "pn_fir: give arguments by name"),
        ("softmax | softmax", "expected one attention head, got a pipe of 2"),
        ("attention(softmax, learn=[tau])", "softmax has no parameter 'tau' to learn; known: beta"),
        ("attention(softmax, learn=tau)", "attention: learn must be a list of words, got 'tau'"),
        ("attention(softmax, fir_taps=-1)", "attention: fir_taps must be from 0 to 65536, got -1"),
        ("softmax(fir_taps=1000000000000)", "attention: fir_taps must be from 0 to 65536, got 1000000000000"),
        ("attention(softmax, fir_sigma=0)", "fir: sigma must be finite and > 0, got 0"),
        ("attention(softmax, scores=cos)", "attention: scores must be one of dot, cosine, got 'cos'"),
        ("attention(softmax, calibrate=threshold)", "calibrate=threshold sets threshold, which softmax has not"),
        ("attention(softmax(beta=t))", "changes with t; an attention head has no step"),
    ],
)
def test_errors_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_attention(text)
    assert message in str(caught.value)


def test_a_plug_in_is_a_normaliser(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "from stau_rl.plugin import head, parameter\n\n\n"
        "@head('cubed', p=parameter(3.0, above=0.0))\n"
        "def cubed(scores, p):\n"
        '    "(1 + s^2)^p"\n'
        "    return p * torch.log1p(scores * scores)\n\n\n"
        "@head('ranked', rows=True)\n"
        "def ranked(scores):\n"
        '    "whole rows"\n'
        "    return scores - scores.max(0).values\n"
    )
    load_plugin(file)
    try:
        spec = parse_attention("attention(head=cubed(p=2), fir_taps=7, learn=[p])")
        q, k = normal(5, 6), normal(5, 6, seed=1)
        p = torch.full((1, 1), 2.0, dtype=torch.float64, requires_grad=True)
        attended = attend(q, k, k, spec.head.bind(p=p), causal(5))
        f = torch.where(causal(5), (1 + attended.scores**2) ** 2, 0.0)
        torch.testing.assert_close(attended.weights, f / f.sum(-1, keepdim=True))
        attended.output.square().sum().backward()
        assert p.grad is not None
        assert float(p.grad) != 0.0
        with pytest.raises(SpecError, match="ranked takes no mask, which attention needs"):
            parse_attention("ranked")
    finally:
        forget("cubed")
        forget("ranked")
