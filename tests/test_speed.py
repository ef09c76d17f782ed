"""The speed command: correctness first, rows kept all or none, and pages that follow from the rows."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from stau_rl.cli.main import main
from stau_rl.cli.speed import Speed, ratios
from stau_rl.pages.paths import DOCS
from stau_rl.pages.speed import ROWS, draw, tables
from stau_rl.speed import loops as speed_loops
from stau_rl.speed import measure as speed
from stau_rl.speed import worker as speed_worker
from stau_rl.speed.instructions import loop_instructions
from stau_rl.speed.loops import Case, loops
from stau_rl.speed.rows import COLUMNS, KEY, append, compare, latest, read
from stau_rl.speed.torch_step import TorchPeer
from stau_rl.speed.worker import EXACT_REGRET, Worker, distance


def _rows(**changes) -> list[dict]:
    row = dict.fromkeys(COLUMNS, "x") | {
        "head": "s_tau(tau=5)",
        "arms": 10,
        "peak_memory_mib": 7.4,
        "ceiling_share": math.nan,
    }
    rates = {"numba": 3e9, "torch eager step": 1e8, "JAX scan": 2e8, "JAX scan, by hand": 1e9}
    return [
        row | {"engine": name, "median": rate, "p20": 0.9 * rate, "p80": 1.1 * rate} | changes
        for name, rate in rates.items()
    ]


def test_rows_are_added_all_or_none(tmp_path) -> None:
    file = tmp_path / "speed.csv"
    append(file, _rows())
    append(file, _rows(median=1.5e9))
    found = read(file)
    assert tuple(found.columns) == COLUMNS
    assert found["median"].tolist() == [3e9, 1e8, 2e8, 1e9] + [1.5e9] * 4
    assert latest(found)["median"].tolist() == [1.5e9] * 4
    before = file.read_bytes()
    with pytest.raises(KeyError):
        append(file, [{"engine": "numba"}])
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["speed.csv"]
    file.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="has other columns than speed rows have"):
        append(file, _rows())
    assert file.read_text() == "a,b\n1,2\n"


def test_a_last_line_without_an_end_does_not_run_into_the_next(tmp_path) -> None:
    file = tmp_path / "speed.csv"
    append(file, _rows())
    file.write_text(file.read_text().rstrip("\n"))
    append(file, _rows(median=1.5e9))
    assert read(file)["median"].tolist() == [3e9, 1e8, 2e8, 1e9] + [1.5e9] * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "rows.csv has other columns than speed rows have; name another file; --no-keep adds none"),
        (",".join(COLUMNS) + "\n1,2\n", f"line 2 has 2 fields, not {len(COLUMNS)}; mend it"),
    ],
)
def test_a_file_that_cannot_grow_is_told_before_anything_is_measured(
    text, message, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("stau_rl.speed.measure.measure", lambda *_: pytest.fail("measured"))
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["speed", "--device", "cpu", "--rows", str(file)])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert file.read_text() == text


def test_ratios_are_to_the_fastest_of_each_kind() -> None:
    frame = pd.DataFrame(_rows())
    assert compare(frame) == ("numba", {"JAX scan, by hand": 3.0, "torch eager step": 30.0})
    assert ratios(frame) == ["s_tau(tau=5), 10 arms: numba is 3 x JAX scan, by hand, 30 x torch eager step"]
    assert compare(frame[frame["engine"] != "numba"]) == ("", {})


def test_tables_show_the_latest_rows() -> None:
    many = pd.DataFrame([*_rows(median=1.0), *_rows(), _rows(arms=1024)[0] | {"median": 1.25e12}])
    found = tables(many)
    assert found["speed"][1] == ("x", "`s_tau(tau=5)`", "numba", "3 (2.7, 3.3)", "1.0 x", "7", "-")
    assert [line[2:5] for line in found["speed"][2:]] == [
        ("JAX scan, by hand", "1 (0.9, 1.1)", "3.0 x"),
        ("JAX scan", "0.2 (0.18, 0.22)", "15.0 x"),
        ("torch eager step", "0.1 (0.09, 0.11)", "30.0 x"),
    ]
    assert found["speed_arms"] == [
        ("device", "engine", "head", "K = 10", "K = 1024"),
        ("x", "numba", "`s_tau(tau=5)`", "3", "1 250"),
    ]


def test_the_page_shows_the_committed_rows() -> None:
    rows = latest(read(ROWS))
    text = (DOCS / "speed.md").read_text(encoding="utf-8")
    assert not rows.duplicated(KEY).any()
    for row in rows[rows["arms"] == 10].to_dict("records"):
        rates = [
            f"{row[name] / 1e9:,.0f}".replace(",", " ") if row[name] >= 1e11 else f"{row[name] / 1e9:.3g}"
            for name in ("median", "p20", "p80")
        ]
        start = f"| {row['device']} | `{row['head']}` | {row['engine']} | {rates[0]} ({rates[1]}, {rates[2]}) |"
        assert start in text, "run python -m stau_rl.pages.speed"


def test_the_figure_is_the_same_bytes_for_the_same_rows(tmp_path) -> None:
    rows = pd.DataFrame([*_rows(), _rows(arms=2)[0], _rows(device="y")[0]])
    draw(rows, tmp_path / "a.png")
    draw(rows, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_a_wrong_regret_is_refused() -> None:
    regret = np.random.default_rng(0).normal(4.5, 1.0, 10_000)
    assert abs(distance(regret, 4.5)) < 4.0
    with pytest.raises(ValueError, match=r"mean regret 4\.\d+ is .* standard errors from 4\.6"):
        distance(regret, 4.6)


@pytest.mark.parametrize(("sharpness", "head"), [({"tau": 5.0}, "s_tau(tau=5)"), ({"beta": 1.0}, "softmax(beta=1)")])
def test_the_torch_peer_plays_the_exact_problem(sharpness, head) -> None:
    peer = TorchPeer(np.array([[0.9], [0.8]]), horizon=100, instances=20_000, device="cpu", compiled=False, **sharpness)
    peer.run(3)
    first = peer.regret()
    distance(first, EXACT_REGRET[head])
    peer.run(4)
    assert not np.array_equal(peer.regret(), first)
    peer.run(3)
    np.testing.assert_array_equal(peer.regret(), first)


def test_cases_leave_room_for_choices() -> None:
    for loop in (*loops("cpu").values(), *loops("cuda").values()):
        for arms in (2, 10, 32, 128, 1024):
            if loop.engine is not None or arms == 10:
                assert all(loop.case("softmax(beta=1)", arms, n).steps >= 2 * arms for n in loop.sizes(arms))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the compiled engine, on few instances; the worker is played in this process."""

    class Here:
        def __init__(self, loop, limit) -> None:
            self.loop, self._server = loop, speed_worker._Server(loop)

        def ask(self, question, *arguments):
            return getattr(self._server, question)(*arguments)

        def stop(self) -> None:
            pass

    kept = loops("cpu")["numba"]
    few = speed_loops.Loop("numba", "cpu", kept.make, lambda arms: (64, 128), 20, "numba", "numba")
    absent = speed_loops.Loop("JAX scan", "cpu", kept.make, lambda arms: (64,), 20, "no_such_package")
    monkeypatch.setattr(speed, "loops", lambda device: {"numba": few, "JAX scan": absent})
    monkeypatch.setattr(speed, "Worker", Here)


def test_the_command_measures_prints_and_keeps(small, tmp_path, capsys) -> None:
    file = tmp_path / "rows.csv"
    setup = ["--device", "cpu", "--arms", "10", "--head", "s_tau(tau=5)", "--rows", str(file)]
    main(["speed", *setup, "--repeats", "2"])
    (row,) = read(file).to_dict("records")
    assert (row["engine"], row["head"], row["arms"], row["repeats"], row["steps"]) == (
        "numba",
        "s_tau(tau=5)",
        10,
        2,
        20,
    )
    assert row["instances"] in (64, 128)
    assert 0.0 < row["p20"] <= row["median"] <= row["p80"]
    assert abs(row["regret_z"]) < 4.0
    assert row["same_histories"] > 0.95
    shown = capsys.readouterr().out
    assert "JAX scan is left out: the package no_such_package is not installed" in shown
    assert "1 rows added to" in shown
    # A log alone restores the file.
    assert file.read_text() in shown
    main(
        [
            "speed",
            "--device",
            "cpu",
            "--arms",
            "10",
            "--head",
            "s_tau(tau=5)",
            "--repeats",
            "1",
            "--rows",
            str(file),
            "--no-keep",
        ]
    )
    assert len(read(file)) == 1


def test_a_wrong_peer_is_left_out(small, tmp_path, monkeypatch, capsys) -> None:
    kept = loops("cpu")["numba"]
    both = dict(speed.loops("cpu"))
    both["JAX scan"] = speed_loops.Loop("JAX scan", "cpu", kept.make, lambda arms: (64,), 20, "numpy")
    monkeypatch.setattr(speed, "loops", lambda device: both)
    check = speed_worker._Server.check

    def wrong(self, head):
        return check(self, head) if self._loop.engine else distance(np.arange(100.0), 4.5)

    monkeypatch.setattr(speed_worker._Server, "check", wrong)
    file = tmp_path / "rows.csv"
    Speed(device="cpu", arms=(10,), head=("s_tau(tau=5)",), repeats=1, rows=file).run()
    assert read(file)["engine"].tolist() == ["numba"]
    assert "standard errors from 4.5: left out" in capsys.readouterr().out


def test_a_wrong_loop_adds_no_row(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(speed_worker, "EXACT_REGRET", {"s_tau(tau=5)": 4.0})
    with pytest.raises(ValueError, match="standard errors from 4"):
        Speed(device="cpu", arms=(10,), head=("s_tau(tau=5)",), repeats=1, rows=tmp_path / "rows.csv").run()
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["--device", "cuda"],
            "--device cuda: no GPU is used: ",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        (["--device", "tpu"], "--device must be auto, cpu or cuda, got 'tpu'"),
        (["--arms", "0"], "--arms must be 1 to 1024"),
        (["--repeats", "0"], "--repeats 1 or more"),
        (["--limit", "nan"], "--limit must be a number of seconds above 0, at most 1e6, got nan"),
        (["--limit", "0"], "--limit must be a number of seconds above 0"),
        (["--limit", "1e12"], "--limit must be a number of seconds above 0"),
        (["--head", "argmax"], "--head must be of softmax"),
        (["--rows", "no/such/folder/rows.csv"], "no/such/folder is no folder that can be written"),
    ],
)
def test_misuse_is_one_line(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["speed", *arguments, *([] if "--device" in arguments else ["--device", "cpu"])])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_worker_answers_from_a_process_of_its_own_and_is_left_out_when_it_takes_too_long() -> None:
    loop = loops("cpu")["numba"]
    worker = Worker(loop, 120.0)
    try:
        with pytest.raises(ValueError, match="numba: AttributeError"):
            worker.ask("no_such_question")
        worker._limit = 0.0
        with pytest.raises(TimeoutError, match="numba has taken more than 0 s"):
            worker.ask("prepare", Case("s_tau(tau=5)", 64, 20, 3))
    finally:
        worker.stop()
    assert not worker._process.is_alive()


def test_instructions_are_counted_in_the_longest_loop(monkeypatch) -> None:
    listing = """
        /*0000*/ MUFU.EX2 R0, R0 ;
.L_x_1:
        /*0010*/ MUFU.EX2 R0, R0 ;
        /*0020*/ @P0 BRA `(.L_x_2) ;
        /*0030*/ STG.E [R2], R0 ;
.L_x_2:
        /*0040*/ FFMA R1, R1, R1, R1 ;
        /*0050*/ @!P1 FADD R1, R1, R1 ;
        /*0060*/ LOP3.LUT R1, R1 ;
        /*0070*/ @P2 BRA `(.L_x_1) ;
    """

    class Done:
        stdout = listing

    monkeypatch.setattr("subprocess.run", lambda *_, **__: Done())
    found = loop_instructions(b"", 2)
    # MUFU, FFMA, FADD, LOP3 and two jumps; the store runs at checkpoints alone.
    assert found == {"all": 3.0, "special": 0.5, "multiply-add": 1.0, "compare/logic": 1.5}
