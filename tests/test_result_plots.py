"""The figure of a result: curves, bands, scales, colours and legend."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.testing import assert_allclose, assert_array_equal

from result_cases import POLICIES, make_result
from stau_rl.figures.palette import looks
from stau_rl.regret.plot import BOUND_LABEL, plot_regret, save_figure
from stau_rl.regret.result import RegretResult


def _lines(ax: Axes) -> list[Line2D]:
    """The lines of a plot, without those that show where some coincide, which lie above them."""
    return [line for line in ax.get_lines() if line.get_zorder() == 2]


def _heights(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_ydata(), dtype=np.float64)


def test_plot_draws_means_bands_and_the_bound() -> None:
    result = make_result()
    ax = result.plot(scale="linear")
    lines = {line.get_label(): line for line in _lines(ax)}
    assert list(lines) == [*POLICIES, BOUND_LABEL]
    assert_allclose(_heights(lines[POLICIES[1]]), result.regret[1].mean(axis=1), rtol=1e-12)
    x = np.asarray(lines[BOUND_LABEL].get_xdata(), dtype=np.float64)
    assert_allclose(_heights(lines[BOUND_LABEL]), 2.25 * np.log(x), rtol=1e-12)
    assert len(ax.collections) == 3
    table = result.summary()
    rows = table[table["policy"] == POLICIES[0]]
    vertices = ax.collections[0].get_paths()[0].vertices
    vertices = np.asarray(vertices)[:, 1]
    assert_allclose([vertices.min(), vertices.max()], [rows["regret_low"].min(), rows["regret_high"].max()])
    # Names at the ends of their lines; long ones are broken.
    assert ax.get_legend() is None
    assert [" ".join(text.get_text().split()) for text in ax.texts] == [*POLICIES, BOUND_LABEL]
    legend = result.plot(legend="inside").get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [*POLICIES, BOUND_LABEL]


def test_a_legend_of_the_callers_names_lines_alone() -> None:
    """`ax.legend([...])` goes through whatever may have a name, and a band must not take one."""
    result = make_result()
    ax = result.plot(quantiles=True, legend="none")
    ax.legend(["a", "b", "c", "bound"])
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c", "bound"]
    colours = [handle.get_color() for handle in legend.get_lines()]
    assert colours[:3] == [look.colour for look in looks(POLICIES)]


def test_plot_shows_the_callers_names_and_title() -> None:
    result = make_result()
    ax = result.plot(labels={POLICIES[1]: "mine"}, title="Mine and others", legend="inside")
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [POLICIES[0], "mine", POLICIES[2], BOUND_LABEL]
    assert ax.get_title("left") == "Mine and others"
    assert [line.get_label() for line in _lines(ax)][1] == "mine"
    with pytest.raises(ValueError, match="nobody"):
        result.plot(labels={"nobody": "x"})


def test_plot_of_a_choice_keeps_colours_and_adds_quantiles() -> None:
    result = make_result()
    ax = result.plot(policies=POLICIES[2:], quantiles=True, legend="none")
    assert ax.get_legend() is None
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    mean, low, high, _ = _lines(ax)
    assert {line.get_color() for line in (mean, low, high)} == {looks(POLICIES)[2].colour}
    assert len(ax.texts) == 0
    assert_allclose(_heights(high), np.quantile(result.regret[2], 0.95, axis=1), rtol=1e-12)


def test_plot_on_given_axes_and_without_a_constant() -> None:
    ax = Figure().add_subplot()
    result = RegretResult(
        **{
            name: getattr(make_result(), name)
            for name in ("spec", "regret", "optimal", "late_optimal", "pulls", "best_mean")
        }
    )
    assert result.plot(ax) is ax
    assert BOUND_LABEL not in [line.get_label() for line in _lines(ax)]


def test_zero_regret_has_no_place_on_a_log_scale(tmp_path) -> None:
    result = make_result()
    result.regret[:, 0] = 0.0
    result.regret[2] = 0.0
    ax = result.plot()
    assert_array_equal(np.isnan(_heights(ax.get_lines()[0])), [True, False, False])
    assert 0 < ax.get_ylim()[0] < 2.25 * np.log(1000)
    save_figure(result, tmp_path / "regret.png")
    assert (tmp_path / "regret.png").stat().st_size > 10_000


def test_nine_policies_with_long_names_fit_in_the_figure() -> None:
    names = [f"centred_ucb(c=0.7071067812) | s_tau(tau={k}.3333333333)" for k in range(9)]
    ax = make_result(policies=names).plot()
    figure = ax.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    page, frame = figure.bbox, ax.get_window_extent()
    assert len(ax.texts) == 10
    for text in ax.texts:
        box = Text.get_window_extent(text)
        assert frame.x1 < box.x0
        assert box.x1 <= page.x1
        assert page.y0 <= box.y0
        assert box.y1 <= page.y1
    assert frame.width > 0.4 * page.width
    assert len({line.get_color() for line in _lines(ax)[:9]}) == 9


def test_more_policies_than_there_is_room_for_names_have_a_legend() -> None:
    names = [f"centred_ucb | s_tau(tau={k})" for k in range(1, 21)]
    ax = make_result(policies=names).plot()
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [*names, BOUND_LABEL]
    assert len(ax.texts) == 0


def test_policies_that_coincide_are_shown_as_one_line_of_both_colours(tmp_path) -> None:
    result = make_result()
    result.regret[0] *= 10
    result.regret[2] = result.regret[1] * 1.0001
    ax = result.plot()
    together = [line for line in ax.get_lines() if line.get_label() == "_nolegend_" and line.get_zorder() > 2]
    assert [line.get_color() for line in together] == [look.colour for look in looks(POLICIES)[1:]]
    assert_allclose(_heights(together[0]), _heights(together[1]))
    # The lines themselves are as they were.
    assert_allclose(_heights(_lines(ax)[1]), result.regret[1].mean(axis=1), rtol=1e-12)
    save_figure(result, tmp_path / "a.png", tmp_path / "a.svg")
    save_figure(result, tmp_path / "dark.png", ground="dark")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "dark.png").read_bytes() != (tmp_path / "a.png").read_bytes()


def test_plot_leaves_backend_and_pyplot_alone() -> None:
    code = (
        "import sys, numpy as np\n"
        "from stau_rl.regret.result import RegretResult\n"
        "assert not {'matplotlib', 'seaborn'} & set(sys.modules)\n"
        "spec = dict(policies=['a'], checkpoints=[1, 2], horizon=2, instances=2, seed=0)\n"
        "r = RegretResult.allocate(spec, np.ones(2), 2); r.regret[:] = 1.0\n"
        "r.plot().figure.savefig(sys.argv[1])\n"
        "import matplotlib.pyplot as plt\n"
        "assert plt._backend_mod is None and plt._pylab_helpers.Gcf.figs == {}\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_scale_legend_and_policy_are_refused() -> None:
    result = make_result()
    with pytest.raises(ValueError, match="scale"):
        result.plot(scale="symlog")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="legend"):
        plot_regret(result, legend="left")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'thompson'"):
        result.plot(policies=["thompson"])
