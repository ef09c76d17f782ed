"""The pool of worker processes: they end with their parent, and name what went wrong."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stau_rl import run_rl_study, train
from stau_rl.machine.pool import UNGUARDED, WorkerPool
from stau_rl.probe.run import run_probe

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
# A worker that notes its number, and then holds Python's lock in one long call.
HOLDS = """
import ctypes, os, sys, time
from stau_rl.machine.pool import WorkerPool

def hold(folder):
    open(f"{folder}/{os.getpid()}.pid", "w").close()
    ctypes.PyDLL(None).sleep(600)

if __name__ == "__main__":
    with WorkerPool(2, print) as pool:
        for future in [pool.submit(hold, sys.argv[1]) for _ in range(2)]:
            future.result()
"""
UNGUARDED_SCRIPT = """
from stau_rl.machine.pool import WorkerPool
try:
    with WorkerPool(2, print) as pool:
        pool.result(pool.submit(abs, -1))
except ValueError as error:
    print(error)
"""


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def alive(process: int) -> bool:
    """Whether a process runs; one that ended and is not yet collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")
def test_workers_end_with_a_killed_parent_whatever_they_do(tmp_path):
    """Each is in a call that never lets a thread of its own run; only the kernel can end it."""
    script = tmp_path / "holds.py"
    script.write_text(HOLDS)
    with subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=ENVIRONMENT) as parent:
        try:
            wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2, 120)
        finally:
            parent.send_signal(signal.SIGKILL)
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_for(lambda: not any(map(alive, workers)), 5)


def test_a_script_without_its_guard_is_told_so(tmp_path):
    """In one line: no traceback of the workers."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED_SCRIPT)
    run = subprocess.run([sys.executable, str(script)], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert "put it under if __name__ == '__main__':" in run.stdout
    assert run.stdout.count("\n") == 1
    assert run.stderr == ""


@pytest.mark.parametrize(
    "call",
    [
        lambda out: train("ppo", out=out),
        lambda out: run_rl_study(out=out),
        lambda out: run_probe([], out=out, processes=2),
        lambda out: WorkerPool(1, abs),
    ],
    ids=["train", "rl_study", "probe", "pool"],
)
def test_a_worker_that_reads_the_script_does_none_of_its_work(call, tmp_path, monkeypatch):
    """Not even the folder is looked at, whose lock or content would be another error."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(SystemExit) as stop:
        call(tmp_path / "out")
    assert stop.value.code == UNGUARDED
    assert not (tmp_path / "out").exists()


def test_a_killed_worker_is_told(tmp_path):
    with WorkerPool(1, abs, (1,), "training") as pool:
        future = pool.submit(os.kill, 0, 0)
        assert pool.result(future) is None
        future = pool.submit(os._exit, 7)
        with pytest.raises(ValueError, match="a worker process of the training was killed"):
            pool.result(future)


def test_leaving_by_an_error_ends_the_workers_at_once():
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - begun < 120


def interrupted():
    with WorkerPool(1, abs, (1,)) as pool:
        pool.submit(abs, -1).result()
        pool.submit(time.sleep, 600)
        raise KeyboardInterrupt
