"""The maps between s^tau and softmax: exact values, round trips, gradients, errors."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stau_rl.calibration import s_tau_to_softmax, softmax_to_s_tau

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_heads.json").read_text(encoding="utf-8"))
quick = settings(max_examples=100, deadline=None)


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rows(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_softmax_to_s_tau_golden():
    for row in GOLDEN["softmax_to_s_tau"]:
        scores = softmax_to_s_tau(double(row["sigma"]), row["tau"], row["eps"])
        torch.testing.assert_close(scores, double(row["scores"]), rtol=1e-12, atol=0)


def test_s_tau_to_softmax_golden():
    """The softmax of sigma is s^tau, whose exact weights are known; -log w is at most 1e4 tau here."""
    for row in GOLDEN["s_tau"]:
        sigma = s_tau_to_softmax(double(row["scores"]), row["tau"], row["eps"])
        tolerance = 4 * 2.0**-52 * max(1.0, float(sigma.abs().max()))
        log_weights = torch.log_softmax(sigma, -1)
        torch.testing.assert_close(log_weights, double(row["log_weights"]), rtol=0, atol=tolerance)


@quick
@given(
    scores=st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6),
    tau=st.floats(1, 100),
    eps=st.sampled_from([0.0, 1e-8, 0.1]),
)
def test_scores_survive_the_round_trip(scores, tau, eps):
    """s -> sigma -> s. A relative error of sigma, at most 4 rounding units, moves s by |log phi| / slope of them.

    The slope sigmoid / phi of log phi vanishes where eps drowns softplus: there the scores are beyond recovery.
    """
    values = double(scores)
    if eps:
        values = values.clamp(min=math.log(eps) + 1.0)
    phi = torch.nn.functional.softplus(values, threshold=1e9) + eps
    log_phi = s_tau_to_softmax(values, 1.0, eps)
    slope = torch.where(values < -30, 1.0, torch.sigmoid(values) / phi) if eps == 0 else torch.sigmoid(values) / phi
    back = softmax_to_s_tau(s_tau_to_softmax(values, tau, eps), tau, eps)
    allowed = 2.0**-52 * (4 * log_phi.abs() + 8) / slope
    assert bool(((back - values).abs() <= allowed).all()), (back - values, allowed)


@quick
@given(
    sigma=st.lists(st.floats(-500, 500), min_size=1, max_size=6),
    tau=st.floats(1, 100),
    eps=st.sampled_from([0.0, 1e-8]),
)
def test_sigma_survives_the_round_trip(sigma, tau, eps):
    """sigma -> s -> sigma is well conditioned: d log phi / ds <= 1 and |d sigma| <= tau 2^-52 (|s| + |log phi|)."""
    values = double(sigma)
    if eps:
        values = values.clamp(min=tau * (math.log(eps) + 1e-3))
    scores = softmax_to_s_tau(values, tau, eps)
    back = s_tau_to_softmax(scores, tau, eps)
    reach = torch.where(scores < 1, scores.abs() + 1, 1.0) + values.abs() / tau + (-math.log(eps) if eps else 0.0)
    assert bool(((back - values).abs() <= 8 * tau * 2.0**-52 * reach).all()), (back - values, reach)


def test_small_y_is_accurate():
    """log(expm1(y)) = log y + y/2 + y^2/24 for small y, also where y = exp(sigma) underflows."""
    sigma = double([-5.0, -12.0, -17.9, -18.1, -40.0, -700.0, -1e4])
    y = sigma.exp()
    torch.testing.assert_close(
        softmax_to_s_tau(sigma[1:], 1.0, 0.0), (sigma + y / 2 + y**2 / 24)[1:], rtol=1e-15, atol=0
    )
    # The next term, -y^4 / 2880, is 7e-13 at y = exp(-5).
    expected = sigma[0] + y[0] / 2 + y[0] ** 2 / 24 - y[0] ** 4 / 2880
    assert softmax_to_s_tau(sigma, 1.0, 0.0)[0].item() == pytest.approx(expected.item(), rel=1e-15)


@pytest.mark.parametrize("eps", [0.0, 1e-8, 0.1])
@pytest.mark.parametrize("tau", [1.0, 5.0])
def test_both_maps_are_differentiable(tau, eps):
    scores = double([-2.0, -0.1, 0.0, 0.5, 4.0, 30.0]).requires_grad_()
    exponent = double(tau + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda s, t: s_tau_to_softmax(s, t, eps), (scores, exponent))
    sigma = s_tau_to_softmax(scores, exponent, eps).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda s, t: softmax_to_s_tau(s, t, eps), (sigma, exponent))


def test_gradient_of_the_inverse_is_finite_at_the_extremes():
    sigma = double([-1e4, -100.0, 0.0, 700.0]).requires_grad_()
    softmax_to_s_tau(sigma, 1.0, 0.0).sum().backward()
    # ds / dsigma = y / (1 - exp(-y)) with y = exp(sigma): 1 far below 0, exp(sigma) far above.
    assert sigma.grad.tolist() == pytest.approx([1.0, 1.0, 1 / (1 - math.exp(-1)), math.exp(700.0)], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_maps_keep_the_dtype_and_compute_in_float32_at_least(dtype):
    scores = torch.tensor([-1.0, 0.25, 3.0], dtype=dtype)
    working = scores if dtype == torch.float64 else scores.float()
    for convert in (s_tau_to_softmax, softmax_to_s_tau):
        assert convert(scores, 2.0).dtype == dtype
        assert torch.equal(convert(scores, 2.0), convert(working, 2.0).to(dtype))


def test_a_tau_per_row():
    scores, tau = rows(3, 4), double([[1.0], [2.0], [7.0]])
    for convert in (s_tau_to_softmax, softmax_to_s_tau):
        expected = torch.stack([convert(row, float(t)) for row, t in zip(scores, tau, strict=True)])
        assert torch.equal(convert(scores, tau), expected)


def test_maps_name_what_they_refuse():
    floor = math.log(1e-8)
    for sigma, tau, eps in (
        ([0.0, 2 * floor - 1], 2.0, 1e-8),
        ([0.0, 2 * floor], 2.0, 1e-8),
        ([0.0, -math.inf], 1.0, 0.0),
    ):
        with pytest.raises(ValueError, match=r"^sigma must exceed tau log\(eps\).*0\.5 of the entries"):
            softmax_to_s_tau(double(sigma), tau, eps)
    with pytest.raises(ValueError, match=r"sigma / tau is too large for scores in torch.float64; got 710.0 with tau=1"):
        softmax_to_s_tau(double([0.0, 710.0]), 1.0)
    with pytest.raises(ValueError, match="sigma must not be NaN"):
        softmax_to_s_tau(double([math.nan]), 1.0)
    with pytest.raises(ValueError, match="scores must not be NaN"):
        s_tau_to_softmax(double([math.inf]), 1.0)
    for convert in (s_tau_to_softmax, softmax_to_s_tau):
        with pytest.raises(ValueError, match=r"tau must be finite and >= 1, got 0\.5"):
            convert(double([0.0]), 0.5)
        with pytest.raises(ValueError, match="tau must be finite and >= 1, got a tensor"):
            convert(double([0.0]), double([0.5]))
        with pytest.raises(ValueError, match="eps must be finite and >= 0"):
            convert(double([0.0]), 2.0, -1.0)
    assert s_tau_to_softmax(double([-math.inf]), 2.0, 1e-8).item() == pytest.approx(2 * floor)
