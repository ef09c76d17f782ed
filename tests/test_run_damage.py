"""Finished runs whose files were damaged or mixed up, and a disk that is full from the start."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from stau_rl.regret import files as runfiles
from stau_rl.regret.result import RegretResult
from stau_rl.regret.run import run_regret

POLICIES = ["random", "ucb1"]
TABLES = ["checkpoints.parquet", "instances.parquet"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    out = tmp_path_factory.mktemp("finished") / "run"
    run_regret("bernoulli(k=3)", POLICIES, 40, 60, engine="torch", out=out)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["spec.json", "timing.json"])
@pytest.mark.parametrize("text", ["[]", "null", '"a"', "", "\xff"], ids=repr)
def test_a_damaged_json_file_is_told(run: Path, name: str, text: str) -> None:
    (run / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=rf"cannot read the run in {run}"):
        RegretResult.load(run)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_other_policies_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    run_regret("bernoulli(k=3)", ["random", "greedy"], 40, 60, engine="torch", out=tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, run / name)
    with pytest.raises(ValueError, match=rf"{name} has rows of 'greedy' where its spec has 'ucb1'"):
        RegretResult.load(run)


@pytest.mark.parametrize("name", TABLES)
def test_a_flipped_bit_of_a_table_is_found_or_harmless(run: Path, name: str) -> None:
    """Without checksums most flips change a number of the result, and nothing says so."""
    result = RegretResult.load(run)
    whole = (run / name).read_bytes()
    data = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    found = 0
    for place in np.linspace(4, data - 1, 100).astype(int).tolist():
        (run / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            other = RegretResult.load(run)
        except ValueError:
            found += 1
            continue
        for array in ("regret", "optimal", "late_optimal", "pulls", "best_mean"):
            assert_array_equal(getattr(other, array), getattr(result, array), strict=True)
    assert found >= 50


def test_pulls_that_are_no_lists_are_told(run: Path) -> None:
    table = pq.read_table(run / "instances.parquet")
    place = table.column_names.index("pulls")
    pq.write_table(table.set_column(place, "pulls", pa.array([1] * len(table))), run / "instances.parquet")
    with pytest.raises(ValueError, match="has pulls of type int64, not a number per arm"):
        RegretResult.load(run)


@pytest.mark.parametrize("full", TABLES)
def test_a_disk_full_before_the_tables_begin_leaves_nothing(monkeypatch, tmp_path: Path, full: str) -> None:
    """Else the half-begun table would stay without a spec, and the directory be refused ever after."""
    plain = runfiles.InstanceTable

    def begin(name: str, path: Path, result: RegretResult) -> runfiles.InstanceTable:
        if name == full:
            path.touch()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(name, path, result)

    arguments = ("bernoulli(k=3)", POLICIES, 40, 60)
    with monkeypatch.context() as patch:
        patch.setattr(runfiles, "InstanceTable", begin)
        with pytest.raises(ValueError, match="run cannot be used: No space left on device"):
            run_regret(*arguments, engine="torch", out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    run_regret(*arguments, engine="torch", out=tmp_path / "run", resume=True)
