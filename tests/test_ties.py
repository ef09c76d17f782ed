"""Arms whose means are equal but for rounding are equal: in gaps, constants, best-arm rates and environments."""

import numpy as np
import pytest

from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms.arms import Arms
from stau_rl.envs.arms.bernoulli import BernoulliArms
from stau_rl.envs.arms.gaussian import GaussianArms
from stau_rl.envs.arms.table_arms import TableArms
from stau_rl.envs.gym.bandit_models import ArmsModel
from stau_rl.kernels.contract import ArmTable, gaps_below_best, table_means
from stau_rl.kernels.engines import ENGINES
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.burnetas_katehakis import (
    finite_support_constant,
    gaussian_unknown_deviation_constant,
    regret_constant,
)
from stau_rl.regret.lai_robbins import bernoulli_constant, gaussian_constant

# The sums differ in their last bit, whatever the order: 0.1 + 0.7 < 0.4 + 0.4.
TWINS = {"a": [0.1, 0.7], "b": [0.4, 0.4], "c": [0.0, 0.5]}
# Ten times 0.1 is 1 but for a rounding; large observations that cancel.
MORE = [
    {"a": [0.1] * 10 + [0.0] * 10, "b": [0.05], "c": [0.01]},
    {"a": [1e6, 0.3 - 1e6], "b": [0.1, 0.2], "c": [-1.0]},
]


def arms_of(observations: dict[str, list[float]]) -> ArmTable:
    return arm_table(TableArms.of(observations), 0, 0, 40)


def test_the_twins_differ_by_rounding() -> None:
    assert sum(TWINS["a"]) != sum(TWINS["b"])
    assert 0.1 + 0.2 != 0.3


@pytest.mark.parametrize("observations", [TWINS, *MORE])
def test_gaps_and_constant_of_a_table(observations: dict[str, list[float]]) -> None:
    table = arms_of(observations)
    assert (table.gaps()[:, 0] == 0.0).tolist() == [True, True, False]
    constant = regret_constant(table)
    assert constant is not None
    # That of the arms without the twin: the third against the best.
    values, best = np.array(observations["c"]), float(table.means.max())
    alone = finite_support_constant([*values, *observations["b"], *observations["a"]], table_cuts(observations))
    assert 0.0 <= constant < 1e8
    assert alone == pytest.approx(constant)
    assert best > values.mean()


def table_cuts(observations: dict[str, list[float]]) -> list[int]:
    return [0, *np.cumsum([len(observations[name]) for name in "cba"]).tolist()]


def test_means_come_from_exact_sums() -> None:
    values = np.array([1e16, 1.0, -1e16, 0.5, 0.25])
    np.testing.assert_array_equal(table_means(values, np.array([0, 3, 5])), [1.0 / 3.0, 0.375])


def test_constants_of_means() -> None:
    means = [0.1 + 0.7, 0.8, 0.3]
    assert means[0] != means[1]
    assert bernoulli_constant(means) == pytest.approx(float(bernoulli_constant([0.8, 0.3])), rel=1e-12)
    assert gaussian_constant(means, 1.0) == pytest.approx(4.0, rel=1e-12)
    assert gaussian_unknown_deviation_constant(means[:2], 1.0) == 0.0


def test_means_that_differ_stay_apart() -> None:
    for means in ([1e15, 1e15 + 1.0], [0.5, 0.5 + 2.0**-25], [1e6, 1e6 + 1e-9]):
        assert (gaps_below_best(np.array(means)) > 0.0).tolist() == [True, False]


@pytest.mark.parametrize(
    ("engine", "arms"),
    [
        ("torch", TableArms.of(TWINS)),
        ("torch", BernoulliArms(means=(0.1 + 0.7, 0.8))),
        ("torch", GaussianArms(means=(0.1 + 0.7, 0.8))),
        ("numba", TableArms.of(TWINS)),
    ],
    ids=["torch table", "torch bernoulli", "torch gaussian", "numba table"],
)
def test_a_pull_of_either_twin_is_optimal(engine: str, arms: Arms) -> None:
    got = ENGINES[engine].simulate(
        parse_policy("random"),
        arm_table(arms, 0, 0, 40),
        seed=1,
        first_instance=0,
        horizon=30,
        checkpoints=np.array([1, 30]),
        dtype=ENGINES[engine].dtypes[0],
        record=True,
    )
    best = got.actions < 2
    np.testing.assert_array_equal(got.optimal, best[[0, 29]])
    np.testing.assert_array_equal(got.late_optimal, best[27:].sum(axis=0))
    # The third arm of the table, of mean 1/4, costs 0.15; nothing else costs anything.
    np.testing.assert_allclose(got.regret[1], (~best).sum(axis=0) * 0.15, rtol=1e-12, atol=0)


def test_environments_see_the_first_of_equal_arms() -> None:
    model = ArmsModel(TableArms.of(TWINS))
    model.reset(np.empty((0, 2)), None)
    assert model.best_arm.tolist() == [0, 0]
    assert model.regret(np.array([0, 1])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("arms", [3, 7, 10])
def test_equal_centred_scores_have_no_weight_where_a_head_has_none_at_zero(dtype: str, arms: int) -> None:
    """Every arm pays .3, so after the forced pulls all scores are equal, and softpick abstains from then on."""
    table = arm_table(TableArms.of({str(k): [0.3] for k in range(arms)}), 0, 0, 5)
    block = ENGINES["torch"].simulate(
        parse_policy("centred_ucb | softpick"),
        table,
        seed=0,
        first_instance=0,
        horizon=60,
        checkpoints=np.array([60]),
        dtype=dtype,
    )
    assert (block.pulls == 1).all()
