"""The Lai-Robbins constant against high-precision values and limits."""

import decimal
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special

from stau_rl.kernels.contract import ArmTable
from stau_rl.regret.lai_robbins import bernoulli_constant, bernoulli_kl, gaussian_constant, lai_robbins

# Computed with 60 digits.
BERNOULLI = [
    ([0.9, 0.8], 2.252099698524529),
    ([0.5, 0.45, 0.4], 14.949643878630148),
    ([0.1, 0.05, 0.05, 0.05, 0.02, 0.02, 0.02, 0.01, 0.01, 0.01], 17.44517413118945),
    ([0.9] + [0.6] * 9, 8.675014312542967),
]
GAUSSIAN = [([0.5, 0.0], 4.0), ([1.0, 0.8, 0.2, -0.3], 14.03846153846154)]


def _arms(kind, means, sigma: float = 1.0) -> ArmTable:
    mu = np.asarray(means, dtype=np.float64)
    empty = np.empty(0)
    return ArmTable(kind, mu, sigma, empty, empty.astype(np.int64), kind == "bernoulli", mu.shape[1])


@pytest.mark.parametrize(("means", "constant"), BERNOULLI)
def test_bernoulli(means: list[float], constant: float) -> None:
    assert_allclose(bernoulli_constant(means), constant, rtol=1e-13)
    assert_allclose(bernoulli_constant(means[::-1]), constant, rtol=1e-13)


@pytest.mark.parametrize(("means", "constant"), GAUSSIAN)
def test_gaussian(means: list[float], constant: float) -> None:
    assert_allclose(gaussian_constant(means, 1.0), constant, rtol=1e-13)
    # Regret and gaps scale with sigma: C(sigma mu, sigma) = sigma C(mu, 1).
    assert_allclose(gaussian_constant(np.multiply(means, 3.0), 3.0), 3 * constant, rtol=1e-13)


def test_kl_is_scipys_away_from_the_diagonal() -> None:
    p, q = np.meshgrid(np.linspace(0, 1, 11), np.linspace(0.05, 0.95, 10))
    expected = special.rel_entr(p, q) + special.rel_entr(1 - p, 1 - q)
    assert_allclose(bernoulli_kl(p, q), expected, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("gap", [0.2, 0.03, 1e-3, 2e-4, 1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("q", [0.25, 0.5, 0.9])
def test_kl_keeps_its_digits_for_close_and_distant_arms(q: float, gap: float) -> None:
    p = q - gap
    with decimal.localcontext(prec=60):
        x, y = decimal.Decimal(p), decimal.Decimal(q)
        expected = float(x * (x / y).ln() + (1 - x) * ((1 - x) / (1 - y)).ln())
    assert_allclose(bernoulli_kl(p, q), expected, rtol=1e-12)


def test_edges_of_the_unit_interval() -> None:
    assert bernoulli_constant([1.0, 0.5, 0.0]) == 0.0
    assert bernoulli_constant([0.0, 0.0]) == 0.0
    assert bernoulli_constant([0.4, 0.4]) == 0.0
    # KL(Bernoulli(0), Bernoulli(q)) = -ln(1 - q).
    assert_allclose(bernoulli_constant([0.5, 0.0]), 0.5 / math.log(2), rtol=1e-14)
    assert gaussian_constant([1.0, 0.0], 0.0) == 0.0
    assert gaussian_constant([1.0, 1.0], 2.0) == 0.0


def test_constants_per_instance() -> None:
    means = np.array([[0.9, 0.5], [0.8, 0.45]])
    assert_allclose(bernoulli_constant(means), [bernoulli_constant(m) for m in means.T], rtol=1e-14)


def test_of_a_block_of_arms() -> None:
    fixed = _arms("bernoulli", [[0.9], [0.8]])
    assert lai_robbins(fixed) == pytest.approx(2.252099698524529, rel=1e-13)
    assert lai_robbins(_arms("gaussian", [[0.5], [0.0]], sigma=2.0)) == pytest.approx(16.0)
    drawn = _arms("gaussian", [[0.5, 1.0], [0.0, 0.0]])
    assert lai_robbins(drawn) is None
    assert lai_robbins(drawn, average=True) == pytest.approx((4.0 + 2.0) / 2)
    assert lai_robbins(_arms("table", [[0.9], [0.8]])) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bernoulli_constant([1.2, 0.5]), r"\[0, 1\]"),
        (lambda: bernoulli_constant([]), "means"),
        (lambda: gaussian_constant([1.0, np.nan], 1.0), "finite"),
        (lambda: gaussian_constant([1.0, 0.0], -1.0), "sigma"),
    ],
)
def test_errors_name_the_argument(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
