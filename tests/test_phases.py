"""The split of a run's time: every moment belongs to one phase, and the parts add up."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stau_rl.machine.phases import PHASES, Phases, sentence
from stau_rl.regret.run import run_regret


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_every_moment_belongs_to_one_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    phases = Phases(since=3.0)
    clock.now += 2.0
    with phases.inside("files"):
        clock.now += 4.0
        with phases.inside("plot"):
            clock.now += 8.0
        clock.now += 16.0
    clock.now += 32.0
    assert phases.enter("kernels") == "start"
    clock.now += 64.0
    found = phases.seconds()
    assert found == {"start": 37.0, "kernels": 64.0, "statistics": 0.0, "files": 20.0, "plot": 8.0}
    assert (
        sentence(found) == "kernels 64.0 s, everything else 65.0 s (start 37.0, statistics 0.0, files 20.0, plot 8.0)"
    )


def test_what_a_shell_did_before_it_became_this_process_does_not_count() -> None:
    code = (
        "import time; begun = time.perf_counter(); from stau_rl.machine.phases import work_age; time.sleep(0.05); "
        "age = work_age(); print(age, time.perf_counter() - begun)"
    )
    command = ["sh", "-c", 'sleep 0.3; exec "$0" -c "$1"', sys.executable, code]
    run = subprocess.run(command, cwd=Path(__file__).resolve().parents[1], capture_output=True, text=True, check=True)
    age, here = map(float, run.stdout.split())
    assert 0.05 <= age <= here


@pytest.mark.parametrize("kept", [False, True])
def test_a_run_tells_its_split(kept: bool, tmp_path) -> None:
    out = tmp_path / "run" if kept else None
    begun = time.perf_counter()
    result = run_regret("bernoulli(k=2)", ["random", "ucb1"], 20, 50, out=out, phases=Phases(since=1000.0))
    took = 1000.0 + time.perf_counter() - begun
    split = result.timing["phases"]
    assert tuple(split) == PHASES
    assert min(split.values()) >= 0.0
    assert split["kernels"] >= sum(result.timing["seconds"].values()) > 0.0
    assert sum(split.values()) == pytest.approx(result.timing["total_seconds"])
    assert 1000.0 < result.timing["total_seconds"] <= took
    if out is not None:
        assert split["plot"] > 0.0
        assert json.loads((out / "timing.json").read_text())["phases"] == split
