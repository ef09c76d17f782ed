"""Run directories: created late, refused to others, resumed to equal bytes after a kill at any moment."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from stau_rl.atomic import whole_file, write_json
from stau_rl.identity import first_difference, identity
from stau_rl.kernels.contract import Block
from stau_rl.lock import LOCK, DirectoryLock
from stau_rl.result import RegretResult
from stau_rl.rundir import PARTS, RunDirectory
from stau_rl.runfiles import FINAL_FILES, SPEC

SPEC_A: dict[str, Any] = {
    "format": 2,
    "version": "0.1.0",
    "arms": "bernoulli(0.9, 0.8)",
    "policies": ["ucb | argmax", "centred_ucb(c=1) | s_tau(tau=5)"],
    "horizon": 1000,
    "instances": 40,
    "seed": 3,
    "checkpoints": [1, 10, 1000],
    "baseline": "ucb | argmax",
}
SIZE = 10


def simulate(spec: dict, policy: str, first: int) -> Block:
    """Stands for an engine: a block that depends on its arguments alone."""
    key = spec["policies"].index(policy) * 1000 + first
    generator = np.random.Generator(np.random.PCG64(spec["seed"] * 100_000 + key))
    return Block(
        regret=np.cumsum(generator.random((3, SIZE)), axis=0),
        optimal=generator.random((3, SIZE)) < 0.5,
        late_optimal=generator.integers(0, 100, SIZE),
        pulls=generator.integers(0, 500, (2, SIZE)),
        reward_sums=generator.random((2, SIZE)),
    )


def play(path: Path, spec: dict, resume: bool, pause: float = 0.0) -> int:
    """Run as a benchmark does: parts, then the result. Returns the number of blocks that were computed."""
    computed = 0
    with RunDirectory.open(path, spec, resume) as run:
        if run.finished:
            return 0
        result = RegretResult.allocate(spec, np.full(spec["instances"], 0.9), 2, 2.25)
        for policy in spec["policies"]:
            for first in range(0, spec["instances"], SIZE):
                block = run.read_part(policy, first, SIZE)
                if block is None:
                    time.sleep(pause)
                    block = simulate(spec, policy, first)
                    run.write_part(policy, first, block)
                    computed += 1
                result.put(policy, first, block)
        result.timing["seconds"] = time.perf_counter()
        run.finish(result)
    return computed


def _contents(path: Path) -> dict[str, bytes]:
    """Every file below a folder, but for what may differ between two runs."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "timing.json")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("whole") / "run"
    assert play(path, SPEC_A, resume=False) == 8
    return _contents(path)


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


def test_the_same_spec_needs_resume(tmp_path, whole: dict[str, bytes]) -> None:
    RunDirectory.open(tmp_path, SPEC_A).close()
    before = _contents(tmp_path)
    with pytest.raises(ValueError, match=r"an unfinished run of this spec; pass --resume to continue"):
        RunDirectory.open(tmp_path, SPEC_A)
    assert _contents(tmp_path) == before
    assert play(tmp_path, SPEC_A, resume=True) == 8
    with pytest.raises(ValueError, match=r"a finished run of this spec; pass --resume to load"):
        RunDirectory.open(tmp_path, SPEC_A)
    assert play(tmp_path, SPEC_A, resume=True) == 0
    assert _contents(tmp_path) == whole


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
    before = _contents(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        RunDirectory.open(tmp_path, SPEC_A | change, resume)
    assert str(tmp_path) in str(caught.value)
    assert _contents(tmp_path) == before


def test_what_only_describes_a_run_may_change(tmp_path, whole: dict[str, bytes]) -> None:
    spec = SPEC_A | {"baseline": SPEC_A["policies"][1], "commit": "abc", "versions": {"numpy": "9"}}
    RunDirectory.open(tmp_path, spec).close()
    play(tmp_path, SPEC_A, resume=True)
    # Files tell of the spec that finished the run.
    assert _contents(tmp_path) == whole


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["notes.txt", "checkpoints.parquet", PARTS])
def test_foreign_files_are_refused_and_nothing_touched(tmp_path, resume: bool, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"files that are no run of stau-rl \\({name}\\)"):
        RunDirectory.open(tmp_path, SPEC_A, resume)
    assert _contents(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("text", ["", "[1]", "not json", "\xff"])
def test_a_foreign_spec_file_is_refused(tmp_path, text: str) -> None:
    (tmp_path / SPEC).write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="no spec of stau-rl"):
        RunDirectory.open(tmp_path, SPEC_A, resume=True)
    assert list(_contents(tmp_path)) == [SPEC]


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
        patch.setattr("stau_rl.atomic.os.fsync", fail)
        with pytest.raises(ValueError, match=f"run directory {path} cannot be used: {os.strerror(code)}"):
            RunDirectory.open(path, SPEC_A)
        assert not path.exists()
    with RunDirectory.open(path, SPEC_A) as run:
        monkeypatch.setattr("stau_rl.atomic.os.fsync", fail)
        with pytest.raises(ValueError, match=os.strerror(code)):
            run.write_part("ucb | argmax", 0, simulate(SPEC_A, "ucb | argmax", 0))
        assert not list((path / PARTS).iterdir())


def test_parts_come_back_equal(tmp_path) -> None:
    names = ["ucb | argmax", "a/../b", "ε" * 300, "UCB | argmax"]
    with RunDirectory.open(tmp_path, SPEC_A) as run:
        for name in names:
            assert not run.has_part(name, 0)
            block = simulate(SPEC_A, SPEC_A["policies"][0], len(name))
            run.write_part(name, 0, block)
        for name in names:
            block, stored = simulate(SPEC_A, SPEC_A["policies"][0], len(name)), run.read_part(name, 0)
            assert stored is not None
            for field in ("regret", "optimal", "late_optimal", "pulls", "reward_sums"):
                assert_array_equal(getattr(stored, field), getattr(block, field), strict=True)
        assert not run.has_part("ucb | argmax", 10)
        assert run.has_part("ucb | argmax", 0, SIZE)
        assert not run.has_part("ucb | argmax", 0, SIZE + 1)
    assert len({path.name.lower() for path in (tmp_path / PARTS).iterdir()}) == 4


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "zeros", "foreign"])
def test_a_damaged_part_is_computed_again(tmp_path, whole: dict[str, bytes], damage: str) -> None:
    with RunDirectory.open(tmp_path, SPEC_A) as run:
        for first in (0, 10):
            run.write_part("ucb | argmax", first, simulate(SPEC_A, "ucb | argmax", first))
        path = sorted((tmp_path / PARTS).iterdir())[1]
        good = path.read_bytes()
        middle = len(good) // 2
        bad = {
            "empty": b"",
            "cut": good[:-30],
            "flip": good[:300] + bytes([good[300] ^ 1]) + good[301:],
            "zeros": good[:middle] + bytes(len(good) - middle),
            "foreign": b"mine",
        }
        assert bad[damage] != good
        path.write_bytes(bad[damage])
        assert run.has_part("ucb | argmax", 0)
        assert not run.has_part("ucb | argmax", 10)
    assert play(tmp_path, SPEC_A, resume=True) == 7
    assert _contents(tmp_path) == whole


def test_a_damaged_shape_asks_for_no_memory(tmp_path) -> None:
    # Larger than what is checked and read in one go.
    zeros = np.zeros((3, 20_000))
    block = Block(zeros, zeros == 0, zeros[0].astype(np.int64), zeros[:2].astype(np.int64), zeros[:2])
    with RunDirectory.open(tmp_path, SPEC_A) as run:
        run.write_part("ucb | argmax", 0, block)
        assert run.has_part("ucb | argmax", 0)
        (path,) = (tmp_path / PARTS).iterdir()
        good = path.read_bytes()
        bad = good.replace(b"20000), }" + b" " * 11, b"20000" + b"0" * 11 + b"), }")
        assert bad != good
        path.write_bytes(bad)
        assert run.read_part("ucb | argmax", 0) is None


def test_every_flipped_byte_of_a_part_is_harmless(tmp_path) -> None:
    block = simulate(SPEC_A, "ucb | argmax", 0)
    with RunDirectory.open(tmp_path, SPEC_A) as run:
        run.write_part("ucb | argmax", 0, block)
        (path,) = (tmp_path / PARTS).iterdir()
        good = path.read_bytes()
        found = 0
        for position in range(0, len(good), 7):
            path.write_bytes(good[:position] + bytes([good[position] ^ 0x55]) + good[position + 1 :])
            stored = run.read_part("ucb | argmax", 0)
            # A byte of the archive's own book-keeping (a date, a flag) may change without harm to the arrays.
            found += stored is None
            if stored is not None:
                assert_array_equal(stored.regret, block.regret)
                assert_array_equal(stored.pulls, block.pulls)
        assert found > 50


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import test_rundir as t
from pathlib import Path
print("go", flush=True)
t.play(Path(sys.argv[2]), t.SPEC_A, resume=True, pause=0.02)
"""


def test_a_run_killed_again_and_again_ends_in_equal_files(tmp_path, whole: dict[str, bytes]) -> None:
    path = tmp_path / "run"
    for delay in (0.03, 0.1, 0.13):
        command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
    done = 8 - play(path, SPEC_A, resume=True)
    assert done > 0
    assert _contents(path) == whole


# A whole run renames 15 files into place: its spec, 8 parts, the spec again and 5 final files.
@pytest.mark.parametrize(
    ("count", "when"),
    [*((count, "before") for count in range(1, 16)), (1, "after"), (9, "after"), (15, "after")],
)
def test_a_death_at_any_rename_leaves_a_run_to_resume(
    tmp_path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes], count: int, when: str
) -> None:
    class Death(BaseException):
        pass

    calls = 0
    replace = os.replace
    half_written: dict[Path, bytes] = {}

    def dying(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == count and when == "before":
            half_written[Path(source)] = Path(source).read_bytes()[:-5]
            raise Death
        replace(source, target)
        if calls == count:
            raise Death

    with monkeypatch.context() as patch:
        patch.setattr("stau_rl.atomic.os.replace", dying)
        with pytest.raises(Death):
            play(tmp_path, SPEC_A, resume=True)
    # An exception tidies up on its way, a killed process does not.
    for path, content in half_written.items():
        path.write_bytes(content)
    (tmp_path / LOCK).touch()
    play(tmp_path, SPEC_A, resume=True)
    (tmp_path / LOCK).unlink(missing_ok=True)
    assert _contents(tmp_path) == whole


def test_a_death_while_parts_are_removed_leaves_a_finished_run(tmp_path, whole: dict[str, bytes]) -> None:
    play(tmp_path, SPEC_A, resume=False)
    (tmp_path / PARTS).mkdir()
    (tmp_path / PARTS / "0-000000000000000.npz").write_bytes(b"left over")
    assert play(tmp_path, SPEC_A, resume=True) == 0
    assert _contents(tmp_path) == whole


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
    assert _contents(tmp_path) == {"file": b"old"}
    with whole_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert _contents(tmp_path) == {"file": b"new"}


def test_a_failed_figure_leaves_the_parts(tmp_path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes]) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("stau_rl.plotting.save_figure", fail)
        with pytest.raises(ValueError, match="No space left"):
            play(tmp_path, SPEC_A, resume=False)
    assert len(list((tmp_path / PARTS).iterdir())) == 8
    assert not (tmp_path / "regret.png").exists()
    assert play(tmp_path, SPEC_A, resume=True) == 0
    assert _contents(tmp_path) == whole


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

    monkeypatch.setattr("stau_rl.lock.fcntl.flock", late)
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
