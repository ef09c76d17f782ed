"""A benchmark in a directory: loaded, resumed after a kill to the same bytes, refused to other specs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_array_equal

from stau_rl.regret import run as runner
from stau_rl.regret.result import RegretResult
from stau_rl.regret.run import run_regret

POLICIES = ["centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)", "ucb1", "random"]


def _run(policies: list[str] | None = None, **changes: Any) -> RegretResult:
    given: dict[str, Any] = {"arms": "bernoulli(k=3)", "horizon": 60, "instances": 40, "engine": "torch"}
    return run_regret(policies=policies or POLICIES, **{**given, **changes})


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    result = _run(out=tmp_path / "run", seed=7)
    loaded = RegretResult.load(tmp_path / "run")
    again = _run(out=tmp_path / "run", seed=7, resume=True)
    for other in (loaded, again):
        assert other.spec == result.spec
        for name in ("regret", "optimal", "late_optimal", "pulls", "best_mean"):
            assert_array_equal(getattr(other, name), getattr(result, name))


SPEC = {
    "arms": "gaussian(k=4)",
    "policies": POLICIES,
    "horizon": 600,
    "instances": 60,
    "seed": 3,
    "engine": "torch",
}
SCRIPT = """
import sys
from stau_rl.regret import plan
from stau_rl.regret.run import run_regret
plan.SMALLEST_PART = plan.LARGEST_PART = 10
run_regret(**{spec!r}, out=sys.argv[1], resume="resume" in sys.argv)
"""


def _script(out: Path, *words: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(Path(runner.__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(spec=SPEC), str(out), *words],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
    )


def _files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stau_rl.regret.plan.SMALLEST_PART", 10)
    monkeypatch.setattr("stau_rl.regret.plan.LARGEST_PART", 10)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = _script(killed)
    try:
        deadline = time.monotonic() + 120
        while len(list(killed.glob("parts/[!.]*.npz"))) < 8:
            assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    # 24 parts in all: it stood in the second policy or later, and was not done.
    assert 8 <= len(list(killed.glob("parts/[!.]*.npz"))) < 24
    assert not (killed / "summary.csv").exists()

    before = _files(killed)
    with pytest.raises(ValueError, match=r"holds an unfinished run of this spec; pass --resume to continue it"):
        run_regret(**SPEC, out=killed)
    with pytest.raises(ValueError, match=r"holds a run of another spec: seed is 3 there, 4 was asked for"):
        run_regret(**{**SPEC, "seed": 4}, out=killed, resume=True)
    assert _files(killed) == before

    played: list[str] = []
    resumed = run_regret(**SPEC, out=killed, resume=True, report=lambda text, done, total: played.append(text))
    run_regret(**SPEC, out=whole)
    found, expected = _files(killed), _files(whole)
    assert set(found) == set(expected) >= {"spec.json", "checkpoints.parquet", "instances.parquet", "summary.csv"}
    assert [name for name in found if found[name] != expected[name]] == ["timing.json"]
    assert not (killed / "parts").exists()
    assert set(played) == set(POLICIES)
    assert_array_equal(resumed.regret, RegretResult.load(whole).regret)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seed": 1}, "seed is 0 there, 1 was asked for"),
        ({"horizon": 61}, "horizon is 60 there, 61 was asked for"),
        ({"instances": 41}, "instances is 40 there, 41 was asked for"),
        ({"arms": "bernoulli(k=4)"}, "arms is "),
        ({"policies": POLICIES[:2]}, "length of policies is 4 there, 2 was asked for"),
        ({"checkpoints": [60]}, "checkpoints"),
        ({"dtype": "float32"}, "engines"),
    ],
)
def test_a_directory_of_another_spec_is_refused_untouched(changes: dict[str, Any], field: str, tmp_path: Path) -> None:
    _run(out=tmp_path)
    before = _files(tmp_path)
    with pytest.raises(ValueError, match=r"another spec: .*" + field):
        _run(**{**changes, "out": tmp_path, "resume": True})
    with pytest.raises(ValueError, match=r"holds a finished run of this spec; pass --resume to load it"):
        _run(out=tmp_path)
    assert _files(tmp_path) == before


def test_other_observations_under_the_same_name_are_another_spec(tmp_path: Path) -> None:
    file = tmp_path / "rewards.csv"
    file.write_text("arm,reward\na,1\nb,2\n")
    arms = f"empirical(file={str(file)!r}, arm=arm, reward=reward)"
    _run(arms=arms, out=tmp_path / "run")
    file.write_text("arm,reward\na,1\nb,3\n")
    with pytest.raises(ValueError, match="holds a run of another spec"):
        _run(arms=arms, out=tmp_path / "run", resume=True)
