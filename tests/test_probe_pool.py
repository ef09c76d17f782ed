"""A probe in several processes: the files of one process, and what is kept when it is stopped or something fails."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from stau_rl.cli.main import main
from stau_rl.files.finished import TIMING
from stau_rl.plugin.load import load_plugins
from stau_rl.probe import pool
from stau_rl.probe.folder import GROUPS
from stau_rl.probe.group import split
from stau_rl.probe.model import Shape
from stau_rl.probe.plan import MORE, Setting, plan
from stau_rl.probe.run import run_settings
from stau_rl.probe.train import Recipe

TINY = Recipe(steps=3, batch=8, warm_up=1)
SETTINGS = [
    Setting("silence", "silence(pairs=2, keys=5, values=3)", ("sm_fir", "pn_fir_tau"), (0, 1), Shape(8), TINY, 64),
    Setting("length", "passkey(places=4)", ("softmax",), (0, 1), Shape(8, positions="none"), TINY, 64, (2, 4)),
]
# A head that is sound in this process, and does something else where it is trained in another.
HEAD = '''
import multiprocessing
import os

from stau_rl.plugin import head


@head("{name}")
def misbehaves(scores):
    """|s|"""
    if multiprocessing.parent_process() is not None:
        {act}
    return scores.abs().log()
'''


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (TIMING, ".lock")
    }


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files that one process writes."""
    out = tmp_path_factory.mktemp("probe") / "run"
    run_settings(SETTINGS, out=out)
    return files_of(out)


def test_two_processes_write_the_files_of_one(one: dict[str, bytes], tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    run_settings(SETTINGS, out=tmp_path / "two", report=lambda *now: told.append(now), processes=2)
    assert len(one) == 3 * 2 + 3 + 6
    assert files_of(tmp_path / "two") == one
    groups = split(SETTINGS, torch.device("cpu"))
    assert sorted(title for title, _, _ in told) == sorted(group.title for group in groups)
    assert [(done, total) for _, done, total in told] == [(4, 4)] * 3


def test_a_stop_keeps_what_is_done_and_the_rest_follows(one: dict[str, bytes], tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_settings(SETTINGS, out=out, report=stop, processes=2)
    (kept,) = (out / GROUPS).glob("*.csv")
    before = kept.stat().st_mtime_ns
    run_settings(SETTINGS, out=out, resume=True)
    assert kept.stat().st_mtime_ns == before
    assert files_of(out) == one


@pytest.mark.parametrize(
    ("name", "act", "message"),
    [
        ("raises_elsewhere", 'raise RuntimeError("no luck\\nat all")', r"failed \(.*RuntimeError: no luck\); finished"),
        ("dies_elsewhere", "os.kill(os.getpid(), 9)", "a worker process of the probe was killed"),
    ],
)
def test_what_fails_is_one_line(tmp_path: Path, name: str, act: str, message: str) -> None:
    plugin = tmp_path / f"{name}.py"
    plugin.write_text(HEAD.format(name=name, act=act), encoding="utf-8")
    load_plugins([plugin])
    heads = ("softmax", f"attention(head={name})")
    setting = Setting("silence", "silence(pairs=2, keys=5, values=3)", heads, (0,), Shape(8), TINY, 64)
    with pytest.raises(ValueError, match=message) as caught:
        run_settings([setting], out=tmp_path / "run", plugins=[plugin], processes=2)
    assert "\n" not in str(caught.value)
    assert "--resume" in str(caught.value)


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    plugin = tmp_path / "waits.py"
    note = f'open({str(tmp_path)!r} + f"/{{os.getpid()}}.pid", "w").close(); import time; time.sleep(600)'
    plugin.write_text(HEAD.format(name="waits_elsewhere", act=note), encoding="utf-8")
    head = ["--normaliser", "attention(head=waits_elsewhere)"]
    command = [sys.executable, "-m", "stau_rl", "probe", "--plugin", str(plugin), *head, "--task", "silence"]
    command += ["--task", "recall", "--device", "cpu", "--processes", "2", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}) as parent:
        try:
            wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        finally:
            parent.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(alive(int(path.stem)) for path in tmp_path.glob("*.pid")))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def alive(process: int) -> bool:
    """Whether a process runs; one that ended and is not yet collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_the_whole_plan_is_cut_into_pieces_of_like_work() -> None:
    settings = plan("full", 5)
    assert len(settings) == 27
    pieces = split(settings, torch.device("cuda"))
    assert all(len(piece.normalisers) <= 9 for piece in pieces)
    many = [piece for piece in pieces if piece.part == MORE]
    assert [piece.seeds for piece in many] == [tuple(range(40))]
    assert all(piece.seeds == (0, 1, 2, 3, 4) for piece in pieces if piece not in many)
    for setting in settings:
        mine = [piece for piece in pieces if (piece.part, piece.task) == (setting.part, setting.task)]
        assert tuple(name for piece in mine for name in piece.normalisers) == setting.normalisers
    # Eight processes are kept busy: the longest piece is far shorter than an eighth of all.
    assert max(piece.work for piece in pieces) * 8 * 2 < sum(piece.work for piece in pieces)
    assert sum(piece.work for piece in pieces) == sum(setting.work for setting in settings)


def test_pieces_are_alike_in_size() -> None:
    setting = Setting("sweep", "recall", tuple(f"pn_fir_tau(p={p})" for p in range(2, 12)), (0,))
    assert [len(piece.normalisers) for piece in setting.groups(9)] == [5, 5]
    assert [len(piece.normalisers) for piece in setting.groups(4)] == [3, 3, 4]
    assert setting.groups(10) == [setting]


def test_processes_must_be_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["probe", "--task", "silence", "--device", "cpu", "--processes", "0", "--out", str(tmp_path / "run")])
    assert "processes must be at least 1, got 0" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_group_waits_for_memory_that_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def fails_twice(*_: object) -> str:
        tries.append(len(tries))
        if len(tries) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"

    monkeypatch.setattr(pool, "train_group", fails_twice)
    monkeypatch.setattr(pool, "_PAUSE", 0.0)
    monkeypatch.setattr(pool, "memory_of_others", lambda device: True)
    assert pool._play(None, "x", "cpu")[0] == "done"  # type: ignore[arg-type]
    assert tries == [0, 1, 2]
    # Alone on its GPU it does not fit, and says so at once.
    tries.clear()
    monkeypatch.setattr(pool, "memory_of_others", lambda device: False)
    with pytest.raises(torch.OutOfMemoryError):
        pool._play(None, "x", "cpu")  # type: ignore[arg-type]
    assert tries == [0]
