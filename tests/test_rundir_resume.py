"""Run directories are resumed to equal bytes after a kill at any moment and with any damaged part."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from rundir_cases import KILLED, SIZE, SPEC_A, contents, play, simulate
from stau_rl.files.lock import LOCK
from stau_rl.kernels.contract import Block
from stau_rl.regret.directory import PARTS, RunDirectory


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("whole") / "run"
    assert play(path, SPEC_A, resume=False) == 8
    return contents(path)


def test_the_same_spec_needs_resume(tmp_path, whole: dict[str, bytes]) -> None:
    RunDirectory.open(tmp_path, SPEC_A).close()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"an unfinished run of this spec; pass --resume to continue"):
        RunDirectory.open(tmp_path, SPEC_A)
    assert contents(tmp_path) == before
    assert play(tmp_path, SPEC_A, resume=True) == 8
    with pytest.raises(ValueError, match=r"a finished run of this spec; pass --resume to load"):
        RunDirectory.open(tmp_path, SPEC_A)
    assert play(tmp_path, SPEC_A, resume=True) == 0
    assert contents(tmp_path) == whole


def test_what_only_describes_a_run_may_change(tmp_path, whole: dict[str, bytes]) -> None:
    spec = SPEC_A | {"baseline": SPEC_A["policies"][1], "commit": "abc", "versions": {"numpy": "9"}}
    RunDirectory.open(tmp_path, spec).close()
    play(tmp_path, SPEC_A, resume=True)
    # Files tell of the spec that finished the run.
    assert contents(tmp_path) == whole


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
    assert contents(tmp_path) == whole


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
    assert contents(path) == whole


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
        patch.setattr("stau_rl.files.whole.os.replace", dying)
        with pytest.raises(Death):
            play(tmp_path, SPEC_A, resume=True)
    # An exception tidies up on its way, a killed process does not.
    for path, content in half_written.items():
        path.write_bytes(content)
    (tmp_path / LOCK).touch()
    play(tmp_path, SPEC_A, resume=True)
    (tmp_path / LOCK).unlink(missing_ok=True)
    assert contents(tmp_path) == whole


def test_a_death_while_parts_are_removed_leaves_a_finished_run(tmp_path, whole: dict[str, bytes]) -> None:
    play(tmp_path, SPEC_A, resume=False)
    (tmp_path / PARTS).mkdir()
    (tmp_path / PARTS / "0-000000000000000.npz").write_bytes(b"left over")
    assert play(tmp_path, SPEC_A, resume=True) == 0
    assert contents(tmp_path) == whole


def test_a_failed_figure_leaves_the_parts(tmp_path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, bytes]) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("stau_rl.regret.plot.save_figure", fail)
        with pytest.raises(ValueError, match="No space left"):
            play(tmp_path, SPEC_A, resume=False)
    assert len(list((tmp_path / PARTS).iterdir())) == 8
    assert not (tmp_path / "regret.png").exists()
    assert play(tmp_path, SPEC_A, resume=True) == 0
    assert contents(tmp_path) == whole
