"""What a command shows, wherever it shows it: narrow terminals, other encodings, readers that go."""

import io
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from stau_rl.cli.main import main
from stau_rl.pages.paths import RESULTS
from stau_rl.regret.report import render
from stau_rl.regret.run import run_regret
from stau_rl.rl_study.results import RLResults
from stau_rl.rl_study.table import render as rl_table
from stau_rl.terminal.console import TableConsole, wide_console
from stau_rl.terminal.glossary import HINT, to_explain
from stau_rl.terminal.streams import PatientStream, patient_streams

ROOT = Path(__file__).resolve().parents[1]
HEADS = [sys.executable, "-m", "stau_rl", "heads", "--scores", "0.3,-1.2"]


def _environment(**others: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **others}


def _table(columns: int, rows: int = 3) -> Table:
    table = Table(title="A title that is longer than a narrow terminal is wide, by some words more")
    table.add_column("policy", overflow="fold", min_width=34)
    for column in range(columns):
        table.add_column(f"regret of kind {column}", justify="right")
    for row in range(rows):
        numbers = [f"{row}{column}.25 [{row}{column}.125, {row}{column}.5]" for column in range(columns)]
        table.add_row(f"centred_ucb | softmax(beta={row}.607)", *numbers)
    return table


def _shown(width: int, *objects: object, terminal: bool = True) -> list[str]:
    file = io.StringIO()
    console = TableConsole(width=width, file=file, force_terminal=terminal, color_system=None)
    console.print(*objects)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("columns", [1, 4, 9])
def test_no_number_is_broken_on_a_narrow_terminal(width: int, columns: int) -> None:
    lines = _shown(width, Group(_table(columns), Text("A sentence below it.")))
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for row in range(3):
        for column in range(columns):
            assert text.count(f"{row}{column}.25 [{row}{column}.125, {row}{column}.5]") == 1
    assert "…" not in text
    # Every table says of what its rows are.
    assert text.count("0.607") == text.count("policy") >= columns // 3
    assert lines[-1].rstrip() == "A sentence below it."


def test_a_file_is_as_wide_as_the_table_needs() -> None:
    lines = _shown(80, _table(9), terminal=False)
    assert sum("[00.125, 00.5]" in line and "[08.125, 08.5]" in line for line in lines) == 1
    assert _shown(1000, _table(2), terminal=False) == _shown(1000, _table(2))


def test_a_terminal_keeps_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, outer = pty.openpty()
    try:
        with os.fdopen(outer, "w") as terminal:
            monkeypatch.setattr(sys, "stdout", terminal)
            monkeypatch.setenv("COLUMNS", "80")
            assert wide_console(140).width == 80
    finally:
        os.close(inner)
    monkeypatch.setattr(sys, "stdout", None)
    assert wide_console(140).width == 140


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_characters_that_cannot_be_shown_are_replaced(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("arm,reward\n中é,1\nb,0\n", encoding="utf-8")
    file = ["--rewards", str(tmp_path / "a.csv"), "--arm", "arm", "--reward", "reward", "--policy", "random"]
    command = [sys.executable, "-m", "stau_rl", "regret", *file, "--horizon", "5", "--instances", "3"]
    run = subprocess.run(
        [*command, "--engine", "torch", "--out", str(tmp_path / "中")],
        env=_environment(PYTHONIOENCODING=encoding),
        capture_output=True,
        check=True,
        encoding=encoding,
    )
    label = "?" + "é".encode(encoding, "replace").decode(encoding)
    assert f"2 arms, mean reward of each: b: 0, {label}: 1" in run.stdout
    assert "best arm at end" in run.stdout
    assert (tmp_path / "中" / "regret.png").is_file()


def test_an_error_with_such_characters_is_one_line_too() -> None:
    run = subprocess.run(
        [*HEADS[:4], "--scores", "中"], env=_environment(PYTHONIOENCODING="ascii:strict"), capture_output=True
    )
    assert run.returncode == 2
    assert run.stderr.startswith(b"stau-rl: error: --scores must be numbers separated by commas, got ")


@pytest.mark.parametrize("arguments", [HEADS, [*HEADS[:4], "--help"]], ids=["table", "help"])
def test_a_reader_that_goes_is_no_failure(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(arguments, env=_environment(), stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_and_is_no_failure() -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(HEADS, env=_environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 0
    assert run.stderr == "stau-rl: standard output cannot be written: No space left on device\n"


def test_streams_that_were_closed_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    main(["heads", "--scores", "0.3,-1.2"])
    for arguments, code in ((["heads", "--help"], 0), (["regret", "--horizon", "nan"], 2)):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code in ((0, None) if code == 0 else (2,))
    assert (sys.stdout, sys.stderr) == (None, None)


def test_a_closed_descriptor_is_taken_before_a_file_of_ours_has_it() -> None:
    """What a library writes to descriptor 1 would be in that file."""
    code = (
        "import os; from stau_rl.terminal.streams import patient_streams\n"
        "with patient_streams(): found = os.path.samestat(os.fstat(1), os.stat(os.devnull)), os.get_inheritable(1)\n"
        "os.write(2, repr(found).encode())"
    )
    shell = ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code]
    run = subprocess.run(shell, env=_environment(), stderr=subprocess.PIPE, text=True, check=True)
    assert run.stderr == "(True, True)"


@pytest.mark.parametrize(
    ("encoding", "errors", "text", "written"),
    [
        ("ascii", "strict", "é", b"?"),
        # What Python gives in the locale C, where a name of a file may have any bytes.
        ("ascii", "surrogateescape", "é", b"?"),
        ("utf-8", "surrogateescape", "é\udcff", b"\xc3\xa9\xff"),
        ("utf-8", "strict", "é\udcff", b"\xc3\xa9?"),
        ("ascii", "backslashreplace", "é", b"\\xe9"),
    ],
)
def test_no_character_fails(encoding: str, errors: str, text: str, written: bytes) -> None:
    file = io.BytesIO()
    stream = PatientStream(io.TextIOWrapper(file, encoding=encoding, errors=errors))
    stream.write(text)
    stream.flush()
    assert file.getvalue() == written


def test_the_streams_come_back() -> None:
    before = sys.stdout, sys.stderr
    with patient_streams():
        assert isinstance(sys.stdout, PatientStream)
    assert (sys.stdout, sys.stderr) == before


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Standard output says that it is a terminal; what was told is kept in a folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    return tmp_path


def test_what_columns_mean_is_told_once_on_a_terminal(on_terminal: Path) -> None:
    assert [to_explain("regret", asked=False) for _ in range(3)] == [True, False, False]
    assert to_explain("study", asked=False)
    assert to_explain("regret", asked=True)
    # Where no note can be left it is told every time.
    (on_terminal / "stau_rl" / "explained" / "study").unlink()
    shutil.rmtree(on_terminal / "stau_rl")
    (on_terminal / "stau_rl").write_text("in the way")
    assert [to_explain("study", asked=False) for _ in range(2)] == [True, True]


def test_elsewhere_it_is_told_every_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert [to_explain("regret", asked=False) for _ in range(2)] == [True, True]
    assert not list(tmp_path.iterdir())


def test_a_run_says_what_its_columns_mean_or_how_to_ask() -> None:
    result = run_regret("bernoulli(k=2)", ["random", "ucb1"], 20, 8)
    told, hinted = ("\n".join(_shown(80, render(result, explain))) for explain in (True, False))
    assert "Differences are paired by instance" in " ".join(told.split())
    assert HINT not in told
    assert "paired by instance" not in " ".join(hinted.split())
    assert HINT in hinted
    assert max(map(len, told.splitlines())) <= 80
    # No column is lost, and no header is cut.
    words = " ".join(told.split())
    assert all(word in words for word in ("(Holm)", "baseline", "interval", "matched", "softmax", "worst"))


def test_the_table_of_a_study_of_training_fits_a_terminal() -> None:
    results = RLResults.load(RESULTS)
    lines = _shown(80, rl_table(results, explain=True))
    assert max(map(len, lines)) <= 80
    whole = " ".join(_shown(200, rl_table(results, explain=False), terminal=False))
    assert HINT in whole
    assert all(task in whole for task in results.tasks)
