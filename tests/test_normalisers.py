"""Every head as a normaliser: mass, masks, learned parameters, lengths, extremes; sparse maps against entmax."""

import math

import entmax
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stau_rl.heads import (
    HEADS,
    Argmax,
    Entmax,
    Entmax15,
    Head,
    LearnedSink,
    Lssar,
    PowerNorm,
    Rela,
    Sigmoid,
    Softmax,
    SoftmaxOffByOne,
    Softpick,
    Sparsemax,
    SSMax,
    parse_head,
)
from stau_rl.heads.normalise import normalise_log, scaled_log
from stau_rl.nn.learned import LearnedHead

GATED = [PowerNorm(gate="sink", c=0.7), PowerNorm(gate="clamp"), PowerNorm(gate="none"), PowerNorm(3.0, -0.5)]
STAGES = [parse_head(f"reweight(inner={text}, p=2)") for text in ("softmax", "sigmoid_norm", "relu_norm", "sparsemax")]
EVERY: list[Head] = [
    *(head() for head in HEADS.values()),
    *GATED,
    *STAGES,
    PowerNorm(2.0, 0.1, centre="mean"),
    Lssar(15.0),
    Entmax(1.7),
    Entmax(3.0),
]
each_head = pytest.mark.parametrize("head", EVERY, ids=str)
PARAMETERS = [(head, name) for head in EVERY for name in head._ranges() if name not in ("eps",)]
extreme = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, 1e-30, -1e4, 1e4, -20.0, 88.8])


def rows(*shape: int, seed: int = 0, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def some(*shape: int, seed: int = 1, share: float = 0.7) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


@each_head
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_gradients_of_weights_and_mass(head: Head, dim: int, masked: bool) -> None:
    scores = rows(5, 6).requires_grad_()
    mask = some(5, 6) if masked else None
    assert torch.autograd.gradcheck(lambda s: head.weights_and_mass(s, dim, mask), scores)


@pytest.mark.parametrize(("head", "name"), PARAMETERS, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_reach_every_parameter(head: Head, name: str, dim: int) -> None:
    """One value per row; a bound tensor gives what the number gives, and its gradient is right."""
    scores, mask = rows(4, 6, seed=3), some(4, 6)
    value = torch.full((1, 6) if dim == 0 else (4, 1), float(getattr(head, name)), dtype=torch.float64)
    bound = head.bind(**{name: value})
    torch.testing.assert_close(bound.weights(scores, dim, mask), head.weights(scores, dim, mask), rtol=1e-12, atol=0)
    start = (value + 0.05).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s, v: head.bind(**{name: v}).weights_and_mass(s, dim, mask), (scores.requires_grad_(), start)
    )


@each_head
def test_the_mass_is_what_the_weights_sum_to(head: Head) -> None:
    scores, mask = rows(40, 9), some(40, 9, share=0.5)
    mask[3] = False
    weights, mass = head.weights_and_mass(scores, mask=mask)
    torch.testing.assert_close(weights.sum(-1), mass, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(head.log_weights(scores, mask=mask).exp(), weights, rtol=1e-15, atol=0)
    assert mass[3] == 0
    assert bool((weights >= 0).all())
    if head.mass_kind != "free":
        assert float(mass.max()) <= 1 + 1e-14
    if head.mass_kind == "simplex":
        assert bool((mass[mask.any(-1)] == 1).all())


@each_head
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf], ids=str)
def test_nothing_under_a_mask_leaks(head: Head, junk: float) -> None:
    scores, mask = rows(4, 7), torch.tensor([True, False, True, True, False, True, True])
    dirty = scores.masked_fill(~mask, junk).requires_grad_()
    alone = scores[:, mask].clone().requires_grad_()
    weights, mass = head.weights_and_mass(dirty, mask=mask)
    expected, expected_mass = head.weights_and_mass(alone)
    assert bool((weights[:, ~mask] == 0).all())
    torch.testing.assert_close(weights[:, mask], expected, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(mass, expected_mass, rtol=1e-13, atol=0)
    (weights.square().sum() + mass.sum()).backward()
    (expected.square().sum() + expected_mass.sum()).backward()
    assert dirty.grad is not None
    assert alone.grad is not None
    assert bool((dirty.grad[:, ~mask] == 0).all())
    torch.testing.assert_close(dirty.grad[:, mask], alone.grad, rtol=1e-11, atol=1e-13)


@each_head
@pytest.mark.parametrize("size", [1, 7, 63, 127, 129])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_lengths_and_fully_masked_rows(head: Head, size: int, dtype: torch.dtype) -> None:
    scores = rows(5, size, dtype=torch.float32).to(dtype)
    mask = some(5, size)
    mask[1], mask[2] = False, True
    scores = scores.masked_fill(~mask, math.nan).requires_grad_()
    weights, mass = head.weights_and_mass(scores, mask=mask)
    assert weights.dtype == mass.dtype == dtype
    assert weights[1].tolist() == [0.0] * size
    assert bool(weights.isfinite().all() & mass.isfinite().all())
    (weights.square().sum() + mass.sum()).backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert bool((scores.grad[~mask] == 0).all())


@each_head
def test_scores_of_minus_infinity(head: Head) -> None:
    """A score of -inf is the limit of lower scores, in the weights and without a gradient."""
    if head.finite_only:
        with pytest.raises(ValueError, match="NaN or infinite"):
            head.weights(torch.tensor([0.0, -math.inf]))
        return
    scores = torch.tensor([[-math.inf, 0.5, 2.0, -math.inf, 1.0], [-math.inf] * 5], dtype=torch.float64)
    scores.requires_grad_()
    weights, mass = head.weights_and_mass(scores)
    if not (isinstance(head, PowerNorm) and head.centre == "mean"):
        low = head.weights(scores.detach().clamp(min=-1e7))
        torch.testing.assert_close(weights, low, rtol=1e-6, atol=1e-12)
    (weights.square().sum() + mass.sum()).backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert scores.grad[0, [0, 3]].tolist() == [0.0, 0.0]
    assert mass[1] in (0.0, 1.0)


@each_head
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_extremes_stay_finite(head: Head, dtype: torch.dtype) -> None:
    """Powers and exponentials that overflow when formed; parameters that are learned see them too."""
    # Some weights change by more per score than float16 can hold where scores are that small.
    small = 1e-3 if dtype == torch.float16 else 6e-8
    scores = torch.tensor(
        [
            [1e4, -1e4, 0.0, 9e3],
            [-1e4, -9e3, -9.5e3, -1e4],
            [370.0, 371.0, 1.0, 0.0],
            [0.0] * 4,
            [small, 0.0, -small, 0.0],
        ]
    ).to(dtype)
    scores.requires_grad_()
    values = {
        name: torch.tensor(float(getattr(head, name)), dtype=torch.float32, requires_grad=True)
        for name in head._ranges()
    }
    weights, mass = head.bind(**values).weights_and_mass(scores)
    assert bool(weights.isfinite().all() & mass.isfinite().all())
    (weights.square().sum() + mass.sum()).backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    for name, value in values.items():
        assert value.grad is None or bool(value.grad.isfinite()), name


@settings(max_examples=120, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(head=st.sampled_from(EVERY), data=st.data(), shape=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_any_shape_mask_and_score(head: Head, data: st.DataObject, shape: list[int]) -> None:
    size = math.prod(shape)
    scores = torch.tensor(data.draw(st.lists(extreme, min_size=size, max_size=size))).reshape(shape).requires_grad_()
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    weights, mass = head.weights_and_mass(scores, dim, mask)
    assert weights.shape == scores.shape
    assert mass.shape == weights.sum(dim).shape
    assert bool((weights[~mask] == 0).all() & (weights >= 0).all() & weights.isfinite().all())
    if head.mass_kind != "free":
        assert float(mass.detach().max()) <= 1 + 32 * torch.finfo(torch.float32).eps
    (weights * torch.linspace(-1, 1, size).reshape(shape)).sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all() & (scores.grad[~mask] == 0).all())


SPARSE = [(Sparsemax(), entmax.sparsemax), (Entmax15(), entmax.entmax15)]
SPARSE += [
    (Entmax(a), lambda s, dim, a=a: entmax.entmax_bisect(s, alpha=a, dim=dim, n_iter=80)) for a in (1.1, 1.5, 2, 3)
]


@pytest.mark.parametrize(("head", "oracle"), SPARSE, ids=lambda value: str(value) if isinstance(value, Head) else "")
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_sparse_maps_are_those_of_the_entmax_package(head: Head, oracle: object, dim: int) -> None:
    scores, target = rows(6, 7, 33), rows(6, 7, 33, seed=5)
    ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    weights, expected = head.weights(ours, dim), oracle(theirs, dim=dim)  # type: ignore[operator]
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-12)
    assert bool(((weights == 0) | (expected > 0)).all())
    (weights * target).sum().backward()
    (expected * target).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-9)


def test_the_gradient_of_alpha_is_that_of_the_entmax_package() -> None:
    scores, target = rows(8, 12), rows(8, 12, seed=5)
    ours, theirs = (torch.full((8, 1), 1.6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    (Entmax().bind(alpha=ours).weights(scores) * target).sum().backward()
    (entmax.entmax_bisect(scores, alpha=theirs, dim=-1, n_iter=80) * target).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_heads_that_coincide() -> None:
    scores = rows(5, 8)
    softmax = Softmax().weights(scores)
    torch.testing.assert_close(SoftmaxOffByOne(0.0).weights(scores), softmax, rtol=1e-14, atol=0)
    torch.testing.assert_close(LearnedSink(-800.0).weights(scores), softmax, rtol=1e-14, atol=0)
    off, sink = SoftmaxOffByOne(3.0).weights(scores), LearnedSink(math.log(3.0)).weights(scores)
    torch.testing.assert_close(off, sink, rtol=1e-14, atol=0)
    torch.testing.assert_close(SSMax(1 / math.log(8)).weights(scores), softmax, rtol=1e-13, atol=0)
    torch.testing.assert_close(Entmax(1 + 1e-7).weights(scores), softmax, rtol=1e-4, atol=1e-6)


def test_masses_by_hand() -> None:
    # off by one: e^0 + e^0 over 1 + 2; softpick: (e - 1) / (e - 1 + 1 - 1/e); sigmoid with n = 2: 1 / (1 + 2) each.
    pair = torch.tensor([0.0, 0.0], dtype=torch.float64)
    assert float(SoftmaxOffByOne().weights_and_mass(pair)[1]) == pytest.approx(2 / 3, rel=1e-15)
    assert float(Sigmoid().weights_and_mass(pair)[1]) == pytest.approx(2 / 3, rel=1e-15)
    e = math.e
    assert float(Softpick(0.0).weights_and_mass(pair + torch.tensor([1.0, -1.0]))[1]) == pytest.approx(
        (e - 1) / (e - 1 / e), rel=1e-15
    )
    assert Rela().weights(torch.tensor([-1.0, 3.0, 0.0])).tolist() == pytest.approx([0.0, 3.0, 0.0])
    # Half-way: m = 1 for the hill, sum x^p = c^p for the sink; the clamp is m itself below 1.
    one = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    assert float(PowerNorm(gate="hill").weights_and_mass(one)[1]) == 0.5
    assert float(PowerNorm(4.0, gate="sink", c=3.0).weights_and_mass(3 * one)[1]) == pytest.approx(0.5, rel=1e-14)
    assert float(PowerNorm(gate="clamp").weights_and_mass(0.25 * one)[1]) == pytest.approx(0.25, rel=1e-15)
    assert float(PowerNorm(gate="none").weights_and_mass(0.25 * one)[1]) == 1.0
    # The mean of 1, 0, -2 is -1/3: x = 4/3, 1/3, 0, and p = 1 gives 4 : 1.
    centred = PowerNorm(1.0, gate="none", centre="mean").weights(one)
    assert centred.tolist() == pytest.approx([0.8, 0.2, 0.0], rel=1e-14)


@pytest.mark.parametrize("exponent", [0.0, torch.tensor(0.0)], ids=["number", "tensor"])
def test_zero_stays_zero_at_any_exponent(exponent: float | torch.Tensor) -> None:
    assert scaled_log(exponent, torch.tensor([-math.inf, 3.0])).tolist() == [-math.inf, 0.0]


def test_a_single_entry_is_reweighted_to_one() -> None:
    head = parse_head("reweight(inner=power_norm(p=1), p=2)")
    assert head.log_weights(torch.tensor([0.5])).tolist() == [0.0]


def test_the_largest_score_under_a_mask_does_not_count() -> None:
    log_weights = Argmax().log_weights(torch.tensor([1.0, 2.0, 3.0]), mask=torch.tensor([True, True, False]))
    assert log_weights.tolist() == [-math.inf, 0.0, -math.inf]


def test_a_dead_row_has_neither_mass_nor_gradient() -> None:
    scores = torch.tensor([[-0.5, -1.0], [0.5, 2.0]], dtype=torch.float64, requires_grad=True)
    threshold = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    mass = PowerNorm(gate="hill").bind(threshold=threshold).weights_and_mass(scores)[1]
    mass.sum().backward()
    assert mass[0] == 0
    assert scores.grad is not None
    assert threshold.grad is not None
    assert scores.grad[0].tolist() == [0.0, 0.0]
    assert threshold.grad[0] == 0
    assert threshold.grad[1] < 0


@pytest.mark.parametrize("head", [PowerNorm(15.0), PowerNorm(15.0, gate="sink"), Lssar(15.0)], ids=str)
def test_a_fifteenth_power_in_half_precision(head: Head) -> None:
    """4^15 is beyond float16 already, 371^15 beyond float32: the largest score keeps its weight and its gradient."""
    scores = (
        torch.tensor([[4.0, 3.9, 0.1, 0.0], [6e4, 5e4, 1.0, -6e4], [371.0, 370.0, 1.0, 0.0]]).half().requires_grad_()
    )
    weights, mass = head.weights_and_mass(scores)
    assert bool((weights.argmax(-1) == 0).all())
    torch.testing.assert_close(mass, torch.ones(3).half())
    weights[:, 0].sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert float(scores.grad[0, 0]) > 0


def test_reweight_carries_schedules_and_tensors_to_its_first_stage() -> None:
    head = parse_head("reweight(inner=softmax(beta=2*t), p=1+t)")
    assert str(head.at(2)) == "reweight(inner=softmax(beta=4), p=3)"
    assert sorted(head.schedules) == ["inner.beta", "p"]
    with pytest.raises(ValueError, match=r"softmax: beta must be .* at every step.* at t = 2001"):
        parse_head("reweight(inner=softmax(beta=2000-t))").check_steps(3000)
    beta = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)
    bound = parse_head("reweight(inner=softmax, p=3)").bind(beta=beta)
    torch.testing.assert_close(bound.weights(rows(3, 6)), head.at(2).weights(rows(3, 6)))
    with pytest.raises(ValueError, match="softmax has no parameter 'tau'"):
        bound.bind(tau=beta)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("power_norm(gate=hil)", "power_norm: gate must be one of hill, sink, clamp, none, got 'hil'"),
        ("power_norm(centre=row)", "power_norm: centre must be one of none, mean, got 'row'"),
        ("power_norm(c=2)", "power_norm: c belongs to gate=sink, got c=2.0 with gate=clamp"),
        ("power_norm(p=0)", "power_norm: p must be finite and > 0, got 0"),
        ("entmax(alpha=1)", "entmax: alpha must be finite and > 1, got 1"),
        ("softmax_off_by_one(n=-1)", "softmax_off_by_one: n must be finite and >= 0, got -1"),
        ("reweight(inner=softmaxx)", "unknown head 'softmaxx'; did you mean 'softmax'?"),
        ("reweight(inner=3)", "reweight: inner must be a head, got 3"),
    ],
)
def test_errors_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared
        parse_head(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_beside_a_dead_one_are_as_they_are_alone(dtype):
    """A batch without a dead row takes a shorter way on a CPU, to the same numbers and gradients."""
    generator = torch.Generator().manual_seed(0)
    log_f = 9 * torch.randn(200, 5, generator=generator, dtype=dtype)
    log_f[::3, 0] = -torch.inf
    dead = torch.full((1, 5), -torch.inf, dtype=dtype)
    out, slope = [], torch.randn(200, 5, generator=generator, dtype=dtype)
    for rows in (log_f, torch.cat([log_f, dead])):
        rows = rows.clone().requires_grad_()
        weights = normalise_log(rows)
        (weights[:200].exp() * slope).sum().backward()
        out.append((weights[:200].detach(), rows.grad[:200]))
    torch.testing.assert_close(out[0], out[1], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gate", ["none", "sink", "hill", "clamp"])
def test_a_row_of_equal_scores_has_nothing_above_its_mean(gate: str, dtype: torch.dtype) -> None:
    head = parse_head(f"power_norm(p=0.5, gate={gate}, centre=mean)")
    for n in range(1, 40):
        for value in (0.1, 0.3, -0.7, 1.1):
            scores = torch.full((2, n + 1), value, dtype=dtype)
            scores[:, n] = torch.tensor([9.0, -math.inf])
            mask = torch.arange(n + 1) < torch.tensor([[n], [n + 1]])
            assert (head.weights(scores, mask=mask) == 0.0).all(), (n, value)


def test_a_parameter_without_a_part_cannot_be_learned() -> None:
    """The half-way point of a sink has a gradient there alone; learned elsewhere it would stand still in silence."""
    with pytest.raises(ValueError, match=r"learn: 'c' has no part in power_norm"):
        LearnedHead(PowerNorm(gate="hill"), ("c",))
    sink = LearnedHead(PowerNorm(gate="sink"), ("c",))
    sink.bound_head().weights(torch.tensor([1.0, 2.0])).sum().backward()
    assert sink.raw("c").grad is not None
    assert sink.raw("c").grad != 0
