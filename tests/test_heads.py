"""What every registered head promises: masks, errors, dtypes, extremes, gradients; and the limits that tie heads."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stau_rl.heads import HEADS, Argmax, ClampPower, Escort, SigmoidNorm, Softmax, SoftplusNorm, STau, log_s_tau, s_tau

EVERY = [head() for head in HEADS.values() if head.mass_kind == "simplex"]
VARIANTS = [Softmax(0.0), Softmax(30.0), STau(1.0), STau(20.0), STau(2.0, eps=0.0), Escort(0.5), Escort(15.0)]
each_head = pytest.mark.parametrize("head", EVERY, ids=str)
each_variant = pytest.mark.parametrize("head", EVERY + VARIANTS, ids=str)
any_head = st.sampled_from(EVERY + VARIANTS)
extreme = st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, 1e-30, -1e4, 1e4, -20.0, 88.8])
quick = settings(max_examples=60, deadline=None)


def rows(*shape: int, seed: int = 0, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


GRADCHECKS = [(head, dim) for head in EVERY for dim in (0, 1, -1)] + [(head, -1) for head in VARIANTS]


@pytest.mark.parametrize(("head", "dim"), GRADCHECKS, ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_gradcheck(head, dim, masked):
    scores = rows(2, 3, 2).requires_grad_()
    mask = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(1)) < 0.7 if masked else None
    assert torch.autograd.gradcheck(lambda s: head.weights(s, dim, mask), scores)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("eps", [0.0, 1e-8, 0.1])
def test_gradcheck_of_a_learned_tau(dim, eps):
    """One tau per row; gradients of scores and tau together, with a mask."""
    scores = rows(2, 3, 2).requires_grad_()
    shape = [2, 3, 2]
    shape[dim] = 1
    tau = (1.5 + rows(*shape, seed=2).abs()).requires_grad_()
    mask = torch.rand(2, 3, 2, generator=torch.Generator().manual_seed(3)) < 0.7
    assert torch.autograd.gradcheck(lambda s, t: s_tau(s, t, eps, dim, mask), (scores, tau))


@each_variant
@pytest.mark.parametrize("size", [1, 7, 63, 127, 129, 257])
def test_weights_are_a_distribution_at_odd_sizes(head, size):
    for dim in (0, 1):
        weights = head.weights(rows(3, size) if dim else rows(size, 3), dim)
        torch.testing.assert_close(weights.sum(dim), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-14)
        assert bool((weights >= 0).all())


@each_variant
def test_weights_are_the_exponential_of_log_weights(head):
    scores = rows(5, 9)
    torch.testing.assert_close(head.log_weights(scores).exp(), head.weights(scores), rtol=1e-15, atol=0)


@each_variant
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e300], ids=str)
def test_nothing_under_the_mask_leaks(head, junk):
    scores, mask = rows(4, 7), torch.tensor([True, False, True, True, False, True, False])
    dirty = scores.masked_fill(~mask, junk).requires_grad_()
    alone = scores[:, mask].clone().requires_grad_()
    weights, expected = head.weights(dirty, mask=mask), head.weights(alone)
    assert bool((weights[:, ~mask] == 0).all())
    torch.testing.assert_close(weights[:, mask], expected, rtol=1e-13, atol=0)
    (weights.square().sum() + weights[:, 0].sum()).backward()
    (expected.square().sum() + expected[:, 0].sum()).backward()
    assert bool((dirty.grad[:, ~mask] == 0).all())
    torch.testing.assert_close(dirty.grad[:, mask], alone.grad, rtol=1e-12, atol=1e-14)


@each_variant
@pytest.mark.parametrize("junk", [0.0, math.nan, math.inf], ids=str)
def test_a_fully_masked_row_has_no_weight_and_no_gradient(head, junk):
    scores = rows(3, 5)
    scores[1] = junk
    scores.requires_grad_()
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    weights = head.weights(scores, mask=mask)
    weights.square().sum().backward()
    assert weights[1].tolist() == [0.0] * 5
    assert scores.grad[1].tolist() == [0.0] * 5
    assert weights.sum(1).tolist() == pytest.approx([1.0, 0.0, 1.0])
    assert bool(scores.grad.isfinite().all())


def test_a_learned_tau_sees_neither_masked_entries_nor_masked_rows():
    scores, tau = rows(2, 4), torch.full((2, 1), 3.0, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False, True], [False] * 4])
    s_tau(scores.masked_fill(~mask, math.nan), tau, mask=mask)[:, 0].sum().backward()
    alone = tau.detach()[:1].clone().requires_grad_()
    s_tau(scores[:1, mask[0]], alone)[:, 0].sum().backward()
    assert tau.grad[1].item() == 0.0
    torch.testing.assert_close(tau.grad[:1], alone.grad, rtol=1e-13, atol=0)


@each_head
@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
@pytest.mark.parametrize("method", ["weights", "log_weights"])
def test_nan_and_infinity_are_refused_with_their_share(head, bad, method):
    scores = torch.tensor([[0.0, bad, 1.0, 2.0], [1.0, 1.0, 1.0, bad]])
    with pytest.raises(ValueError, match=r"^scores must not be NaN or .* where unmasked: 0\.25 of the entries are$"):
        getattr(head, method)(scores)
    with pytest.raises(ValueError, match=r"0\.125 of"):
        getattr(head, method)(scores, mask=torch.tensor([[True, True, True, True], [True, True, True, False]]))


@pytest.mark.parametrize("call", [log_s_tau, s_tau])
def test_s_tau_functions_refuse_what_the_head_refuses(call):
    good = torch.zeros(2, 3)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=r"scores must not be NaN or \+inf"):
            call(torch.tensor([0.0, bad]), 2.0)
    for tau in (0.5, math.nan, math.inf, torch.tensor(0.5), torch.tensor([[2.0], [math.nan]])):
        with pytest.raises(ValueError, match="tau must be finite and >= 1"):
            call(good, tau)
    with pytest.raises(ValueError, match="eps must be finite and >= 0, got -1"):
        call(good, 2.0, -1.0)
    with pytest.raises(ValueError, match="tau must have size 1 along dim -1"):
        call(good, torch.full((2, 3), 2.0))


@each_head
@pytest.mark.parametrize(
    ("scores", "mask", "message"),
    [
        (torch.arange(3), None, "scores must be a floating-point torch tensor, got torch.int64"),
        ([0.0, 1.0], None, "scores must be a floating-point torch tensor, got list"),
        (torch.zeros(3), torch.ones(3), "mask must be a boolean torch tensor"),
        (torch.zeros(3), [True, True, False], "mask must be a boolean torch tensor"),
    ],
    ids=["integer scores", "list scores", "float mask", "list mask"],
)
def test_wrong_types_are_named(head, scores, mask, message):
    with pytest.raises(ValueError, match=message):
        head.weights(scores, mask=mask)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Softmax(-0.1), "softmax: beta must be finite and >= 0, got -0.1"),
        (lambda: Softmax(math.inf), "softmax: beta must be finite and >= 0, got inf"),
        (lambda: STau(0.99), "s_tau: tau must be finite and >= 1, got 0.99"),
        (lambda: STau(math.nan), "s_tau: tau must be finite and >= 1, got nan"),
        (lambda: STau(2.0, -1e-9), "s_tau: eps must be finite and >= 0, got -1e-09"),
        (lambda: Escort(0.0), "escort: p must be finite and > 0, got 0"),
        (lambda: Escort(-2.0), "escort: p must be finite and > 0, got -2"),
        (lambda: Escort(math.nan), "escort: p must be finite and > 0, got nan"),
    ],
)
def test_illegal_parameters_are_named_with_their_value(make, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        make()
    assert str(caught.value).startswith(message)


@each_variant
def test_minus_infinity_is_the_limit_of_lower_scores(head):
    scores = torch.tensor([-math.inf, 0.5, 2.0, -math.inf], dtype=torch.float64, requires_grad=True)
    if head.finite_only:
        with pytest.raises(ValueError, match=r"NaN or infinite where unmasked: 0\.5 of"):
            head.weights(scores)
        return
    weights = head.weights(scores)
    if isinstance(head, STau) and head.eps:
        # log phi(-inf) = log eps: the ratio to another weight is (eps / phi)^tau.
        ratio = (head.eps / (math.log1p(math.exp(0.5)) + head.eps)) ** head.tau
        assert weights[0].item() == pytest.approx(ratio * weights[1].item(), rel=1e-12)
    elif isinstance(head, ClampPower):
        assert weights[0].item() == pytest.approx((head.eps / 0.5) ** head.tau * weights[1].item(), rel=1e-12)
    else:
        assert weights[0].item() == 0.0
    weights[1].backward()
    assert scores.grad[0].item() == 0.0
    assert bool(scores.grad.isfinite().all())
    lowest = torch.full((4,), -math.inf, requires_grad=True)
    weights = head.weights(lowest)
    weights[0].backward()
    assert weights.tolist() == [0.25] * 4
    assert lowest.grad.tolist() == [0.0] * 4


@each_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(head, dtype):
    scores = rows(6, 11, dtype=torch.float32).to(dtype)
    weights = head.weights(scores)
    assert weights.dtype == dtype
    assert torch.equal(weights, head.weights(scores.float()).to(dtype))
    assert torch.equal(head.log_weights(scores), head.log_weights(scores.float()).to(dtype))
    assert head.unchecked_log_weights(scores).dtype == torch.float32


@each_variant
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_extreme_scores_stay_finite_and_the_best_arm_keeps_its_weight(head, dtype):
    """A power or an exponential formed before its row maximum is divided out overflows and zeroes the best arm."""
    scores = torch.tensor([[1e4, -1e4, 0.0, 9e3], [-1e4, -9e3, -9.5e3, -1e4], [370.0, 371.0, 1.0, 0.0]], dtype=dtype)
    scores.requires_grad_()
    weights = head.weights(scores)
    weights.square().sum().backward()
    assert bool(weights.isfinite().all())
    assert bool(scores.grad.isfinite().all())
    assert weights.sum(1).tolist() == pytest.approx([1.0, 1.0, 1.0], rel=1e-6)
    best = scores.detach().abs() if isinstance(head, Escort) else scores.detach()
    largest = weights.gather(1, best.argmax(1, keepdim=True)).squeeze(1)
    assert torch.equal(largest, weights.amax(1))
    assert bool((largest >= 0.25).all())


@each_variant
@pytest.mark.parametrize(("shape", "dim"), [((0, 5), -1), ((3, 0), -1), ((0, 5), 0), ((2, 0, 4), 2)])
def test_zero_sizes(head, shape, dim):
    scores = torch.zeros(shape, requires_grad=True)
    for mask in (None, torch.ones(shape, dtype=torch.bool)):
        weights = head.weights(scores, dim, mask)
        assert weights.shape == shape
        weights.sum().backward()
        assert scores.grad.shape == shape


def test_escort_of_scores_too_small_to_invert():
    """1 / 7e-43 overflows in float32; equal scores are uniform all the same, with gradient 0."""
    scores = torch.full((2,), 7e-43, requires_grad=True)
    weights = Escort().weights(scores)
    assert weights.tolist() == [0.5, 0.5]
    weights[0].backward()
    assert scores.grad.tolist() == [0.0, 0.0]


@quick
@given(
    head=any_head,
    data=st.data(),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    double=st.booleans(),
)
def test_any_shape_mask_and_score(head, data, shape, double):
    size = math.prod(shape)
    scores = torch.tensor(data.draw(st.lists(extreme, min_size=size, max_size=size))).reshape(shape)
    scores = (scores.double() if double else scores.float()).requires_grad_()
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape)
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    weights = head.weights(scores.detach().masked_fill(~mask, math.nan).requires_grad_(), dim, mask)
    assert bool((weights[~mask] == 0).all())
    tolerance = 32 * torch.finfo(scores.dtype).eps
    torch.testing.assert_close(weights.sum(dim), mask.any(dim).to(scores.dtype), rtol=0, atol=tolerance)
    probe = head.weights(scores, dim, mask)
    (probe * torch.linspace(-1, 1, size, dtype=scores.dtype).reshape(shape)).sum().backward()
    assert bool(scores.grad.isfinite().all())
    assert bool((scores.grad[~mask] == 0).all())


@quick
@given(head=any_head, scores=st.lists(extreme, min_size=1, max_size=9), seed=st.integers(0, 99))
def test_permuting_the_arms_permutes_the_weights(head, scores, seed):
    values = torch.tensor(scores, dtype=torch.float64)
    order = torch.randperm(len(scores), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(head.weights(values[order]), head.weights(values)[order], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("beta", [0.5, 3.0])
def test_softmax_does_not_see_a_shift_and_s_tau_does(beta):
    scores = rows(4, 6)
    shifted = scores + 3.0
    torch.testing.assert_close(Softmax(beta).weights(shifted), Softmax(beta).weights(scores), rtol=1e-13, atol=0)
    moved = (STau(1.0 + beta).weights(shifted) - STau(1.0 + beta).weights(scores)).abs().amax(1)
    assert float(moved.min()) > 0.01


@pytest.mark.parametrize("tau", [1.0, 2.5, 5.0])
def test_s_tau_is_softmax_far_below_zero(tau):
    """log softplus(s) = s - exp(s) / 2 + ...: log-weights differ by at most tau exp(max s) = tau 3e-14 at s <= -31."""
    scores = rows(4, 6).clamp(-9, 9) - 40.0
    tail = STau(tau, eps=0.0)
    torch.testing.assert_close(tail.log_weights(scores), Softmax(tau).log_weights(scores), rtol=0, atol=tau * 2e-13)


@pytest.mark.parametrize("tau", [1.0, 2.5, 5.0])
def test_s_tau_is_escort_far_above_zero(tau):
    """softplus(s) = s + exp(-s) + ..., so log-weights differ by at most 2 tau exp(-s) / s < tau 1e-14 at s >= 31."""
    scores = rows(4, 6).clamp(-9, 9) + 40.0
    tail = STau(tau, eps=0.0)
    torch.testing.assert_close(tail.log_weights(scores), Escort(tau).log_weights(scores), rtol=0, atol=tau * 1e-13)


def test_s_tau_at_one_is_softplus_norm():
    scores = rows(4, 6)
    torch.testing.assert_close(STau(1.0, eps=0.0).weights(scores), SoftplusNorm().weights(scores), rtol=1e-15, atol=0)


def test_escort_at_zero():
    """0^p has weight 0 and gradient 0, a row of zeros is uniform, and the sign does not matter."""
    for p in (0.5, 1.0, 2.0, 15.0):
        scores = torch.tensor([[0.0, 1.0, -1.0], [0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
        weights = Escort(p).weights(scores)
        weights[:, 0].sum().backward()
        assert weights.tolist() == [[0.0, 0.5, 0.5], [pytest.approx(1 / 3)] * 3]
        assert scores.grad.tolist() == [[0.0] * 3, [0.0] * 3]


def test_argmax_splits_ties_evenly():
    weights = Argmax().weights(torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0], [-1.0, -5.0, -2.0, -9.0]]))
    assert weights.tolist() == [[0.0, 0.5, 0.5, 0.0], [0.25] * 4, [1.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("head", "slope"),
    # exp(beta s): beta. softplus^tau at 0: tau sigmoid(0) / softplus(0) = tau / (2 ln 2). sigmoid: 1 - sigmoid(0).
    [
        (Softmax(3.0), 3.0),
        (STau(5.0, eps=0.0), 5.0 / (2.0 * math.log(2.0))),
        (SoftplusNorm(), 0.5 / math.log(2.0)),
        (SigmoidNorm(), 0.5),
    ],
    ids=str,
)
def test_slope_at_zero(head, slope):
    assert head.slope_at_zero() == pytest.approx(slope, rel=1e-15)


@pytest.mark.parametrize("head", [Escort(2.0), Argmax()], ids=str)
def test_a_head_with_a_kink_has_no_slope(head):
    with pytest.raises(ValueError, match=f"{head.name} is not smooth at score 0"):
        head.slope_at_zero()
