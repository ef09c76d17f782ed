"""Making a GPU ready beside the imports: only where one can be meant, at once, and never in the way."""

import gc
import threading

import pytest

from stau_rl.machine import wake


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path) -> list[str]:
    """What was started on a machine with a driver."""
    found: list[str] = []
    (tmp_path / "driver").touch()
    monkeypatch.setattr(wake, "DRIVER", tmp_path / "driver")
    monkeypatch.setattr(wake, "_make_context", lambda device: found.append(f"context on {device}"))
    monkeypatch.setattr(wake, "_hash_triton", lambda: found.append("hash"))
    wake.wake_gpu.cache_clear()
    return found


def _wait() -> None:
    for thread in threading.enumerate():
        if thread.name == "stau-rl-wake":
            thread.join()


@pytest.mark.parametrize(
    ("device", "engine", "expected"),
    [
        ("auto", "auto", ["context on cuda", "hash"]),
        ("cuda:1", "triton", ["context on cuda:1", "hash"]),
        ("cuda", "torch", ["context on cuda"]),
        ("auto", "numba", []),
        ("cpu", "auto", []),
        ("tpu", "auto", []),
    ],
)
def test_what_is_made_ready(jobs: list[str], device: str, engine: str, expected: list[str]) -> None:
    wake.wake_gpu(device, engine)
    wake.wake_gpu(device, engine)
    _wait()
    assert sorted(jobs) == expected


def test_nothing_without_a_driver(jobs: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(wake, "DRIVER", tmp_path / "none")
    wake.wake_gpu("auto", "auto")
    _wait()
    assert jobs == []


def test_errors_are_left_to_the_run(jobs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str) -> None:
        jobs.append("tried")
        raise RuntimeError("no such device")

    monkeypatch.setattr(wake, "_make_context", fail)
    wake.wake_gpu("cuda", "torch")
    # An exception that got out would be a warning of the thread, and so an error here.
    _wait()
    assert jobs == ["tried"]


def test_imports_are_not_searched_for_cycles() -> None:
    assert gc.isenabled()
    try:
        with wake.uncollected():
            assert not gc.isenabled()
        assert gc.isenabled()
        with pytest.raises(ImportError), wake.uncollected():
            raise ImportError
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    gc.disable()
    try:
        with wake.uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()
