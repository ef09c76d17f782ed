"""How far a run is: lines for a log where there is no terminal, and a word where there is nothing to resume."""

from pathlib import Path
from typing import Any

import pytest

from stau_rl.checks import coverage
from stau_rl.cli.main import main
from stau_rl.terminal import progress
from stau_rl.terminal.progress import nothing_yet, progress_bar, settings_bar, status_line, steps_bar

POLICIES = ["--policy", "ucb1", "--policy", "thompson"]
COMMANDS = {
    "regret": ["--arms", "bernoulli(k=2)", "--horizon", "20", "--instances", "8", *POLICIES],
    "study": [
        *("--family", "ucb1", "--family", "thompson", "--arms", "bernoulli(k=2)"),
        *("--horizon", "20", "--instances", "8", "--sweep", "none"),
    ],
    "plateau": [
        *("--head", "softmax", "--arms", "3", "--start", "uniform", "--gradient", "exact", "--step-size", "0.4"),
        *("--updates", "20", "--draws", "4", "--tuning-draws", "4"),
    ],
    "probe": ["--task", "recall(pairs=2, keys=5, values=3)", "--device", "cpu", "--normaliser", "softmax"],
    "train": [
        *("--steps", "64", "--processes", "1", "--set", "points=2", "--set", "hidden=8", "--set", "rollout=16"),
        *("--set", "curve_episodes=0", "--set", "episodes=1"),
    ],
    "rl-study": ["--task", "ppo-cartpole", "--processes", "1"],
}  # fmt: skip
ANEW = "--resume: run holds nothing to go on with, so this starts anew\n"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    return clock


def test_lines_come_ten_seconds_apart_at_least(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with settings_bar(4) as report:
        for second in range(41):
            clock.now = 100.0 + second
            report(f"setting {second // 10}", second / 10)
    assert capsys.readouterr().err.splitlines() == [
        "[  10.0 s]  25 %, 1/4 setting 1",
        "[  20.0 s]  50 %, 2/4 setting 2",
        "[  30.0 s]  75 %, 3/4 setting 3",
        "[  40.0 s] 100 %, 4/4 setting 4",
    ]


def test_policies_steps_and_what_has_no_length(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(2) as policies:
        policies("ucb1", 8, 8)
        clock.now += 12
        policies("ucb | softmax(beta=[1])", 2, 8)
    with steps_bar("ppo CartPole-v1", 1000) as steps:
        clock.now += 12
        steps(1200)
    with status_line("compiling") as show:
        show("too soon")
        clock.now += 12
        show("round 2 of 7")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "[  12.0 s]  62 %, 1/2 ucb | softmax(beta=[1])",
        "[  12.0 s] 100 %, 1000/1000 ppo CartPole-v1",
        "[  12.0 s] round 2 of 7",
    ]


def test_pieces_of_one_name_and_pieces_side_by_side_are_counted(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar(4) as report:
        clock.now += 12
        report("base", 3, 3)
        report("base", 0, 1)
        clock.now += 12
        report("base", 5, 10)
        report("base", 1, 1)
        report("left", 1, 2)
        clock.now += 12
        report("right", 1, 4)
    assert capsys.readouterr().err.splitlines() == [
        "[  12.0 s]  25 %, 1/4 base",
        "[  24.0 s]  38 %, 1/4 base",
        "[  36.0 s]  69 %, 2/4 right",
    ]


def test_a_bar_on_a_terminal_has_no_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with settings_bar(2, "it starts anew") as report:
        report("first", 0.5)
        clock.now += 60
        report("first", 1)
    printed = capsys.readouterr().err
    assert "s]" not in printed
    assert printed.count("it starts anew") == 1
    assert "first" in printed


def test_nothing_yet(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "spec.json").touch()
    for out in (tmp_path / "none", empty):
        assert nothing_yet(out, True) == f"--resume: {out} holds nothing to go on with, so this starts anew"
        assert nothing_yet(out, False) == ""
    assert nothing_yet(full, True) == nothing_yet(None, True) == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_long_command_says_how_far_it_is_and_that_it_starts_anew(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    if command == "probe":
        _shorten_the_probe(monkeypatch)
    run = [command, *COMMANDS[command], "--out", "run", "--resume"]
    if command == "rl-study":
        monkeypatch.setattr("stau_rl.rl_study.play.run_rl_study", _stopped_study)
        with pytest.raises(SystemExit):
            main(run)
        lines = capsys.readouterr().err
        assert lines.startswith(ANEW)
        assert "1 %, 3/214 runs\n" in lines
        return
    main(run)
    lines = capsys.readouterr().err
    assert lines.startswith(ANEW)
    assert " s] 100 %, " in lines
    main(run)
    assert "anew" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["regret", "train"])
def test_a_mistake_stays_one_line(command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = {"regret": ["--policy", "ucb3"], "train": ["--seeds", "0"]}
    with pytest.raises(SystemExit) as stop:
        main([command, *COMMANDS[command], *wrong[command], "--out", str(tmp_path / "run"), "--resume"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_simulated_studies_say_how_far_they_are() -> None:
    said: list[str] = []
    coverage.simulate(studies=2, instances=20, truth=20, resamples=10, report=said.append)
    assert "Bernoulli arms: playing 40 instances of centred_ucb | softmax(beta=1)" in said
    assert said[-2:] == ["Bernoulli arms: study 1 of 2", "Bernoulli arms: study 2 of 2"]


def _shorten_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from stau_rl.probe.plan import plan

    def shorter(size: str, seeds: int) -> list[Any]:
        recipe = replace(plan("small", 1)[0].recipe, steps=3, batch=8, warm_up=1)
        return [replace(setting, recipe=recipe, items=64) for setting in plan("small", 1)[:1]]

    monkeypatch.setattr("stau_rl.probe.choose.plan", shorter)


def _stopped_study(*_: Any, report: Any, **__: Any) -> None:
    report("runs", 3, 184)
    raise ValueError("stopped")
