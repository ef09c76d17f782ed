"""The split of a run's time: every moment belongs to one phase, and the parts add up."""

import json
import time

import pytest

from stau_rl.machine.phases import PHASES, Phases, process_age, sentence
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


def test_the_age_of_this_process_counts_what_was_before_the_first_line() -> None:
    before, begun = process_age(), time.perf_counter()
    assert before >= 0.0
    # Ticks are hundredths of a second; where nothing says, both are 0.
    assert process_age() - before <= time.perf_counter() - begun + 0.05


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
