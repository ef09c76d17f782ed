"""The figure of a training: lines without gaps, the band over seeds, and what it says of itself."""

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from stau_rl.training.plot import plot_curves, save_curves
from stau_rl.training.result import TrainResult

NAN = np.nan
# Points at 10, 20, ..., and one step later for each further seed.
RETURNS = [[1.0, NAN, NAN, 4.0, 5.0], [NAN, 2.0, 3.0, NAN, 9.0], [0.0, 1.0, 2.0, 3.0, NAN]]


def curves_of(returns):
    rows = [(seed, 10 * (k + 1) + seed, value) for seed, row in enumerate(returns) for k, value in enumerate(row)]
    return pd.DataFrame(rows, columns=["seed", "step", "train_return"])


def drawn(returns):
    ax = Figure().add_subplot()
    plot_curves(curves_of(returns), ax, "title")
    return ax


def test_points_without_an_episode_leave_no_gap():
    """The third seed's steps are all known but the last; in the others what is missing lies between two points."""
    ax = drawn(RETURNS)
    *seeds, middle = ax.lines
    for line, row, offset in zip(seeds, RETURNS, range(3), strict=True):
        known = [k for k, value in enumerate(row) if not np.isnan(value)]
        assert line.get_xdata().tolist() == [10 * (k + 1) + offset for k in known]
        assert line.get_ydata().tolist() == [row[k] for k in known]
    full = np.array([[1, 2, 3, 4, 5], [NAN, 2, 3, 6, 9], [0, 1, 2, 3, NAN]])
    assert_allclose(middle.get_xdata(), [11, 21, 31, 41, 51])
    assert_allclose(middle.get_ydata(), [0.5, 2, 3, 4, 7])
    (band,) = ax.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.round(9).tolist()}
    for k, step in enumerate((11, 21, 31, 41, 51)):
        values = full[:, k][~np.isnan(full[:, k])]
        for level in (0.25, 0.75):
            assert (step, round(np.quantile(values, level), 9)) in corners
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "each seed",
        "median over seeds",
        "middle half of the seeds",
    ]


def test_one_seed_has_no_band_and_one_point_is_seen():
    assert not drawn([[1.0, 2.0]]).collections
    (seed, middle) = drawn([[NAN, 2.0]]).lines
    assert (seed.get_marker(), middle.get_marker()) == ("o", "o")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = drawn([[NAN, NAN], [NAN, NAN]])
    assert [text.get_text() for text in ax.texts] == ["no episode ended"]


def test_equal_curves_give_equal_bytes_and_the_title_says_what(tmp_path):
    for name in ("a.png", "b.png"):
        save_curves(curves_of(RETURNS), "title", tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    settings = {"env": "FrozenLake-v1", "env_args": {"map_name": "8x8"}, "head": "s_tau(tau=2)", "learn": []}
    curve = [{"step": 1, "train_episodes": 1, "train_return": 1.0, "sampled_return": None}]
    run = {"agent": "ppo", "settings": settings, "seed": 0, "curve": curve}
    ax = TrainResult({"agent": "ppo", "settings": settings, "seeds": [0]}, [run]).plot()
    assert ax.get_title(loc="left") == "ppo on FrozenLake-v1(map_name=8x8), s_tau(tau=2)"


@pytest.mark.parametrize("seeds", [2, 5])
def test_without_gaps_the_median_is_numpys(seeds):
    returns = np.random.default_rng(seeds).normal(size=(seeds, 4))
    ax = drawn(returns.tolist())
    assert_allclose(ax.lines[-1].get_ydata(), np.median(returns, axis=0))
