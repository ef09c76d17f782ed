"""Compiled code on the disk: a damaged or foreign one is built anew, never run."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms import parse_arms
from stau_rl.kernels.contract import EngineError
from stau_rl.kernels.cpu import cache, codegen
from stau_rl.kernels.cpu.loop import simulate
from stau_rl.kernels.engines import choose_engine
from stau_rl.regret.arm_table import arm_table

ARMS = arm_table(parse_arms("bernoulli(means=[0.25, 0.75])"), 0, 0, 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def play_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Play the uniform policy as a new process would, with this folder; the pulls."""
    monkeypatch.setattr(codegen, "_cache_folder", lambda: folder)
    monkeypatch.setattr("numba.config.CACHE_DIR", "")

    def play() -> Any:
        cache._SEEN.clear()
        monkeypatch.setattr("stau_rl.kernels.cpu.loop.load_loop", lambda spec: loaded.append(load(spec)) or loaded[-1])
        options = {"seed": 0, "first_instance": 0, "horizon": 5, "checkpoints": np.array([5])}
        return simulate(parse_policy("random"), ARMS, **options).pulls, loaded[-1].stats

    loaded: list[Any] = []
    load = codegen.load_loop.__wrapped__
    return play


def _compiled(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nb[ic]"))


def _break(file: Path, how: str) -> None:
    content = file.read_bytes()
    file.write_bytes({"truncated": content[:50], "changed": content[:-1] + b"x"}[how])


@pytest.mark.parametrize(("ending", "how"), [(".nbi", "truncated"), (".nbc", "changed")])
def test_a_damaged_cache_is_built_anew(play_once: Any, folder: Path, ending: str, how: str) -> None:
    pulls, _ = play_once()
    first = {file.name: file.read_bytes() for file in _compiled(folder)}
    again, stats = play_once()
    assert (sum(stats.cache_hits.values()), sum(stats.cache_misses.values())) == (1, 0)
    for file in _compiled(folder):
        if file.suffix == ending:
            _break(file, how)
    anew, stats = play_once()
    assert (sum(stats.cache_hits.values()), sum(stats.cache_misses.values())) == (0, 1)
    assert set(first) == {file.name for file in _compiled(folder)}
    assert (again == pulls).all()
    assert (anew == pulls).all()


def test_anothers_text_under_our_name_is_not_run(play_once: Any, folder: Path) -> None:
    pulls, _ = play_once()
    (file,) = folder.glob("stau_rl_loop_*.py")
    own = file.read_bytes()
    file.write_text("raise SystemError('run')\ndef play(*a): pass\n")
    again, _ = play_once()
    assert file.read_bytes() == own
    assert (again == pulls).all()


def test_a_seal_holds_the_digests(play_once: Any, folder: Path) -> None:
    play_once()
    (seal,) = folder.glob("*.seal")
    expected = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in _compiled(folder)}
    assert json.loads(seal.read_text()) == expected
    assert len(expected) == 2


def test_a_link_in_the_place_of_a_text_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("theirs")
    (tmp_path / "a.py").symlink_to(tmp_path / "other.py")
    cache.put_text(tmp_path / "a.py", "ours")
    assert (tmp_path / "other.py").read_text() == "theirs"
    assert (tmp_path / "a.py").read_text() == "ours"


def test_a_compiler_that_is_switched_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    choice = choose_engine(parse_policy("ucb | softmax"), ARMS, 10, device="cpu")
    assert (choice.engine.name, choice.note) == ("torch", "engine 'numba' compiles, which NUMBA_DISABLE_JIT=1 forbids")
    with pytest.raises(EngineError, match="NUMBA_DISABLE_JIT=1 forbids; unset it, or engine='torch' runs it"):
        choose_engine(parse_policy("ucb | softmax"), ARMS, 10, engine="numba")
