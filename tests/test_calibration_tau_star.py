"""The tau nearest to softmax: exact values, an independent minimiser, masks, pools, degenerate rows."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from stau_rl.calibration import TauStar, s_tau_to_softmax, tau_star

GOLDEN = json.loads((Path(__file__).parent / "data" / "golden_heads.json").read_text(encoding="utf-8"))
quick = settings(max_examples=60, deadline=None)


def double(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def rows(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def parts(result: TauStar) -> list[torch.Tensor]:
    return [result.closed_form, result.kl_closed_form, result.newton, result.kl_newton]


@pytest.mark.parametrize("row", GOLDEN["tau_star"], ids=lambda row: f"{row['scores'][0]:g}, eps={row['eps']:g}")
def test_tau_star_golden(row):
    """Twelve digits even of a divergence of 7e-19: only differences that are exact in the limit are formed."""
    result = tau_star(double(row["scores"]), eps=row["eps"])
    expected = [row[key] for key in ("closed_form", "kl_at_closed_form", "kl_optimal", "kl_at_kl_optimal")]
    assert [part.item() for part in parts(result)] == pytest.approx(expected, rel=1e-12, abs=0)


def plain_kl(scores: np.ndarray, eps: float):
    """KL(softmax || s_tau) as a function of tau, by its definition."""
    log_phi = np.log(np.logaddexp(0.0, scores) + eps)
    log_p = scores - logsumexp(scores)

    def kl(tau: float) -> float:
        log_q = tau * log_phi - logsumexp(tau * log_phi)
        return float(np.sum(np.exp(log_p) * (log_p - log_q)))

    return kl


@pytest.mark.parametrize("eps", [0.0, 1e-8, 0.1])
@pytest.mark.parametrize("seed", range(8))
def test_newton_agrees_with_a_scalar_minimiser(seed, eps):
    scores = rows(6, seed=seed, scale=(0.5, 2.0, 5.0)[seed % 3]) + (seed - 4)
    result, kl = tau_star(scores, eps=eps), plain_kl(scores.numpy(), eps)
    found = minimize_scalar(kl, bracket=(1.0, 2.0), method="brent", options={"xtol": 1e-10})
    # The minimum is flat: a KL rounded to 1e-15 fixes tau to sqrt(1e-15 / Var log phi), below 1e-6 for these scores.
    assert result.newton.item() == pytest.approx(found.x, rel=1e-6)
    assert result.kl_newton.item() == pytest.approx(kl(result.newton.item()), abs=1e-14)
    assert result.kl_closed_form.item() == pytest.approx(kl(result.closed_form.item()), abs=1e-14)
    assert result.kl_newton.item() <= found.fun + 1e-14


def test_closed_form_is_the_least_squares_slope():
    scores = rows(5, 9, seed=3)
    result = tau_star(scores, eps=1e-8)
    log_phi = np.log(np.logaddexp(0.0, scores.numpy()) + 1e-8)
    expected = [np.cov(s, phi, bias=True)[0, 1] / np.var(phi) for s, phi in zip(scores.numpy(), log_phi, strict=True)]
    assert result.closed_form.tolist() == pytest.approx(expected, rel=1e-12)


@quick
@given(
    scores=st.lists(st.lists(st.floats(-60, 60), min_size=4, max_size=4), min_size=1, max_size=5),
    mask=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=5, max_size=5),
    eps=st.sampled_from([0.0, 1e-8, 0.1]),
    pool=st.sampled_from(["row", "all"]),
)
def test_newton_never_loses_and_tau_is_at_least_one(scores, mask, eps, pool):
    values, keep = double(scores), torch.tensor(mask)[: len(scores)]
    result = tau_star(values, mask=keep, eps=eps, pool=pool)
    assert bool((result.kl_newton <= result.kl_closed_form).all())
    assert bool((result.kl_newton >= 0).all())
    decided = ~result.newton.isnan()
    assert torch.equal(decided, ~result.closed_form.isnan())
    assert bool((result.newton[decided] >= 1 - 1e-9).all())
    assert bool((result.closed_form[decided] >= 1 - 1e-9).all())
    assert bool(result.kl_newton.isfinite().all())
    dirty = tau_star(values.masked_fill(~keep, math.nan), mask=keep, eps=eps, pool=pool)
    for clean, other in zip(parts(result), parts(dirty), strict=True):
        torch.testing.assert_close(other, clean, rtol=0, atol=0, equal_nan=True)


def test_newton_is_stationary():
    """At the optimum both distributions have the same mean log phi."""
    for scale in (0.1, 1.0, 5.0, 20.0):
        scores = rows(40, 7, seed=5, scale=scale)
        tau = tau_star(scores, eps=0.0).newton[:, None]
        log_phi = s_tau_to_softmax(scores, 1.0, 0.0)
        gap = ((torch.softmax(scores, -1) - torch.softmax(tau * log_phi, -1)) * log_phi).sum(-1)
        assert float(gap.abs().max()) < 1e-13


def test_masked_entries_count_for_nothing():
    scores = rows(3, 6, seed=1)
    mask = torch.tensor([True, False, True, True, False, True])
    alone = tau_star(scores[:, mask])
    for junk in (math.nan, math.inf, -math.inf, 1e308):
        masked = tau_star(scores.masked_fill(~mask, junk), mask=mask)
        for a, b in zip(parts(masked), parts(alone), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=0)


@pytest.mark.parametrize(
    ("scores", "mask"),
    [
        ([3.0], None),
        ([2.0, 2.0, 2.0], None),
        ([0.1 + 0.2, 0.1 + 0.2], None),
        ([1.0, math.nan], [True, False]),
        ([math.nan, math.inf], [False, False]),
        ([-math.inf, -math.inf], None),
        ([], None),
    ],
    ids=["one", "equal", "equal fractions", "one unmasked", "none unmasked", "all at -inf", "empty"],
)
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_rows_that_leave_tau_open(scores, mask, eps):
    result = tau_star(double(scores), mask=None if mask is None else torch.tensor(mask), eps=eps)
    assert math.isnan(result.closed_form.item())
    assert math.isnan(result.newton.item())
    assert result.kl_closed_form.item() == result.kl_newton.item() == 0.0


def test_scores_drowned_by_eps_leave_tau_open_at_their_divergence():
    """log phi is the same number for both, so s^tau is uniform: KL = log 2 - entropy of softmax(0, 1)."""
    result = tau_star(double([-1000.0, -1001.0]), eps=1e-8)
    p = 1 / (1 + math.exp(-1.0))
    expected = math.log(2) + p * math.log(p) + (1 - p) * math.log(1 - p)
    assert math.isnan(result.newton.item())
    assert result.kl_newton.item() == result.kl_closed_form.item() == pytest.approx(expected, rel=1e-12)


def test_a_score_of_minus_infinity():
    """It has softmax weight 0 and s^tau weight (eps / phi)^tau, but no covariance; without eps it drops out."""
    with_it, without = double([-math.inf, 0.5, 2.0, -1.0]), double([0.5, 2.0, -1.0])
    result = tau_star(with_it, eps=1e-3)
    assert result.closed_form.item() == result.kl_closed_form.item() == math.inf
    kl = plain_kl(np.array([-300.0, 0.5, 2.0, -1.0]), 1e-3)
    assert result.kl_newton.item() == pytest.approx(kl(result.newton.item()), rel=1e-11)
    assert all(kl(result.newton.item()) <= kl(result.newton.item() * factor) for factor in (0.999, 1.001))
    for a, b in zip(parts(tau_star(with_it, eps=0.0)), parts(tau_star(without, eps=0.0)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


def test_two_entries_are_matched_exactly():
    """With two entries one tau makes both weights agree: (s1 - s2) / (log phi1 - log phi2), with KL 0."""
    scores = double([[0.0, 2.0], [-3.0, 5.0], [7.0, 7.001]])
    log_phi = s_tau_to_softmax(scores, 1.0, 0.0)
    expected = (scores[:, 0] - scores[:, 1]) / (log_phi[:, 0] - log_phi[:, 1])
    result = tau_star(scores, eps=0.0)
    # log phi differs by 1.4e-4 in the last row: its quotient keeps 2e-16 / 1.4e-4 = 2e-12.
    torch.testing.assert_close(result.closed_form, expected, rtol=1e-11, atol=0)
    torch.testing.assert_close(result.newton, expected, rtol=1e-11, atol=0)
    assert float(result.kl_newton.max()) < 1e-28


def test_extreme_scores_stay_finite():
    scores = double([[1e4, 0.0, -1e4], [-1e4, -1e4 - 1, -1e4 + 3], [700.0, 0.0, 3.0], [1.0, 1.0 + 1e-12, 1.0 + 3e-12]])
    for eps in (0.0, 1e-8):
        result = tau_star(scores, eps=eps)
        assert bool(result.kl_newton.isfinite().all())
        assert bool((result.kl_newton <= result.kl_closed_form).all())
    with pytest.raises(ValueError, match=r"scores must lie within \+-1e\+300 where finite"):
        tau_star(double([1e301, 0.0]))


def test_a_divergence_carried_by_weights_that_softmax_has_lost():
    """softmax(800, 0, 3) has weights below the smallest double and s^tau not: KL is the sum of these to first order."""
    scores = double([800.0, 0.0, 3.0])
    result = tau_star(scores, eps=0.0)
    log_phi = s_tau_to_softmax(scores, 1.0, 0.0)
    expected = (result.closed_form * (log_phi[1:] - log_phi[0])).exp().sum().item()
    assert 1e-300 < expected < 1e-250
    # tau log phi is about 700, so its exponential keeps 700 2^-52.
    assert result.kl_closed_form.item() == pytest.approx(expected, rel=1e-12, abs=0)


def test_pooling():
    """A pooled tau adds covariances, variances and divergences; over equal rows it is the row's own."""
    scores = rows(2, 3, 4, 5, seed=7)
    shapes = {"row": (2, 3, 4), "head": (3,), "all": (), (0,): (3, 4), (2, 1): (2,), (-2,): (2, 3)}
    results = {pool: tau_star(scores, pool=pool) for pool in shapes}
    for pool, shape in shapes.items():
        assert all(part.shape == shape for part in parts(results[pool]))
    row = tau_star(scores)
    for pool, axes in (("head", (0, 2)), ("all", (0, 1, 2)), ((0,), (0,))):
        pooled = results[pool]
        # One tau for all can only do worse than a tau each, on average.
        assert bool((pooled.kl_newton >= row.kl_newton.mean(axes)).all())
        assert bool((pooled.kl_newton <= pooled.kl_closed_form).all())
    head = tau_star(scores[:, 1].reshape(1, 8, 5), pool="all")
    for a, b in zip(parts(results["head"]), parts(head), strict=True):
        torch.testing.assert_close(a[1], b, rtol=1e-12, atol=0)
    repeated = tau_star(scores[:1, :1, :1].expand(2, 3, 4, 5), pool="all")
    for a, b in zip(parts(repeated), parts(row), strict=True):
        torch.testing.assert_close(a, b[0, 0, 0], rtol=1e-12, atol=0)


def test_a_pooled_tau_agrees_with_a_scalar_minimiser_and_skips_masked_rows():
    scores = rows(4, 6, seed=9)
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[2] = False
    result = tau_star(scores, mask=mask, pool="all")
    divergences = [plain_kl(scores[i].numpy(), 1e-8) for i in (0, 1, 3)]
    found = minimize_scalar(
        lambda tau: sum(kl(tau) for kl in divergences) / 3, bracket=(1.0, 2.0), options={"xtol": 1e-10}
    )
    assert result.newton.item() == pytest.approx(found.x, rel=1e-6)
    assert result.kl_newton.item() == pytest.approx(found.fun, abs=1e-14)
    kept = scores[[0, 1, 3]].numpy()
    log_phi = np.log(np.logaddexp(0.0, kept) + 1e-8)
    centred = [part - part.mean(1, keepdims=True) for part in (kept, log_phi)]
    expected = np.sum(centred[0] * centred[1]) / np.sum(centred[1] ** 2)
    assert result.closed_form.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_any_axis(dim):
    scores = rows(3, 4, 5, seed=2)
    expected = tau_star(scores.movedim(dim, -1))
    for a, b in zip(parts(tau_star(scores, dim=dim)), parts(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_tau_star_of_other_dtypes_is_float64_of_the_same_scores():
    scores = rows(3, 5).to(torch.bfloat16).requires_grad_()
    for a, b in zip(parts(tau_star(scores)), parts(tau_star(scores.detach().double())), strict=True):
        assert a.dtype == torch.float64
        assert not a.requires_grad
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("shape", "pool", "expected"), [((0, 5), "row", (0,)), ((2, 0), "row", (2,)), ((0, 5), "all", ())]
)
def test_tau_star_of_nothing(shape, pool, expected):
    result = tau_star(torch.zeros(shape), pool=pool)
    assert all(part.shape == expected for part in parts(result))
    assert bool(result.newton.isnan().all())
    assert bool((result.kl_newton == 0).all())


def test_clamp_keeps_tau_legal():
    scores = rows(50, 4, seed=4, scale=0.5) - 30.0
    result = tau_star(scores, eps=0.0, clamp=True)
    assert bool((result.newton >= 1).all())
    assert bool((result.closed_form >= 1).all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dim": 2}, "dim must be an axis of scores with 2 axes, got 2"),
        ({"pool": "heads"}, "pool must be 'row', 'head', 'all' or axes of scores other than dim=1, got 'heads'"),
        ({"pool": (1,)}, r"pool must be .* other than dim=1, got \(1,\)"),
        ({"pool": (5,)}, r"pool must be .*, got \(5,\)"),
        ({"pool": "head"}, "pool='head' keeps axis 1"),
        ({"eps": -1.0}, "eps must be finite and >= 0, got -1"),
        ({"scores": double([[0.0, math.nan]])}, "scores must not be NaN"),
        ({"mask": torch.ones(2, 3)}, "mask must be a boolean"),
    ],
)
def test_tau_star_names_what_it_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        tau_star(**{"scores": rows(2, 3), **arguments})
