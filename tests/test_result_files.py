"""A result's way to disk and back, at once or while it grows."""

from itertools import accumulate, pairwise

import matplotlib as mpl
import matplotlib.colors
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from result_cases import POLICIES, STEPS, assert_equal, make_block, make_result, make_spec
from stau_rl.files.whole import temporary_of
from stau_rl.kernels.contract import Block
from stau_rl.regret.directory import RunDirectory
from stau_rl.regret.result import RegretResult


@pytest.mark.parametrize(("instances", "arms"), [(1, 1), (1, 4), (50, 1), (50, 4)])
@pytest.mark.parametrize("constant", [None, 0.1 + 0.2])
def test_save_and_load_give_the_same(tmp_path, instances: int, arms: int, constant: float | None) -> None:
    result = RegretResult.allocate(make_spec(instances), np.linspace(0.1, 0.9, instances), arms, constant)
    for p, policy in enumerate(POLICIES):
        result.put(policy, 0, make_block(p, instances, arms))
    result.timing["seconds"] = 1.25
    result.save(tmp_path / "run")
    assert_equal(RegretResult.load(tmp_path / "run"), result)


def test_wide_pulls_survive(tmp_path) -> None:
    result = make_result(3, horizon=1 << 40)
    result.pulls[:] = (1 << 40) - 1
    result.save(tmp_path)
    assert_equal(RegretResult.load(tmp_path), result)


def test_files_have_a_row_per_policy_and_instance(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Groups of 25 rows, so that every loop turns more than once and the last turn is short.
    monkeypatch.setattr("stau_rl.regret.instance_tables.ROWS", 25)
    result = make_result(60)
    result.save(tmp_path)
    assert_equal(RegretResult.load(tmp_path), result)
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
    first, second = make_result(), make_result()
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
    monkeypatch.setattr("stau_rl.regret.instance_tables.ROWS", 25)
    result = make_result(60)
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
    result = RegretResult.allocate(make_spec(10), np.zeros(10), 4)
    with RunDirectory.open(tmp_path / "run", result.spec) as run, run.growing(result) as files:
        files.put(POLICIES[0], 0, make_block(0, 10))
        with pytest.raises(ValueError, match="without a regret"):
            run.finish(result, files)
    assert [path.name for path in (tmp_path / "run").glob("*.parquet")] == []
    assert [path.name for path in (tmp_path / "run").glob(".*.tmp")] == []


def test_a_block_that_does_not_fit_ends_the_run(tmp_path) -> None:
    result = RegretResult.allocate(make_spec(10), np.zeros(10), 4)
    with RunDirectory.open(tmp_path / "run", result.spec) as run, run.growing(result) as files:
        files.put(POLICIES[0], 5, make_block(0, 10))
        with pytest.raises(ValueError, match="do not fit in 10 instances"):
            files.put(POLICIES[0], 0, make_block(0, 10))


def test_files_of_another_format_are_refused(tmp_path) -> None:
    result = make_result()
    result.spec["format"] = 1
    result.save(tmp_path)
    with pytest.raises(ValueError, match="has files of format 1, this version reads 2"):
        RegretResult.load(tmp_path)


def test_an_incomplete_result_is_not_saved(tmp_path) -> None:
    result = RegretResult.allocate(make_spec(10), np.zeros(10), 4)
    result.put(POLICIES[0], 0, make_block(0, 10))
    with pytest.raises(ValueError, match="without a regret"):
        result.save(tmp_path)
    assert not (tmp_path / "checkpoints.parquet").exists()


def test_loading_what_is_not_a_finished_run(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"it lacks spec\.json"):
        RegretResult.load(tmp_path / "nowhere")
    make_result().save(tmp_path)
    table = tmp_path / "checkpoints.parquet"
    table.write_bytes(table.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cannot read the run"):
        RegretResult.load(tmp_path)


def test_a_link_in_the_place_of_a_temporary_file_leads_nowhere(tmp_path) -> None:
    """Whoever asks where to write gets a place that no link leads away from: growing tables, too."""
    outside = tmp_path / "precious.txt"
    outside.write_text("kept", encoding="utf-8")
    for name in ("checkpoints.parquet", "instances.parquet"):
        (tmp_path / f".{name}.tmp").symlink_to(outside)
        temporary_of(tmp_path / name).write_bytes(b"x")
        assert not (tmp_path / f".{name}.tmp").is_symlink()
    assert outside.read_text(encoding="utf-8") == "kept"
