"""Heads against exact values, in float64 and float32, within the tolerance that tests/data/golden_heads.json states."""

import json
from pathlib import Path

import pytest
import torch

from stau_rl.heads import Escort, SigmoidNorm, Softmax, SoftplusNorm, STau, log_s_tau, s_tau
from stau_rl.heads.log_softplus import log_phi
from stau_rl.heads.s_tau import centred_log_phi

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_heads.json").read_text(encoding="utf-8"))
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def exact(values) -> torch.Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def log_tolerance(dtype: torch.dtype, scores: torch.Tensor, tau: float, eps: float) -> float:
    """4 eps_dtype max(1, tau max |log phi|)."""
    return 4 * torch.finfo(dtype).eps * max(1.0, tau * float(log_phi(scores.double(), eps).abs().max()))


def assert_weights(got: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """A weight whose logarithm is off by at most `tolerance` is off by that factor; below `tiny` it is denormal."""
    allowed = torch.expm1(torch.tensor(tolerance, dtype=torch.float64)) * expected + torch.finfo(got.dtype).tiny
    assert bool(((got.double() - expected).abs() <= allowed).all()), (got, expected)


@DTYPES
@pytest.mark.parametrize(("key", "eps"), [("log_phi_eps0", 0.0), ("log_phi_eps1e-8", 1e-8)])
def test_log_phi(dtype, key, eps):
    block = GOLDEN["log_softplus"]
    scores, expected = exact(block["s"]).to(dtype), exact(block[key])
    # The golden scores that float32 cannot hold (-18.4, 1e-4, 88.8) move log phi by at most |s| eps / 2, within this.
    allowed = 4 * torch.finfo(dtype).eps * expected.abs().clamp(min=1.0)
    assert bool(((log_phi(scores, eps).double() - expected).abs() <= allowed).all())


def test_log_phi_relative_float64():
    """Twelve digits of every value, next to the sign change at s = 0.5413 too."""
    block = GOLDEN["log_softplus"]
    for key, eps in (("log_phi_eps0", 0.0), ("log_phi_eps1e-8", 1e-8)):
        torch.testing.assert_close(log_phi(exact(block["s"]), eps), exact(block[key]), rtol=1e-12, atol=0)


@DTYPES
def test_log_phi_slope(dtype):
    block = GOLDEN["log_softplus"]
    scores = exact(block["s"]).to(dtype).requires_grad_()
    (slope,) = torch.autograd.grad(log_phi(scores, 0.0).sum(), scores)
    # Each slope is a row of its own. It is exp of a difference of logarithms as large as max(1, |s|, |log phi|),
    # |s| where s < 0: relative error 4 eps times that.
    size = torch.maximum(exact(block["s"]).clamp(max=0).abs(), exact(block["log_phi_eps0"]).abs()).clamp(min=1.0)
    allowed = 4 * torch.finfo(dtype).eps * size * exact(block["slope_eps0"])
    assert bool(((slope.double() - exact(block["slope_eps0"])).abs() <= allowed).all())


@pytest.mark.parametrize("eps", [0.0, 1e-8, 0.1])
def test_log_phi_slope_at_zero_is_neither_doubled_nor_zeroed(eps):
    """sigmoid(0) / (softplus(0) + eps) = 0.5 / (ln 2 + eps), where autograd through clamp or relu would be wrong."""
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(log_phi(zero, eps).sum(), zero)
    assert slope.item() == pytest.approx(0.5 / (0.6931471805599453 + eps), rel=1e-15)


@DTYPES
@pytest.mark.parametrize("form", ["function", "head"])
def test_s_tau(dtype, form):
    for row in GOLDEN["s_tau"]:
        scores = exact(row["scores"]).to(dtype).requires_grad_()
        tolerance = log_tolerance(dtype, exact(row["scores"]), row["tau"], row["eps"])
        if form == "function":
            tau = torch.tensor(float(row["tau"]), dtype=dtype, requires_grad=True)
            log_weights, weights = log_s_tau(scores, tau, row["eps"]), s_tau(scores, tau, row["eps"])
            grad_scores, grad_tau = torch.autograd.grad(-log_weights[0], (scores, tau))
            largest = max([1e-30, *map(abs, row["grad_nll0_scores"]), abs(row["grad_nll0_tau"])])
            assert abs(grad_tau.item() - row["grad_nll0_tau"]) <= tolerance * largest, row
        else:
            head = STau(float(row["tau"]), row["eps"])
            log_weights, weights = head.log_weights(scores), head.weights(scores)
            (grad_scores,) = torch.autograd.grad(-log_weights[0], scores)
        error = (log_weights.detach().double() - exact(row["log_weights"])).abs().max()
        assert float(error) <= tolerance, row
        assert_weights(weights.detach(), exact(row["weights"]), tolerance)
        largest = max(1e-30, float(exact(row["grad_nll0_scores"]).abs().max()))
        error = (grad_scores.double() - exact(row["grad_nll0_scores"])).abs().max()
        assert float(error) <= tolerance * largest, row


def test_s_tau_entropy():
    """Sum of w log w with log w from the head, so that a dominant weight keeps its -log w of order 1 - w.

    The exact values carry 60 digits, of w = 1 - 1e-189 none: they are absolute to 1e-60.
    """
    for row in GOLDEN["s_tau"]:
        log_weights = log_s_tau(exact(row["scores"]), float(row["tau"]), row["eps"])
        entropy = -(log_weights.exp() * log_weights).nan_to_num().sum()
        assert entropy.item() == pytest.approx(row["entropy"], rel=1e-12, abs=1e-60), row


@DTYPES
@pytest.mark.parametrize(
    ("column", "head"),
    [
        ("softmax_beta2", Softmax(2.0)),
        ("escort_p3", Escort(3.0)),
        ("softplus_norm", SoftplusNorm()),
        ("sigmoid_norm", SigmoidNorm()),
    ],
    ids=["softmax", "escort", "softplus_norm", "sigmoid_norm"],
)
def test_other_heads(dtype, column, head):
    for row in GOLDEN["other_heads"]:
        scores = exact(row["scores"])
        log_f = head.log_f(scores)
        size = float(log_f[log_f.isfinite()].abs().max())
        tolerance = 4 * torch.finfo(dtype).eps * max(1.0, size)
        assert_weights(head.weights(scores.to(dtype)), exact(row[column]), tolerance)


@DTYPES
def test_mask(dtype):
    block = GOLDEN["mask"]
    scores, mask = exact(block["scores"]).to(dtype), torch.tensor(block["mask_keep"])
    weights = STau(5.0).weights(scores, mask=mask)
    tolerance = log_tolerance(dtype, exact(block["scores"])[mask], 5.0, 1e-8)
    assert weights[~mask].tolist() == [0.0, 0.0]
    assert_weights(weights, exact(block["s_tau_tau5_eps1e-8"]), tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_centred_log_phi_is_the_same_with_and_without_a_mask(dtype):
    """A mask of all entries takes the general way; scores of every size, -inf included.

    Rows far below log eps tie in log phi, where the two ways may subtract another of the tied: a shift of 1e-19.
    """
    scores = 8 * torch.randn(500, 6, generator=torch.Generator().manual_seed(0), dtype=dtype) - 4
    scores[::5, 0] = -torch.inf
    scores[::7] *= 20
    value = log_phi(scores, 1e-8)
    masked = centred_log_phi(scores, value, 1e-8, -1, torch.ones_like(scores, dtype=torch.bool))
    torch.testing.assert_close(centred_log_phi(scores, value, 1e-8, -1, None), masked, rtol=0, atol=1e-18)
