"""The result object: tables by hand, comparisons, the figure, and the way to disk and back."""

import subprocess
import sys
from itertools import accumulate, pairwise

import matplotlib as mpl
import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from stau_rl.kernels.contract import Block
from stau_rl.plotting import BOUND_LABEL, COLOURS, DASHES, plot_regret, save_figure
from stau_rl.result import RegretResult
from stau_rl.rundir import RunDirectory
from stau_rl.statistics import holm, wilson_interval

POLICIES = ["ucb | argmax", "centred_ucb(c=1) | softmax(beta=1)", "centred_ucb(c=1) | s_tau(tau=5)"]
STEPS = [1, 10, 100]


def _spec(instances: int, policies: list[str] = POLICIES, **more) -> dict:
    spec = {"policies": policies, "checkpoints": STEPS, "horizon": 1000, "instances": instances, "seed": 7}
    return spec | {"arms": "bernoulli(0.9, 0.8)", "baseline": policies[0]} | more


def _block(seed: int, instances: int, arms: int = 4) -> Block:
    generator = np.random.Generator(np.random.PCG64(seed))
    return Block(
        regret=generator.gamma(2.0, 1.0, (3, instances)) * np.array(STEPS)[:, None],
        optimal=generator.random((3, instances)) < 0.6,
        late_optimal=generator.integers(0, 100, instances),
        pulls=generator.integers(0, 300, (arms, instances)),
        reward_sums=np.zeros((arms, instances)),
    )


def _result(instances: int = 60, policies: list[str] = POLICIES, **more) -> RegretResult:
    result = RegretResult.allocate(_spec(instances, policies, **more), np.full(instances, 0.9), 4, 2.25)
    for p, policy in enumerate(policies):
        result.put(policy, 0, _block(p, instances))
    return result


def _heights(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_ydata(), dtype=np.float64)


def _assert_equal(a: RegretResult, b: RegretResult) -> None:
    for name in ("regret", "optimal", "late_optimal", "pulls", "best_mean"):
        assert_array_equal(getattr(a, name), getattr(b, name), strict=True)
    assert (a.spec, a.lai_robbins, a.timing) == (b.spec, b.lai_robbins, b.timing)


def test_summary_rows_are_their_definitions() -> None:
    result = _result()
    table = result.summary()
    assert table["policy"].tolist() == [p for p in POLICIES for _ in STEPS]
    assert table["step"].tolist() == STEPS * 3
    for p in range(3):
        for c in range(3):
            row, x = table.iloc[3 * p + c], result.regret[p, c]
            assert_allclose(row["regret"], x.mean(), rtol=1e-13)
            assert_allclose(row["regret_se"], stats.sem(x), rtol=1e-12)
            low, high = stats.t.interval(0.95, 59, loc=x.mean(), scale=stats.sem(x))
            assert_allclose([row["regret_low"], row["regret_high"]], [low, high], rtol=1e-12)
            assert_allclose([row["q05"], row["q50"], row["q95"]], np.quantile(x, [0.05, 0.5, 0.95]), rtol=1e-13)
            assert_allclose(row["cvar95"], np.sort(x)[-3:].mean(), rtol=1e-13)
            hits = result.optimal[p, c].sum()
            assert row["best_arm_rate"] == hits / 60
            assert (row["best_arm_low"], row["best_arm_high"]) == wilson_interval(hits, 60)


def test_stuck_rate_stands_in_the_last_row_alone() -> None:
    # The last tenth of 1 000 steps has 100 pulls: stuck is fewer than one optimal pull.
    result = _result(10)
    result.late_optimal[:] = [[0, 0, 0, 1, 1, 50, 99, 100, 100, 100]] * 3
    assert_array_equal(result.stuck.sum(axis=1), 3)
    assert_array_equal(result.summary()["stuck_rate"], [np.nan, np.nan, 0.3] * 3)


@pytest.mark.parametrize(("horizon", "late", "stuck"), [(5, 0, True), (5, 1, False), (2000, 1, True), (2000, 2, False)])
def test_stuck_is_below_one_percent_of_the_last_tenth(horizon: int, late: int, stuck: bool) -> None:
    result = _result(2, horizon=horizon)
    result.late_optimal[:] = late
    assert_array_equal(result.stuck, stuck)


def test_compare_rows_are_their_definitions() -> None:
    result = _result()
    table = result.compare()
    assert table["policy"].tolist() == [p for p in POLICIES[1:] for _ in STEPS]
    assert set(table["baseline"]) == {POLICIES[0]}
    for p in (1, 2):
        for c in range(3):
            row = table.iloc[3 * (p - 1) + c]
            x, y = result.regret[p, c], result.regret[0, c]
            assert_allclose(row["difference"], np.mean(x - y), rtol=1e-10)
            assert_allclose(row["percent"], 100 * (x.mean() / y.mean() - 1), rtol=1e-10)
            assert_allclose(row["p_value"], stats.ttest_rel(x, y).pvalue, rtol=1e-10)
            assert row["difference_low"] < row["difference"] < row["difference_high"]
            assert row["percent_low"] < row["percent"] < row["percent_high"]
    last = table[table["step"] == 100]
    assert_array_equal(last["p_holm"], holm(last["p_value"]))
    assert table.loc[table["step"] < 100, "p_holm"].isna().all()


def test_compare_with_a_named_baseline_turns_signs() -> None:
    result = _result()
    there = result.compare(POLICIES[2]).query("step == 100").set_index("policy")
    here = result.compare(POLICIES[0]).query("step == 100").set_index("policy")
    a, b = there.loc[POLICIES[0]], here.loc[POLICIES[2]]
    assert a["difference"] == -b["difference"]
    # The same resamples, the other way round.
    assert_allclose([a["difference_low"], a["difference_high"]], [-b["difference_high"], -b["difference_low"]])
    assert a["p_value"] == b["p_value"]


def test_intervals_follow_the_seed_and_estimates_do_not() -> None:
    a, b = _result().compare(), _result(seed=8).compare()
    for name in ("difference", "percent"):
        assert_array_equal(a[name], b[name])
        assert (a[f"{name}_low"] != b[f"{name}_low"]).all()


def test_comparison_of_two_does_not_depend_on_a_third() -> None:
    two = _result(policies=POLICIES[:2]).compare().drop(columns="p_holm")
    three = _result().compare().drop(columns="p_holm")
    pd.testing.assert_frame_equal(two, three[three["policy"] == POLICIES[1]], check_exact=True)


def test_compare_without_a_baseline_in_the_spec_takes_the_first() -> None:
    assert set(_result(baseline=None).compare()["baseline"]) == {POLICIES[0]}
    assert _result(policies=POLICIES[:1]).compare().empty


def test_unknown_names_are_listed_with_the_known() -> None:
    for call in (_result().compare, _result().index):
        with pytest.raises(ValueError, match=r"'thompson' is not .* 'ucb \| argmax'"):
            call("thompson")
    with pytest.raises(ValueError, match="baseline 'thompson'"):
        _result(baseline="thompson")


def test_tables_follow_the_arrays_and_are_copies() -> None:
    result = _result()
    first = result.summary()
    first.loc[:, "regret"] = -1.0
    assert (result.summary()["regret"] > 0).all()
    result.put(POLICIES[1], 0, _block(9, 60))
    assert result.summary()["regret"].iloc[3] == pytest.approx(result.regret[1, 0].mean())


def test_put_places_blocks_by_instance() -> None:
    whole, parts = _result(60), RegretResult.allocate(_spec(60), np.full(60, 0.9), 4, 2.25)
    for p, policy in enumerate(POLICIES):
        block = _block(p, 60)
        for first, last in ((40, 60), (0, 25), (25, 40)):
            some = slice(first, last)
            parts.put(
                policy,
                first,
                Block(
                    block.regret[:, some],
                    block.optimal[:, some],
                    block.late_optimal[some],
                    block.pulls[:, some],
                    block.reward_sums[:, some],
                ),
            )
    _assert_equal(whole, parts)


def test_blocks_and_arrays_that_do_not_fit_are_refused() -> None:
    result = _result(10)
    with pytest.raises(ValueError, match="instances 5 to 14 do not fit"):
        result.put(POLICIES[0], 5, _block(0, 10))
    with pytest.raises(ValueError, match="4 arms"):
        result.put(POLICIES[0], 0, _block(0, 10, arms=3))
    with pytest.raises(ValueError, match=r"best_mean must be float64 \[10\]"):
        RegretResult.allocate(_spec(10), np.zeros(9), 4)
    with pytest.raises(ValueError, match="lacks seed"):
        RegretResult.allocate({k: v for k, v in _spec(10).items() if k != "seed"}, np.zeros(10), 4)
    with pytest.raises(ValueError, match="different texts"):
        RegretResult.allocate(_spec(10, ["a", "a"]), np.zeros(10), 4)
    with pytest.raises(ValueError, match="ascend"):
        RegretResult.allocate(_spec(10, checkpoints=[10, 1, 100]), np.zeros(10), 4)


@pytest.mark.parametrize(("instances", "arms"), [(1, 1), (1, 4), (50, 1), (50, 4)])
@pytest.mark.parametrize("constant", [None, 0.1 + 0.2])
def test_save_and_load_give_the_same(tmp_path, instances: int, arms: int, constant: float | None) -> None:
    result = RegretResult.allocate(_spec(instances), np.linspace(0.1, 0.9, instances), arms, constant)
    for p, policy in enumerate(POLICIES):
        result.put(policy, 0, _block(p, instances, arms))
    result.timing["seconds"] = 1.25
    result.save(tmp_path / "run")
    _assert_equal(RegretResult.load(tmp_path / "run"), result)


def test_wide_pulls_survive(tmp_path) -> None:
    result = _result(3, horizon=1 << 40)
    result.pulls[:] = (1 << 40) - 1
    result.save(tmp_path)
    _assert_equal(RegretResult.load(tmp_path), result)


def test_files_have_a_row_per_policy_and_instance(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Groups of 25 rows, so that every loop turns more than once and the last turn is short.
    monkeypatch.setattr("stau_rl.instance_tables.ROWS", 25)
    result = _result(60)
    result.save(tmp_path)
    _assert_equal(RegretResult.load(tmp_path), result)
    curves = pd.read_parquet(tmp_path / "checkpoints.parquet")
    names = [f"{what}_{step}" for what in ("regret", "optimal") for step in STEPS]
    assert list(curves.columns) == ["policy", "instance", *names]
    each = pd.read_parquet(tmp_path / "instances.parquet")
    expected = [list(row) for row in pd.MultiIndex.from_product([POLICIES, range(60)])]
    for table in (curves, each):
        assert table[["policy", "instance"]].astype({"policy": object}).values.tolist() == expected
    for c, step in enumerate(STEPS):
        assert_array_equal(curves[f"regret_{step}"], result.regret[:, c].ravel())
        assert_array_equal(curves[f"optimal_{step}"], result.optimal[:, c].ravel())
    assert_array_equal(each["regret"], result.regret[:, -1].ravel())
    assert_array_equal(each["stuck"], result.stuck.ravel())
    assert_array_equal(each["pulls"][65], result.pulls[1, :, 5])
    summary = pd.read_csv(tmp_path / "summary.csv")
    assert_allclose(summary["regret"], result.summary()["regret"], rtol=1e-11)
    assert_allclose(summary["percent"].dropna(), result.compare()["percent"], rtol=1e-11)


def test_two_saves_are_equal_bytes_whatever_the_style_and_the_timing(tmp_path) -> None:
    first, second = _result(), _result()
    first.timing["seconds"], second.timing["seconds"] = 1.0, 2.0
    first.save(tmp_path / "a")
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 3, "savefig.dpi": 30}):
        second.save(tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [
        "checkpoints.parquet",
        "instances.parquet",
        "regret.png",
        "spec.json",
        "summary.csv",
        "timing.json",
    ]
    for name in names:
        same = (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        assert same == (name != "timing.json"), name


@pytest.mark.parametrize("parts", [[60], [7, 20, 33], [25, 25, 10]], ids=str)
def test_files_that_grow_are_those_written_at_once(parts: list[int], tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("stau_rl.instance_tables.ROWS", 25)
    result = _result(60)
    result.save(tmp_path / "whole")
    growing = RegretResult.allocate(result.spec, result.best_mean, result.pulls.shape[1], result.lai_robbins)
    with RunDirectory.open(tmp_path / "grown", result.spec) as run, run.growing(growing) as files:
        for p, policy in enumerate(POLICIES):
            for first, last in pairwise([0, *accumulate(parts)]):
                rows = slice(first, last)
                late, pulls = result.late_optimal[p, rows], result.pulls[p][:, rows].astype(np.int64)
                block = Block(result.regret[p][:, rows], result.optimal[p][:, rows], late, pulls, np.zeros(pulls.shape))
                files.put(policy, first, block)
        run.finish(growing, files)
    for name in ("checkpoints.parquet", "instances.parquet", "summary.csv", "regret.png"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "grown" / name).read_bytes(), name


def test_growing_files_leave_nothing_behind(tmp_path) -> None:
    result = RegretResult.allocate(_spec(10), np.zeros(10), 4)
    with RunDirectory.open(tmp_path / "run", result.spec) as run, run.growing(result) as files:
        files.put(POLICIES[0], 0, _block(0, 10))
        with pytest.raises(ValueError, match="without a regret"):
            run.finish(result, files)
    assert [path.name for path in (tmp_path / "run").glob("*.parquet")] == []
    assert [path.name for path in (tmp_path / "run").glob(".*.tmp")] == []


def test_a_block_that_does_not_fit_ends_the_run(tmp_path) -> None:
    result = RegretResult.allocate(_spec(10), np.zeros(10), 4)
    with RunDirectory.open(tmp_path / "run", result.spec) as run, run.growing(result) as files:
        files.put(POLICIES[0], 5, _block(0, 10))
        with pytest.raises(ValueError, match="do not fit in 10 instances"):
            files.put(POLICIES[0], 0, _block(0, 10))


def test_files_of_another_format_are_refused(tmp_path) -> None:
    result = _result()
    result.spec["format"] = 1
    result.save(tmp_path)
    with pytest.raises(ValueError, match="has files of format 1, this version reads 2"):
        RegretResult.load(tmp_path)


def test_an_incomplete_result_is_not_saved(tmp_path) -> None:
    result = RegretResult.allocate(_spec(10), np.zeros(10), 4)
    result.put(POLICIES[0], 0, _block(0, 10))
    with pytest.raises(ValueError, match="without a regret"):
        result.save(tmp_path)
    assert not (tmp_path / "checkpoints.parquet").exists()


def test_loading_what_is_not_a_finished_run(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"it lacks spec\.json"):
        RegretResult.load(tmp_path / "nowhere")
    _result().save(tmp_path)
    table = tmp_path / "checkpoints.parquet"
    table.write_bytes(table.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cannot read the run"):
        RegretResult.load(tmp_path)


def test_plot_draws_means_bands_and_the_bound() -> None:
    result = _result()
    ax = result.plot(scale="linear")
    lines = {line.get_label(): line for line in ax.get_lines()}
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
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [*POLICIES, BOUND_LABEL]


def test_plot_of_a_choice_keeps_colours_and_adds_quantiles() -> None:
    result = _result()
    ax = result.plot(policies=POLICIES[2:], quantiles=True, legend="none")
    assert ax.get_legend() is None
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    mean, low, high, _ = ax.get_lines()
    assert {line.get_color() for line in (mean, low, high)} == {COLOURS[2]}
    assert_allclose(_heights(high), np.quantile(result.regret[2], 0.95, axis=1), rtol=1e-12)


def test_plot_on_given_axes_and_without_a_constant() -> None:
    ax = Figure().add_subplot()
    result = RegretResult(
        **{
            name: getattr(_result(), name)
            for name in ("spec", "regret", "optimal", "late_optimal", "pulls", "best_mean")
        }
    )
    assert result.plot(ax) is ax
    assert BOUND_LABEL not in [line.get_label() for line in ax.get_lines()]


def test_zero_regret_has_no_place_on_a_log_scale(tmp_path) -> None:
    result = _result()
    result.regret[:, 0] = 0.0
    result.regret[2] = 0.0
    ax = result.plot()
    assert_array_equal(np.isnan(_heights(ax.get_lines()[0])), [True, False, False])
    assert 0 < ax.get_ylim()[0] < 2.25 * np.log(1000)
    save_figure(result, tmp_path / "regret.png")
    assert (tmp_path / "regret.png").stat().st_size > 10_000


def test_nine_policies_with_long_names_fit_in_the_figure() -> None:
    names = [f"centred_ucb(c=0.7071067812) | s_tau(tau={k}.3333333333)" for k in range(9)]
    ax = _result(policies=names).plot()
    figure = ax.figure
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    legend = ax.get_legend()
    assert legend is not None
    box, page, frame = legend.get_window_extent(), figure.bbox, ax.get_window_extent()
    assert page.x0 <= box.x0
    assert box.x1 <= page.x1
    assert box.y0 >= page.y0
    assert frame.x1 <= box.x0
    assert frame.width > 0.45 * page.width
    styles = [(line.get_color(), line.get_linestyle()) for line in ax.get_lines()[:9]]
    assert len({colour for colour, _ in styles}) == 9


def test_colours_differ_also_in_grey_or_dash() -> None:
    assert len(set(COLOURS)) == 9
    grey = [np.dot(matplotlib.colors.to_rgb(colour), [0.299, 0.587, 0.114]) for colour in COLOURS]
    for a in range(9):
        for b in range(a):
            same_dash = DASHES[a % len(DASHES)] == DASHES[b % len(DASHES)]
            assert not same_dash or abs(grey[a] - grey[b]) > 0.05, (a, b)


def test_plot_leaves_backend_and_pyplot_alone() -> None:
    code = (
        "import sys, numpy as np\n"
        "from stau_rl.result import RegretResult\n"
        "assert 'matplotlib' not in sys.modules\n"
        "spec = dict(policies=['a'], checkpoints=[1, 2], horizon=2, instances=2, seed=0)\n"
        "r = RegretResult.allocate(spec, np.ones(2), 2); r.regret[:] = 1.0\n"
        "r.plot().figure.savefig(sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "/dev/null"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_scale_legend_and_policy_are_refused() -> None:
    result = _result()
    with pytest.raises(ValueError, match="scale"):
        result.plot(scale="symlog")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="legend"):
        plot_regret(result, legend="left")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'thompson'"):
        result.plot(policies=["thompson"])
