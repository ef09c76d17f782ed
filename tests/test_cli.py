"""The command line: every mistake is one line and exit code 2, and nothing is written; good input gives files."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from stau_rl.agents.bandit import SCORES
from stau_rl.cli.heads import Calibrate, Heads
from stau_rl.cli.main import commands, main
from stau_rl.cli.regret import Regret
from stau_rl.kernels.engines import ENGINES
from stau_rl.regret.report import render, three_digits
from stau_rl.regret.run import run_regret
from stau_rl.terminal.console import wide_console

FILES = {"spec.json", "checkpoints.parquet", "instances.parquet", "summary.csv", "regret.png"}
SIZE = ["regret", "--horizon", "50", "--instances", "20", "--engine", "torch"]
SMALL = [*SIZE, "--arms", "bernoulli(k=3)"]
TWO = ["--policy", "centred_ucb | softmax(beta=1)", "--policy", "centred_ucb | s_tau(tau=5)"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where a default output directory would show."""
    monkeypatch.chdir(tmp_path)


def _tree(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def _fails(arguments: list[str], capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    before = _tree(folder)
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert _tree(folder) == before
    return printed.err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--policy", "tompson"], "unknown policy 'tompson'; did you mean 'thompson'?"),
        (
            ["--policy", "ucb | sofmax"],
            "unknown head 'sofmax'; did you mean 'softmax'? (a head of your own is loaded with --plugin FILE)",
        ),
        (["--policy", "centerd_ucb | softmax"], "unknown score 'centerd_ucb'; did you mean 'centred_ucb'?"),
        (["--policy", "ucb | s_tau(tau=0.5)"], "s_tau: tau must be finite and >= 1, got 0.5"),
        (["--policy", "ucb | softmax(beta=nan)"], "softmax: beta must be finite and >= 0, got nan"),
        (["--policy", "ucb | softmax(beta=1"], "cannot read policy 'ucb | softmax(beta=1'"),
        (["--policy", "ucb |"], "cannot read policy 'ucb |'"),
        (["--policy", "ucb1", "--policy", "ucb1"], "policy 'ucb1' is given twice"),
        (["--arms", "bernoulli(means=[0.5, 1.5])"], "means must lie in [0, 1], got 1.5 for arm 1"),
        (["--arms", "bernoulli(means=[-0.5])"], "means must lie in [0, 1], got -0.5 for arm 0"),
        (["--arms", "bernoulli(k=0)"], "k must be in 1..1024, got 0"),
        (["--arms", "bernoulli(k=-2)"], "k must be in 1..1024, got -2"),
        (["--arms", "bernouli(k=2)"], "unknown set of arms 'bernouli'; did you mean 'bernoulli'?"),
        (["--horizon", "0"], "horizon must be a whole number in [1, 4294967296], got 0"),
        (["--horizon", "-5"], "horizon must be a whole number in [1, 4294967296], got -5"),
        (["--instances", "0"], "instances must be a whole number in [1, 1099511627776], got 0"),
        (["--instances", "-1"], "instances must be a whole number in [1, 1099511627776], got -1"),
        (["--seed", "-1"], "seed must be an integer in [0, 2^64), got -1"),
        (["--arm", "name"], "give the file with --rewards FILE"),
        (["--reward", "score"], "give the file with --rewards FILE"),
        (["--engine", "jax"], "unknown engine 'jax'; known: auto, triton, numba, torch"),
        (["--device", "tpu"], "unknown device 'tpu'; known: auto, cpu, cuda, cuda:N"),
        (["--device", "cuda:99"], "device 'cuda:99' is not there"),
        (["--baseline", "thompson"], "baseline 'thompson' is not among the policies"),
        (["--baseline", "tompson"], "unknown policy 'tompson'; did you mean 'thompson'?"),
        (["--resume"], "--resume needs --out DIR, the directory of the run to continue"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("out", [[], ["--out", "run"]], ids=["", "out"])
def test_a_mistake_is_one_line(
    extra: list[str], message: str, out: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "--resume" in extra and out:
        pytest.skip("with --out it is no mistake")
    error = _fails([*SMALL, *(TWO if "--policy" not in extra else []), *extra, *out], capsys, tmp_path)
    assert error.startswith("stau-rl: error: ")
    assert message in error
    assert error.count("\n") == 1
    assert error.endswith("\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_empty_arms_are_not_the_usual_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = _fails([*SIZE, "--arms", "", "--policy", "random", "--out", "run"], capsys, tmp_path)
    assert error == "stau-rl: error: set of arms must be a non-empty text, got ''\n"


@pytest.mark.parametrize(("module", "whole"), [("gymnasium.spaces", False), ("stau_rl.nowhere", True), (None, True)])
def test_a_package_that_is_not_installed_is_named(
    module: str | None,
    whole: bool,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: object) -> None:
        raise ModuleNotFoundError("No module", name=module)

    monkeypatch.setattr(Regret, "run", missing)
    if whole:
        with pytest.raises(ModuleNotFoundError):
            main(["regret"])
    else:
        message = "stau-rl: error: this needs the package gymnasium.spaces, which is not installed; pip install it\n"
        assert _fails(["regret"], capsys, tmp_path) == message


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = _fails([*SMALL, "--device", "cuda", "--out", "run"], capsys, tmp_path)
    pattern = r"stau-rl: error: device 'cuda' is not there: torch sees 0 CUDA devices \(no GPU is used: .+\); use cpu\n"
    assert re.fullmatch(pattern, error)


@pytest.mark.parametrize(
    "arguments",
    [
        ["regret", "--horizon", "ten"],
        ["regret", "--horizon", "1.5"],
        ["analyse", "scores.npz", "--masked-below", "few"],
        ["regret", "--instances"],
        ["regret", "--polcy", "ucb1"],
        ["calibrate"],
        ["bandit"],
        [],
    ],
    ids=" ".join,
)
def test_words_that_do_not_fit_an_option(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    error = _fails(arguments, capsys, tmp_path)
    assert error != ""
    assert "None" not in error, "the insides of an option that may be left out"


BAD_FILES: list[tuple[str | None, str]] = [
    (None, "does not exist"),
    ("", "is empty"),
    ("arm,reward\n", "has no rows"),
    ("arm,value\na,1\n", "has no column 'reward'; it has 'arm', 'value'"),
    ("arm,reward\na,1\nb,good\n", "row 2 of column 'reward' in 'obs.csv' must be a finite number, got 'good'"),
    ("arm,reward\na,nan\nb,1\n", "row 1 of column 'reward' in 'obs.csv' must be a finite number, got 'nan'"),
    ("arm,reward\na,1\nb,2\nc,inf\n", "row 3 of column 'reward' in 'obs.csv' must be a finite number, got 'inf'"),
    ("arm,reward\n,1\n", "row 1 of column 'arm' in 'obs.csv' names no arm"),
    ("arm,reward\na,1,2\n", "cannot read rewards file 'obs.csv'"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES, ids=[message[:30] for _, message in BAD_FILES])
def test_a_bad_rewards_file(text: str | None, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "obs.csv").write_text(text)
    columns = ["--rewards", "obs.csv", "--arm", "arm", "--reward", "reward"]
    error = _fails([*SIZE, *TWO, *columns, "--out", "run"], capsys, tmp_path)
    assert error.startswith("stau-rl: error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("columns", [[], ["--arm", "a"], ["--reward", "r"]])
def test_rewards_need_both_columns(columns: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = _fails([*SIZE, "--rewards", "obs.csv", *columns], capsys, tmp_path)
    assert error == "stau-rl: error: --rewards FILE needs --arm COLUMN and --reward COLUMN\n"


def test_output_that_is_not_free_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main([*SMALL, *TWO, "--out", "run"])
    other = _fails([*SMALL, *TWO, "--seed", "1", "--out", "run", "--resume"], capsys, tmp_path)
    assert "holds a run of another spec: seed is 0 there, 1 was asked for; name another directory" in other
    again = _fails([*SMALL, *TWO, "--out", "run"], capsys, tmp_path)
    assert "holds a finished run of this spec; pass --resume to load it" in again
    (tmp_path / "file").write_text("mine")
    assert "run directory file is a file" in _fails([*SMALL, *TWO, "--out", "file"], capsys, tmp_path)
    assert "error" in _fails([*SMALL, *TWO, "--out", "file/below"], capsys, tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    foreign = _fails([*SMALL, *TWO, "--out", "mine", "--resume"], capsys, tmp_path)
    assert "holds files that are no run of stau-rl (notes.txt)" in foreign
    for error in (other, again, foreign):
        assert error.count("\n") == 1


def test_a_small_run_prints_the_table_and_makes_the_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main([*SMALL, *TWO, "--policy", "centred_ucb | softmax(beta=3.607)", "--policy", "ucb1", "--out", "run"])
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "Pseudo-regret after 50 steps on bernoulli(k=3), 20 instances, seed 0",
        "centred_ucb | s_tau(tau=5)",
        "Raw: against centred_ucb | softmax(beta=1). Matched: against the softmax that is equally steep at score 0.",
        "its log-weights are 3.61 times as steep as the baseline's",
        "centred_ucb | softmax(beta=3.607), which is equally steep",
        "Engine: torch cpu float64.",
        "run",
    ):
        assert text in printed
    assert {file.name for file in (tmp_path / "run").iterdir()} == FILES | {"timing.json"}
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]
    main(
        [*SMALL, *TWO, "--policy", "centred_ucb | softmax(beta=3.607)", "--policy", "ucb1", "--out", "run", "--resume"]
    )
    assert "Pseudo-regret after 50 steps" in capsys.readouterr().out


def test_without_out_a_new_directory_is_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main([*SMALL, "--policy", "ucb1"])
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("regret-")
    assert {file.name for file in run.iterdir()} >= FILES
    assert run.name in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes",
    [
        ["--instances", "1"],
        ["--horizon", "1"],
        ["--arms", "bernoulli(k=1)"],
        ["--arms", "gaussian(means=[1, 1])"],
        ["--baseline", "centred_ucb | s_tau(tau=5)"],
    ],
    ids=" ".join,
)
def test_degenerate_runs_print_a_table(changes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([*SMALL, *TWO, *changes, "--out", "run"])
    printed = capsys.readouterr().out
    assert "Pseudo-regret after" in printed
    assert "nan" not in printed
    assert {file.name for file in Path("run").iterdir()} >= FILES


def test_where_there_is_nothing_to_decide_regret_is_0_without_a_percentage(capsys: pytest.CaptureFixture[str]) -> None:
    control = "centred_ucb | softmax(beta=3.607)"
    main([*SMALL, *TWO, "--policy", control, "--arms", "bernoulli(k=1)"])
    printed = " ".join(capsys.readouterr().out.split())
    # Regret, raw, matched, p.
    assert "centred_ucb | s_tau(tau=5) 0 [0, 0] - - 1" in printed
    assert f"comparisons with centred_ucb | softmax(beta=1), {control}, whose regret is 0." in printed


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(0.0123456, "0.0123"), (0.4, "0.4"), (7.006, "7.01"), (99.96, "100"), (999.7, "1000"), (12345.6, "12346")],
)
def test_a_rate_has_three_digits(rate: float, shown: str) -> None:
    assert three_digits(rate) == shown


def test_a_slow_run_has_a_rate(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_regret("bernoulli(k=2)", ["ucb1"], 5, 5, engine="torch")
    result.timing["arm_steps_per_second"] = {"ucb1": 12_345.0}
    wide_console().print(render(result))
    (row,) = [line for line in capsys.readouterr().out.splitlines() if " %" in line and "ucb1" in line]
    assert row.split()[-1] == "0.0123"


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_real_observations(engine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "obs.csv").write_text("when,group,score\n1,red,0.5\n2,blue,2\n3,red,1\n4,blue,1.25\n5,green,-1\n")
    columns = ["--rewards", "obs.csv", "--arm", "group", "--reward", "score", "--engine", engine]
    main([*SIZE, *TWO, *columns, "--out", "run"])
    printed = capsys.readouterr().out
    # Means: blue (2 + 1.25) / 2, green -1, red 0.75.
    assert "3 arms, mean reward of each: blue: 1.625, green: -1, red: 0.75" in printed
    assert "centred_ucb | s_tau(tau=5)" in printed
    assert {file.name for file in (tmp_path / "run").iterdir()} >= FILES


def test_heads_lists_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    from stau_rl.heads import HEADS

    main(["heads"])
    printed = capsys.readouterr().out
    for head in HEADS.values():
        assert str(head()) in printed


def test_heads_shows_weights(capsys: pytest.CaptureFixture[str]) -> None:
    main(["heads", "--scores", "0.3,-1.2,2.0,0"])
    rows = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if "│" in line}
    # softplus_norm: softplus(0.3, -1.2, 2, 0) = 0.8544, 0.2633, 2.1269, 0.6931, over their sum 3.9377.
    for weight in ("0.217", "0.06686", "0.5401", "0.176"):
        assert weight in rows["softplus_norm"]
    assert [cell.strip() for cell in rows["argmax"].split("│")[2:6]] == ["0", "0", "1", "0"]


@pytest.mark.parametrize("command", ["heads", "calibrate"])
@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ("1,two", "--scores must be numbers separated by commas, got 'two'"),
        ("1,,2", "--scores must be numbers separated by commas, got ''"),
        ("1,nan", "--scores must be finite, got 'nan'"),
        ("inf", "--scores must be finite, got 'inf'"),
    ],
)
def test_bad_scores(
    command: str, scores: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert _fails([command, "--scores", scores], capsys, tmp_path) == f"stau-rl: error: {message}\n"


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ("1", "--scores must hold two that differ, or any tau fits, got '1'; add one"),
        ("2,2.0", "--scores must hold two that differ, or any tau fits, got '2,2.0'; add one"),
        ("-900,-1000", "softplus(s) + eps is the same number for all of '-900,-1000' at --eps 1e-08"),
    ],
)
def test_calibrate_refuses_scores_that_any_tau_fits(
    scores: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    error = _fails(["calibrate", f"--scores={scores}"], capsys, tmp_path)
    assert message in error
    assert error.count("\n") == 1


def test_calibrate_prints_both_exponents(capsys: pytest.CaptureFixture[str]) -> None:
    main(["calibrate", "--scores", "0.3,-1.2,2.0,0,1.1", "--eps", "0"])
    printed = capsys.readouterr().out
    # Sixty-digit values: closed form 1.50838942..., least divergence 1.73931277...
    assert "1.50839" in printed
    assert "1.73931" in printed


@pytest.mark.parametrize("command", [Regret, Heads, Calibrate], ids=lambda command: command.__name__.lower())
def test_help_names_every_option(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command.__name__.lower(), "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for field in fields(command):
        assert f"--{field.name}" in printed


@pytest.mark.parametrize("command", list(commands()))
def test_help_says_once_what_holds_where_an_option_is_left_out(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    assert "None" not in printed
    assert "--out PATH" in printed or command in (
        "heads",
        "calibrate",
        "evaluate",
        "problems",
        "policies",
        "arms",
        "speed",
        "status",
    )


def test_help_names_every_score(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["regret", "--help"])
    printed = capsys.readouterr().out
    assert [score for score in SCORES if score not in printed.split("--policy")[-1].split("--plugin")[0]] == []


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    # A line each, in the order in which a newcomer needs them.
    order = (
        *("regret", "problems", "policies", "arms", "study", "heads", "calibrate", "analyse"),
        *("train", "evaluate", "rl-study", "plateau", "probe", "speed", "status"),
    )
    assert re.findall(r"^    ([a-z]\S+)", printed, flags=re.M) == list(order)
    assert "--version" in printed
    assert " ".join(printed.split()).count("?") >= len(order), "each says what question it answers"


@pytest.mark.parametrize("command", ["regret", "study"])
def test_help_names_every_engine(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert [engine for engine in (*ENGINES, "auto") if engine not in printed] == []


def test_a_stop_keeps_what_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from stau_rl.regret import run as regret

    played = regret.RunDirectory.write_part
    stop: Callable[..., None] = _stop_after(2, played)
    monkeypatch.setattr("stau_rl.regret.plan.SMALLEST_PART", 5)
    monkeypatch.setattr("stau_rl.regret.plan.LARGEST_PART", 5)
    with monkeypatch.context() as patch:
        patch.setattr(regret.RunDirectory, "write_part", stop)
        with pytest.raises(SystemExit) as stopped:
            main([*SMALL, *TWO, "--out", "run"])
    assert stopped.value.code == 130
    assert capsys.readouterr().err.endswith(
        "stopped; what is finished is kept: repeat the command with --out run --resume to go on\n"
    )
    assert len(list((tmp_path / "run" / "parts").glob("*.npz"))) == 2
    main([*SMALL, *TWO, "--out", "run", "--resume"])
    assert {file.name for file in (tmp_path / "run").iterdir()} == FILES | {"timing.json"}


def _stop_after(parts: int, write: Callable[..., None]) -> Callable[..., None]:
    calls = 0

    def stop(*arguments: Any) -> None:
        nonlocal calls
        if calls == parts:
            raise KeyboardInterrupt
        calls += 1
        write(*arguments)

    return stop


@pytest.mark.parametrize(
    ("name", "ending"),
    [("regrett", "; did you mean 'regret'?"), ("leaderbord", "; known: regret, problems, policies, arms, ")],
)
def test_a_mistyped_command_gets_a_suggestion(name: str, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([name, "--seeds", "3"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"stau-rl: error: unknown command {name!r}{ending}")
