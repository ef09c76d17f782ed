"""KL_inf and the constants against closed forms and a direct minimisation over distributions."""

import math

import numpy as np
import pytest
from scipy import optimize

from stau_rl.kernels.contract import ArmTable
from stau_rl.regret.burnetas_katehakis import (
    finite_support_constant,
    finite_support_kl_inf,
    gaussian_unknown_deviation_constant,
    regret_constant,
)
from stau_rl.regret.lai_robbins import bernoulli_constant, bernoulli_kl, gaussian_constant


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.89])
@pytest.mark.parametrize("q", [0.3, 0.9, 0.999])
def test_on_zero_and_one_it_is_the_bernoulli_kl(p: float, q: float) -> None:
    expected = float(bernoulli_kl(p, q)) if p < q else 0.0
    assert finite_support_kl_inf([0.0, 1.0], q, 1.0, weights=[1 - p, p]) == pytest.approx(
        expected, rel=1e-10, abs=1e-15
    )


def test_a_certain_value_has_a_closed_form() -> None:
    # nu at 0, support up to 1: the nearest nu' of mean m keeps 1 - m at 0, so KL_inf = -ln(1 - m).
    assert finite_support_kl_inf([0.0], 0.7, 1.0) == pytest.approx(-math.log(0.3), rel=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_dual_is_the_primal_minimum(seed: int) -> None:
    """The primal, solved by a general minimiser: min sum p ln(p / q) over q on the support with mean >= m."""
    generator = np.random.Generator(np.random.PCG64(seed))
    support = np.sort(generator.uniform(0, 5, 5))
    # In half of the cases nu has no mass at the top, where nu' may need some.
    p = generator.dirichlet(np.ones(5))
    if seed % 2:
        p = np.append(p[:4] / p[:4].sum(), 0.0)
    mean = float(p @ support)
    target = mean + generator.uniform(0.2, 0.9) * (support[-1] - mean)

    def divergence(q: np.ndarray) -> float:
        inside = p > 0
        return float(np.sum(p[inside] * np.log(p[inside] / np.maximum(q[inside], 1e-300))))

    constraints = [
        {"type": "eq", "fun": lambda q: q.sum() - 1},
        {"type": "ineq", "fun": lambda q: q @ support - target},
    ]
    start = 0.5 * p + 0.5 * np.eye(5)[-1]
    primal = optimize.minimize(
        divergence, start, bounds=[(1e-12, 1)] * 5, constraints=constraints, options={"ftol": 1e-14, "maxiter": 2000}
    )
    assert primal.success
    assert finite_support_kl_inf(support, target, support[-1], weights=p) == pytest.approx(primal.fun, rel=2e-5)


def test_more_room_above_can_only_bring_the_distribution_nearer() -> None:
    x = [0.0, 1.0, 2.0]
    found = [finite_support_kl_inf(x, 1.5, top) for top in (2.0, 3.0, 10.0)]
    assert found[0] > found[1] > found[2] > 0


def test_edges() -> None:
    assert finite_support_kl_inf([1.0, 3.0], 2.0, 3.0) == 0.0
    assert finite_support_kl_inf([1.0, 2.0], 3.0, 3.0) == math.inf
    with pytest.raises(ValueError, match="top"):
        finite_support_kl_inf([4.0], 1.0, 3.0)
    with pytest.raises(ValueError, match="weights"):
        finite_support_kl_inf([1.0], 1.0, 3.0, weights=[0.0])


def test_a_table_of_zeros_and_ones_has_the_bernoulli_constant() -> None:
    values = np.repeat([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [1, 9, 5, 5, 8, 2])
    found = finite_support_constant(values, [0, 10, 20, 30])
    assert found == pytest.approx(float(bernoulli_constant([0.9, 0.5, 0.2])), rel=1e-10)
    # The best arm always gives the most there is.
    assert finite_support_constant([1.0, 1.0, 0.0, 1.0], [0, 2, 4]) == 0.0


def test_scale_and_shift_act_as_on_regret() -> None:
    values, offsets = np.array([0.0, 1.0, 4.0, 2.0, 3.0, 5.0]), [0, 3, 6]
    base = finite_support_constant(values, offsets)
    assert finite_support_constant(3 * values - 7, offsets) == pytest.approx(3 * base, rel=1e-10)


def test_unknown_deviation() -> None:
    # One gap of 1 at sigma 1: 1 / (ln 2 / 2) = 2.885, above the 2 of a known sigma; equal in the limit of small gaps.
    assert gaussian_unknown_deviation_constant([1.0, 0.0], 1.0) == pytest.approx(2 / math.log(2))
    close = gaussian_unknown_deviation_constant([0.001, 0.0], [5.0, 1.0])
    assert close == pytest.approx(float(gaussian_constant([0.001, 0.0], 1.0)), rel=1e-6)
    with pytest.raises(ValueError, match="sigmas"):
        gaussian_unknown_deviation_constant([1.0, 0.0], 0.0)


def test_of_a_block_of_arms() -> None:
    values, offsets = np.array([0.0, 1.0, 4.0, 2.0, 3.0, 5.0]), np.array([0, 3, 6])
    means = np.array([[5 / 3], [10 / 3]])
    table = ArmTable("table", means, 1.0, values, offsets, False, 4)
    assert regret_constant(table) == finite_support_constant(values, offsets)
    empty = np.empty(0)
    gaussian = ArmTable("gaussian", np.array([[0.5], [0.0]]), 2.0, empty, empty.astype(np.int64), False, 4)
    assert regret_constant(gaussian) == pytest.approx(16.0)
    drawn = ArmTable("gaussian", np.zeros((2, 4)), 2.0, empty, empty.astype(np.int64), False, 4)
    assert regret_constant(drawn) is None
