"""The command line without tyro: the same commands, read by the standard library's parser."""

import subprocess
import sys
from pathlib import Path

import pytest

from stau_rl.cli.plain import read_command
from stau_rl.cli.plateau import Plateau
from stau_rl.cli.regret import Regret
from stau_rl.cli.speed import Speed

COMMANDS = {"regret": Regret, "plateau": Plateau, "speed": Speed}


def read(*words: str) -> object:
    return read_command(COMMANDS, "stau-rl", "what it is for", words)


def test_defaults_are_those_of_the_command() -> None:
    assert read("regret") == Regret()
    assert read("speed") == Speed()


def test_every_kind_of_option() -> None:
    found = read(
        *("regret", "--policy", "ucb1", "--policy", "random", "--horizon", "1e3", "--out", "runs/x", "--resume"),
        *("--baseline", "random"),
    )
    assert found == Regret(policy=("ucb1", "random"), horizon=1000, out=Path("runs/x"), resume=True, baseline="random")
    assert read("speed", "--arms", "2", "1e1", "--no-keep", "--limit", "3") == Speed(
        arms=(2, 10), keep=False, limit=3.0
    )
    assert read("plateau", "--step-size", "0.5", "--arms", "1e1") == Plateau(step_size=(0.5,), arms=(10,))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["regret", "--horizon", "1e-3"], "--horizon: must be a whole number such as 10000 or 1e4, got '1e-3'"),
        (["regret", "--nothing"], "unrecognized arguments: --nothing"),
        (["regrets"], "invalid choice: 'regrets'"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_mistakes_are_named(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        read(*words)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_help_has_the_text_of_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("speed", "--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "Timed runs of each, after two that compile and warm up." in shown


def test_the_command_runs_where_tyro_is_missing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['tyro'] = None\n"
        "from stau_rl.cli.main import main\n"
        "main(['heads', '--scores', '0.3,-1.2', '--head', 'softmax(beta=4)'])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "0.9975" in run.stdout
