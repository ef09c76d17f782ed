"""Counts on the command line: 1e4 is ten thousand for every option that counts; 1.5 is a mistake that names the fix."""

from argparse import ArgumentTypeError
from typing import Any

import pytest

from stau_rl.cli.main import main
from stau_rl.cli.plateau import Plateau
from stau_rl.cli.probe import Probe
from stau_rl.cli.regret import Regret
from stau_rl.cli.rl_study import RLStudy
from stau_rl.cli.speed import Speed
from stau_rl.cli.study import Study
from stau_rl.cli.train import Train
from stau_rl.terminal.counts import whole_number

COUNTS = [
    (Regret, "regret", ("horizon", "instances")),
    (Study, "study", ("horizon", "instances")),
    (Plateau, "plateau", ("arms", "updates", "draws", "tuning_draws")),
    (Probe, "probe", ("seeds", "processes")),
    (Speed, "speed", ("arms", "repeats")),
    (Train, "train", ("steps", "seeds", "processes")),
    (RLStudy, "rl-study", ("tuning_seeds", "seeds", "shorter", "processes")),
]
OPTIONS = [(kind, command, name) for kind, command, names in COUNTS for name in names]


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(
    ("text", "value"),
    [("10000", 10_000), ("1e4", 10_000), ("2E6", 2_000_000), ("1.5e3", 1500), ("-5", -5), ("1_000", 1000), ("0", 0),
     ("18446744073709551615", 2**64 - 1), ("0e99999999", 0)],
)  # fmt: skip
def test_whole_numbers(text: str, value: int) -> None:
    found = whole_number(text)
    assert (found, type(found)) == (value, int)


@pytest.mark.parametrize("text", ["1.5", "1e-3", "1e", "ten", "", "nan", "inf", "12345e-1", "0x10"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="must be a whole number such as 10000 or 1e4, got "):
        whole_number(text)


def test_a_number_of_a_billion_digits_is_not_written_down() -> None:
    with pytest.raises(ArgumentTypeError, match="must be a whole number below 1e20, got '1e999999999'"):
        whole_number("1e999999999")


@pytest.mark.parametrize(("kind", "command", "name"), OPTIONS, ids=_name)
def test_every_count_takes_an_exponent(kind: Any, command: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(kind, "run", lambda self: seen.append(getattr(self, name)))
    main([command, f"--{name.replace('_', '-')}", "1e2"])
    assert seen in ([100], [(100,)])


@pytest.mark.parametrize(("command", "name"), [option[1:] for option in OPTIONS])
@pytest.mark.parametrize("text", ["1.5", "1e-3"])
def test_every_count_refuses_a_fraction(command: str, name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(SystemExit) as stop:
        main([command, option, text])
    assert stop.value.code == 2
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"Error parsing {option}: must be a whole number such as 10000 or 1e4, got '{text}'" in error
