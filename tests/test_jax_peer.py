"""The JAX peer plays the same problem: its mean regret is the exact one."""

import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.peers

# Expected pseudo-regret after 100 plays, by dynamic programming over counts and sums (no Monte Carlo):
# Bernoulli arms of means .9 and .8, centred UCB scores with c = 1, s_tau with tau = 5.
EXACT_REGRET = 4.531060519992729
PROBLEM = {"means": [0.9, 0.8], "c": 1.0, "tau": 5.0, "horizon": 100}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unroll": 7, "draw": "step", "cache_rsqrt": True, "softplus": "log1p", "cdf": "cumsum"},
        {"layout": "instances_first", "sampling": "categorical", "softplus": "library", "vector_width": None},
        {"layout": "instances_first", "cdf": "matmul", "power": "pow", "softplus": "log"},
        {"sampling": "gumbel", "rng": "unsafe_rbg", "power": "exp_log"},
        {"rng": "threefry_partitionable", "chunk": None},
        {"layout": "arms_apart", "softplus": "log"},
    ],
    ids=lambda changes: "-".join(str(v) for v in changes.values()) or "default",
)
def test_mean_regret_is_exact(changes):
    pytest.importorskip("jax")
    from stau_rl.speed.jax_scan import simulate

    regret, pulls = simulate(**PROBLEM, seed=2, instances=50_000, **changes)
    assert regret.shape == (50_000,)
    assert pulls.shape == (2, 50_000)
    assert (pulls.sum(axis=0) == 100).all()
    standard_error = regret.std(ddof=1) / np.sqrt(regret.size)
    # Four standard errors: a correct loop fails one seed in 16 000.
    assert abs(regret.mean() - EXACT_REGRET) < 4 * standard_error


@pytest.mark.parametrize("layout", ["arms_first", "instances_first", "arms_apart"])
def test_mean_regret_of_softmax_is_exact(layout):
    pytest.importorskip("jax")
    from stau_rl.speed.jax_scan import simulate

    problem = {name: value for name, value in PROBLEM.items() if name != "tau"}
    regret, _ = simulate(**problem, beta=1.0, seed=2, instances=50_000, layout=layout)
    # From the same dynamic programme with weights exp(s).
    assert abs(regret.mean() - 4.805593719398804) < 4 * regret.std(ddof=1) / np.sqrt(regret.size)


def test_what_is_started_is_what_is_simulated():
    pytest.importorskip("jax")
    from stau_rl.speed.jax_scan import simulate, start
    from stau_rl.speed.jax_settings import Settings

    settings = Settings(chunk=64)
    for found, expected in zip(
        start(**PROBLEM, seed=2, instances=300, settings=settings)(),
        simulate(**PROBLEM, seed=2, instances=300, settings=settings),
        strict=True,
    ):
        np.testing.assert_array_equal(found, expected)


def test_worker_processes_play_the_same_problem():
    pytest.importorskip("jax")
    from stau_rl.speed.jax_scan import simulate

    regret, pulls = simulate(**PROBLEM, seed=2, instances=20_001, processes=2)
    assert regret.shape == (20_001,)
    assert (pulls.sum(axis=0) == 100).all()
    assert abs(regret.mean() - EXACT_REGRET) < 4 * regret.std(ddof=1) / np.sqrt(regret.size)
    assert not np.array_equal(regret[:10_000], regret[10_000:20_000])


def test_poly_softplus_is_softplus_when_compiled():
    jax = pytest.importorskip("jax")
    from stau_rl.speed.jax_math import LN2, softplus

    scores = np.linspace(-30.0, 30.0, 60_001, dtype=np.float32)
    got = np.asarray(jax.jit(lambda s: softplus(s, "poly"))(scores), dtype=np.float64) * LN2
    # s / ln 2 rounded to float32 costs |s| 2^-24 relative far on the left.
    assert np.abs(got / np.logaddexp(0.0, scores.astype(np.float64)) - 1.0).max() < 3e-6


def test_means_per_instance_and_drawn():
    pytest.importorskip("jax")
    from stau_rl.speed.jax_scan import simulate

    means = np.random.default_rng(0).random((3, 1001))
    regret, pulls = simulate(**(PROBLEM | {"means": means}), seed=0, instances=1001, chunk=256)
    np.testing.assert_allclose(regret, (pulls * (means.max(axis=0) - means)).sum(axis=0), rtol=1e-5, atol=1e-4)
    # Best-arm share 1/3 under random play; aligned means and pulls give the best arm more.
    assert (pulls[means.argmax(axis=0), np.arange(1001)]).mean() > 40
    drawn, _ = simulate(**(PROBLEM | {"means": 3}), seed=0, instances=1001)
    assert abs(drawn.mean() - regret.mean()) < 4 * np.hypot(drawn.std(), regret.std()) / np.sqrt(1001)


def test_horizon_shorter_than_the_forced_pulls():
    pytest.importorskip("jax")
    from stau_rl.speed.jax_scan import simulate

    _, pulls = simulate(means=np.full(5, 0.5), c=1.0, tau=5.0, seed=0, horizon=3, instances=7)
    assert (pulls == np.array([1, 1, 1, 0, 0])[:, None]).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("horizon", 0), ("horizon", 1 << 24), ("instances", 0), ("tau", 0.5), ("means", 0.5), ("beta", 1.0)],
)
def test_illegal_arguments_are_named(name, value):
    from stau_rl.speed.jax_scan import simulate

    with pytest.raises(ValueError, match=name):
        simulate(**({**PROBLEM, "seed": 0, "instances": 10} | {name: value}))


def test_sweep_names_its_settings():
    pytest.importorskip("jax")
    from stau_rl.speed.jax_sweep import sweep

    rows = sweep(arms=2, horizon=20, repeats=1, instances=(64,), variants=[{}, {"unroll": 1}])
    assert [row["unroll"] for row in rows] == [8, 1]
    assert all(row["arm_steps_per_second"] > 0 for row in rows)


def test_import_needs_no_jax():
    code = "import sys, stau_rl.speed.jax_scan; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
