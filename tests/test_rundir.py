"""Run directories: created late, refused to others, locked in use, written whole."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from rundir_cases import KILLED, SPEC_A, contents, play, simulate
from stau_rl.files.identity import first_difference, identity
from stau_rl.files.lock import LOCK, DirectoryLock
from stau_rl.files.whole import whole_file, write_json
from stau_rl.regret.directory import PARTS, RunDirectory
from stau_rl.regret.files import FINAL_FILES, SPEC
from stau_rl.regret.result import RegretResult


def test_a_finished_run_has_its_files_and_nothing_else(tmp_path) -> None:
    play(tmp_path / "deep" / "run", SPEC_A, resume=False)
    assert {path.name for path in (tmp_path / "deep" / "run").iterdir()} == {SPEC, *FINAL_FILES}
    result = RegretResult.load(tmp_path / "deep" / "run")
    assert result.spec == SPEC_A
    assert_array_equal(result.regret[1, :, 10:20], simulate(SPEC_A, SPEC_A["policies"][1], 10).regret)


def test_the_directory_is_made_by_open_with_its_spec(tmp_path) -> None:
    path = tmp_path / "run"
    RunDirectory(path, SPEC_A)
    assert not path.exists()
    with RunDirectory.open(path, SPEC_A) as run:
        assert json.loads((path / SPEC).read_text()) == SPEC_A
        assert not run.finished
    assert [file.name for file in path.iterdir()] == [SPEC]


def test_an_empty_directory_will_do_with_or_without_resume(tmp_path) -> None:
    for resume in (False, True):
        path = tmp_path / str(resume)
        path.mkdir()
        # What a process killed before its spec leaves behind.
        (path / LOCK).touch()
        (path / f".{SPEC}.tmp").write_text("{")
        RunDirectory.open(path, SPEC_A, resume).close()
        assert [file.name for file in path.iterdir()] == [SPEC]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, r"seed is 3 there, 4 was asked for"),
        (
            {"policies": ["ucb | argmax", "thompson"]},
            r"policies\[1\] is \"centred_ucb.*, \"thompson\" was asked",
        ),
        ({"checkpoints": [1, 10, 100, 1000]}, r"checkpoints\[2\] is 1000 there, 100 was"),
        ({"policies": SPEC_A["policies"][:1]}, r"length of policies is 2 there, 1 was"),
        ({"version": "0.2.0"}, r"version is \"0.1.0\" there, \"0.2.0\" was"),
        ({"renormalise": True}, r"renormalise is nothing there, true was"),
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_another_spec_is_refused_and_nothing_touched(tmp_path, change: dict, message: str, resume: bool) -> None:
    with RunDirectory.open(tmp_path, SPEC_A) as run:
        run.write_part("ucb | argmax", 0, simulate(SPEC_A, "ucb | argmax", 0))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        RunDirectory.open(tmp_path, SPEC_A | change, resume)
    assert str(tmp_path) in str(caught.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "checkpoints.parquet", PARTS])
def test_foreign_files_are_refused_and_nothing_touched(tmp_path, resume: bool, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"files that are no run of stau-rl \\({name}\\)"):
        RunDirectory.open(tmp_path, SPEC_A, resume)
    assert contents(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("text", ["", "[1]", "not json", "\xff"])
def test_a_foreign_spec_file_is_refused(tmp_path, text: str) -> None:
    (tmp_path / SPEC).write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="no spec of stau-rl"):
        RunDirectory.open(tmp_path, SPEC_A, resume=True)
    assert list(contents(tmp_path)) == [SPEC]


def test_files_beside_a_run_of_the_same_spec_stay(tmp_path) -> None:
    RunDirectory.open(tmp_path, SPEC_A).close()
    (tmp_path / "notes.txt").write_text("mine")
    play(tmp_path, SPEC_A, resume=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_is_no_directory(tmp_path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ValueError, match=rf"run directory {path} (is a file|cannot be used: Not a directory)"):
            RunDirectory.open(path, SPEC_A)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc, a file system nobody can write")
def test_a_file_system_that_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="run directory /proc/stau cannot be used: "):
        RunDirectory.open("/proc/stau", SPEC_A)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_gives_out(tmp_path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("stau_rl.files.whole.os.fsync", fail)
        with pytest.raises(ValueError, match=f"run directory {path} cannot be used: {os.strerror(code)}"):
            RunDirectory.open(path, SPEC_A)
        assert not path.exists()
    with RunDirectory.open(path, SPEC_A) as run:
        monkeypatch.setattr("stau_rl.files.whole.os.fsync", fail)
        with pytest.raises(ValueError, match=os.strerror(code)):
            run.write_part("ucb | argmax", 0, simulate(SPEC_A, "ucb | argmax", 0))
        assert not list((path / PARTS).iterdir())


def test_a_failed_write_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail_midway() -> None:
        with whole_file(path) as temporary:
            temporary.write_text("ne")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert contents(tmp_path) == {"file": b"old"}
    with whole_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert contents(tmp_path) == {"file": b"new"}


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path) -> None:
    first = RunDirectory.open(tmp_path, SPEC_A)
    with pytest.raises(ValueError, match="in use by another process"):
        RunDirectory.open(tmp_path, SPEC_A, resume=True)
    assert (tmp_path / LOCK).exists()
    first.close()
    first.close()
    RunDirectory.open(tmp_path, SPEC_A, resume=True).close()
    with pytest.raises(ValueError, match="not held"):
        first.write_part("ucb | argmax", 0, simulate(SPEC_A, "ucb | argmax", 0))


def test_a_lock_on_a_removed_file_is_not_held(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last holder removes its file between our open and our lock; a third could then lock a new file.
    flock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        monkeypatch.undo()
        (tmp_path / LOCK).unlink()

    monkeypatch.setattr("stau_rl.files.lock.fcntl.flock", late)
    with DirectoryLock(tmp_path) as lock:
        assert lock.held
        with pytest.raises(ValueError, match="in use"):
            DirectoryLock(tmp_path).take()
    assert not lock.held
    assert not (tmp_path / LOCK).exists()


def test_another_process_is_refused_and_death_releases(tmp_path) -> None:
    path = tmp_path / "run"
    code = KILLED.replace("pause=0.02", "pause=60")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(path)], stdout=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 30
        while not (path / SPEC).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(ValueError, match="in use by another process"):
            RunDirectory.open(path, SPEC_A, resume=True)
        process.kill()
        process.wait()
    RunDirectory.open(path, SPEC_A, resume=True).close()


def test_a_result_of_another_spec_is_not_written(tmp_path) -> None:
    other = RegretResult.allocate(SPEC_A | {"seed": 4}, np.full(40, 0.9), 2)
    other.regret[:] = 1.0
    with RunDirectory.open(tmp_path, SPEC_A) as run, pytest.raises(ValueError, match="seed is 4, not 3"):
        run.finish(other)
    with pytest.raises(ValueError, match="holds a run of another spec"):
        other.save(tmp_path)


def test_identity_leaves_out_descriptions_alone() -> None:
    spec = SPEC_A | {"commit": "abc", "device_name": "x", "versions": {}, "checkpoints": (1, 10, 1000)}
    assert identity(spec) == {k: v for k, v in SPEC_A.items() if k != "baseline"}
    with pytest.raises(ValueError, match="JSON"):
        identity({"a": float("inf")})
    with pytest.raises(ValueError, match="JSON"):
        identity({"a": object()})


def test_first_difference_walks_into_values() -> None:
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) is None
    assert first_difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ("a[1].b", "2", "3")
    assert first_difference({"a": 1}, {}) == ("a", "1", "nothing")
    assert first_difference({"a": 1}, {"a": True}) == ("a", "1", "true")
    assert first_difference({"a": 1.0}, {"a": 1}) is None
