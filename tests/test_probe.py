"""The probe: its plan, its folder, and the command, on models too small to learn anything."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from stau_rl.cli.main import main
from stau_rl.files.finished import TIMING
from stau_rl.plugin.plugin_head import forget
from stau_rl.probe import plan as probe_plan
from stau_rl.probe.choose import choose
from stau_rl.probe.folder import COLUMNS, GROUPS, SUMMARY, TABLE, read_probe
from stau_rl.probe.model import Shape
from stau_rl.probe.overview import interval, overview
from stau_rl.probe.plan import Setting, plan
from stau_rl.probe.run import find_device, run_probe, run_settings
from stau_rl.probe.summary import cell, render, summary
from stau_rl.probe.train import Recipe

SILENT = "silence(pairs=2, keys=5, values=3): sm_fir (silence)"
TINY = Recipe(steps=3, batch=8, warm_up=1)
SETTINGS = [
    Setting("silence", "silence(pairs=2, keys=5, values=3)", ("sm_fir", "pn_fir_tau"), (0, 1), Shape(8), TINY, 64),
    Setting("length", "passkey(places=4)", ("softmax",), (0, 1), Shape(8, positions="none"), TINY, 64, (2, 4)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("probe") / "run"
    run_settings(SETTINGS, out=path)
    return path


def test_the_folder_holds_a_row_per_model_and_length(folder: Path) -> None:
    rows = read_probe(folder / TABLE)
    assert list(rows.columns) == list(COLUMNS)
    assert len(rows) == 2 * 2 + 2 * 3
    assert sorted(path.suffix for path in (folder / GROUPS).iterdir()) == [".csv"] * 3 + [".npz"] * 3
    assert rows.loc[rows["part"] == "length", "length"].unique().tolist() == [5, 9, 17]
    assert rows.loc[rows["normaliser"] == "pn_fir_tau", "learned"].str.startswith("threshold=").all()
    found = pd.read_csv(folder / SUMMARY)
    assert set(found["seeds"]) == {2}
    assert {path.name for path in folder.glob("*.png")} == {
        *(f"{kind}-{part}-1.png" for kind in ("maps", "masses", "curves") for part in ("silence", "length"))
    }


def test_a_resumed_probe_trains_what_is_missing_and_ends_with_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    lost = sorted((copy / GROUPS).glob("silence-*.csv"))[0]
    lost.unlink()
    # A group that was cut off while it was written is not whole either.
    cut = sorted((copy / GROUPS).glob("length-*.csv"))[0]
    cut.write_text(cut.read_text(encoding="utf-8")[:40], encoding="utf-8")
    told: list[tuple[str, int, int]] = []
    run_settings(SETTINGS, out=copy, resume=True, report=lambda *now: told.append(now))
    # Three groups end with all that they have; two were trained, which is told before their test.
    assert [done for _, done, total in told if done == total] == [4] * 3
    assert sorted(title for title, done, _ in told if done == 3) == ["passkey(places=4): softmax (length)", SILENT]
    for path in folder.rglob("*"):
        if path.is_file() and path.name != TIMING:
            assert path.read_bytes() == (copy / path.relative_to(folder)).read_bytes(), path.name


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "junk"])
def test_a_damaged_group_is_trained_again(folder: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = sorted((copy / GROUPS).glob("silence-*.npz"))[0]
    good = path.read_bytes()
    flipped = good[:100] + b"\xff" * 20 + good[120:]
    path.write_bytes({"empty": b"", "cut": good[: len(good) // 2], "flipped": flipped, "junk": b"junk"}[damage])
    (copy / TIMING).write_text("[]", encoding="utf-8")
    run_settings(SETTINGS, out=copy, resume=True)
    assert path.read_bytes() == good
    assert set(json.loads((copy / TIMING).read_text(encoding="utf-8"))) == {path.stem}


def test_without_a_folder_the_rows_are_the_same(folder: Path) -> None:
    result = run_settings(SETTINGS[:1])
    stored = read_probe(folder / TABLE).query("part == 'silence'")
    for name in ("decoded", "mass_unanswerable", "kurtosis"):
        np.testing.assert_allclose(result.rows[name], stored[name], rtol=1e-8)
    assert [part["weights"].shape for part in result.maps] == [(1, 8, 5)] * 2


def test_a_folder_in_the_way_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds a probe; pass --resume"):
        run_settings(SETTINGS, out=folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file, not a folder"):
        run_settings(SETTINGS, out=tmp_path / "file")


def test_identity_covers_everything_that_decides() -> None:
    first = SETTINGS[0]
    others = [
        replace(first, recipe=replace(TINY, rate=1e-3)),
        replace(first, shape=Shape(16)),
        replace(first, seeds=(0,)),
        replace(first, items=65),
        replace(first, normalisers=("sm_fir",)),
    ]
    digests = [setting.identity("cpu") for setting in (first, *others)]
    digests += [first.identity("cuda"), first.identity("cpu", ["a plug-in"])]
    assert len(set(digests)) == len(digests)


def test_the_summary_by_hand() -> None:
    row = dict.fromkeys(COLUMNS, np.nan) | {"part": "p", "task": "recall", "normaliser": "softmax", "factor": 1}
    values = [0.5, 0.9, 0.7]
    rows = pd.DataFrame([row | {"decoded": value, "false_refusal": value} for value in values])
    found = summary(rows).set_index("metric")
    assert found.loc["decoded", ["median", "worst", "seeds"]].tolist() == [0.7, 0.5, 3]
    assert found.loc["false_refusal", ["median", "worst"]].tolist() == [0.7, 0.9]
    # 0.7 -+ t(2, .975) 0.2 / sqrt(3) = 0.7 -+ 4.303 * 0.1155; a share ends at 1.
    assert found.loc["decoded", "low"] == pytest.approx(0.7 - 4.3027 * 0.11547, abs=1e-4)
    assert found.loc["decoded", "high"] == 1.0


def test_the_summary_of_masses_beyond_1_and_their_worst_seed() -> None:
    row = dict.fromkeys(COLUMNS, np.nan) | {"part": "p", "task": "silence", "normaliser": "rela", "factor": 1}
    values = [2.5, 2.9, 2.7]
    rows = pd.DataFrame([row | {"mass_answerable": value, "mass_unanswerable": value} for value in values])
    found = summary(rows).set_index("metric")
    # 2.7 -+ t(2, .975) 0.2 / sqrt(3): the interval is about the median, not cut to 1.
    for name in ("mass_answerable", "mass_unanswerable"):
        half = 4.3027 * 0.11547
        assert found.loc[name, ["low", "high"]].tolist() == pytest.approx([2.7 - half, 2.7 + half], abs=1e-4)
    # Where there is an answer a head should have mass; where there is none it should not.
    assert found.loc["mass_answerable", "worst"] == 2.5
    assert found.loc["mass_unanswerable", "worst"] == 2.9


@pytest.mark.parametrize(
    ("values", "text"), [((1.0, 1.0), "1"), ((0.987, 0.5), ".987 (.500)"), ((12.3, 0.0), "12 (.000)")]
)
def test_cells(values: tuple[float, float], text: str) -> None:
    assert cell(*values) == text


def test_plans_parse_and_say_what_is_wrong() -> None:
    for size, seeds in (("small", 3), ("full", 5)):
        settings = plan(size, seeds)
        assert {"recall", "silence", "length"} <= {setting.part for setting in settings}
        more = [setting for setting in settings if setting.part == "more seeds"]
        assert [setting.seeds for setting in more] == [tuple(range(40))] * (size == "full")
        assert all(setting.seeds == tuple(range(seeds)) for setting in settings if setting not in more)
    with pytest.raises(ValueError, match="size must be one of small, full"):
        plan("large", 1)
    for seeds in (0, 10_001):
        with pytest.raises(ValueError, match=f"seeds must be from 1 to 10000, got {seeds}"):
            plan("small", seeds)


def test_choosing_from_the_plan() -> None:
    assert [setting.part for setting in choose("full", ["overwrite", "mqar"], [])] == ["overwrite", "mqar"]
    # A part goes before the tasks of that text in other parts.
    assert [setting.part for setting in choose("full", ["recall"], [])] == ["recall"]
    assert {setting.part for setting in choose("full", ["passkey"], [])} == {"length"}
    (own,) = choose("small", ["silence(unanswerable=0.2)"], ["sm_fir"], 2)
    assert (own.task, own.normalisers, own.seeds) == ("silence(unanswerable=0.2)", ("sm_fir",), (0, 1))
    with pytest.raises(ValueError, match="did you mean 'recall'"):
        choose("small", ["recal"], [])
    with pytest.raises(ValueError, match=r"unknown part of the plan or task 'nothing'; known: .*length.*overwrite"):
        choose("small", ["nothing"], [])
    with pytest.raises(ValueError, match="unknown attention head 'sm_fur'"):
        choose("small", [], ["sm_fur"])


def test_a_normaliser_that_is_asked_for_twice_is_trained_once() -> None:
    (own,) = choose("small", ["silence"], ["sm_fir", "softmax", "sm_fir"], 2)
    assert own.normalisers == ("sm_fir", "softmax")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--task", "silence", "--normaliser", "s_tau(tau=1)"],
            "s_tau: a learned tau must start inside its range, > 1, got 1.0",
        ),
        (["--task", "recall(keys=1000000000000)"], "keys must be at most 1048576"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["probe", "--device", "cpu", "--out", str(tmp_path / "run"), *options])
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="device 'nonsense' is not there"):
        find_device("nonsense")
    assert find_device("cpu").type == "cpu"


@pytest.fixture
def tiny_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stau_rl.probe.choose.plan", lambda size, seeds: SETTINGS)


@pytest.mark.usefixtures("tiny_plan")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    main(["probe", "--task", "silence", "--device", "cpu", "--processes", "1", "--out", str(out)])
    printed = capsys.readouterr().out
    assert "Mean over seeds [95 % interval]" in printed
    assert "2 seeds, 3 steps" in printed
    assert "pn_fir_tau" in printed
    assert str(out / "probe.csv") in printed.replace("\n", "")
    with pytest.raises(SystemExit, match="2"):
        main(["probe", "--task", "silence", "--device", "cpu", "--processes", "1", "--out", str(out)])
    assert "pass --resume" in capsys.readouterr().err
    monkeypatch.setattr("stau_rl.terminal.progress.EVERY", 0.0)
    main(["probe", "--device", "cpu", "--processes", "1", "--out", str(out), "--resume", "--details"])
    shown = capsys.readouterr()
    assert "100 %, 3/3 passkey(places=4): softmax" in shown.err
    assert "median of 2 seeds (worst)" in shown.out


@pytest.mark.usefixtures("tiny_plan")
def test_a_stop_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stau_rl.probe.run.train_group", stop)
    with pytest.raises(SystemExit, match="130"):
        main(["probe", "--device", "cpu", "--processes", "1", "--out", str(tmp_path / "run")])
    assert "finished groups are kept: repeat the command with --resume" in capsys.readouterr().err


@pytest.mark.usefixtures("tiny_plan")
def test_a_head_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "my_head.py"
    file.write_text(
        "import torch\nfrom stau_rl.plugin import head\n\n\n"
        '@head("cubic_probe")\ndef cubic(scores):\n    """|s|^3"""\n    return 3 * scores.abs().log()\n'
    )
    out = tmp_path / "run"
    own = ["--plugin", str(file), "--normaliser", "attention(head=cubic_probe, fir_taps=3)"]
    try:
        main(["probe", *own, "--task", "silence", "--device", "cpu", "--processes", "1", "--out", str(out)])
    finally:
        forget("cubic_probe")
    rows = read_probe(out / TABLE)
    assert rows["spec"].unique().tolist() == ["attention(head=cubic_probe, fir_taps=3)"]
    assert rows["decoded"].notna().all()


def test_rendering_names_every_metric(folder: Path) -> None:
    from rich.console import Console

    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(read_probe(folder / TABLE)))
    text = console.export_text()
    for word in ("hallucination:", "kurtosis:", "4x", "3 steps of 8"):
        assert word in text


def test_the_first_table_fits_a_screen_and_its_intervals_are_over_seeds(folder: Path) -> None:
    rows = read_probe(folder / TABLE)
    assert interval([0.5, 0.9, 0.7], "decoded") == ".700 [.203, 1]"
    assert interval([2.5, 2.9, 2.7], "mass_answerable") == "2.700 [2.203, 3.197]"
    assert (interval([0.25], "decoded"), interval([float("nan")], "decoded")) == (".250", "")
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(overview(rows))
    text = console.export_text()
    own = rows.query("normaliser == 'pn_fir_tau'")
    assert interval(own["decoded"], "decoded") in text
    assert "silence(pairs=2, keys=5, values=3) (silence): 2 seeds, 3 steps" in " ".join(text.split())
    # As many rows as a large plan has: of each setting the best, and how many more there are.
    many = pd.concat([own.assign(normaliser=f"n{number}", part=part) for part in "ab" for number in range(40)])
    many["decoded"] = [number / 40 for _ in "ab" for number in range(40) for _ in range(2)]
    console.print(overview(many))
    text = console.export_text()
    assert len(text.splitlines()) < 40
    assert [f"n{number} " in text for number in (0, 28, 29, 39)] == [False, False, True, True]
    assert text.count("... 29 more in summary.csv") == 2


def test_a_task_that_the_small_plan_leaves_out_is_trained_as_the_full_plan_trains_it() -> None:
    (setting,) = choose("small", ["mqar"], ["softmax"])
    (full,) = [one for one in plan("full", 3) if one.part == "mqar"]
    assert (setting.shape, setting.recipe, setting.seeds) == (full.shape, full.recipe, (0, 1, 2))
    assert setting.shape.layers == 2


def test_the_name_of_a_normaliser_is_shown_whole() -> None:
    names = ["attention(head=s_tau(tau=2), learn=[tau])", "attention(head=s_tau(tau=2), learn=[])"]
    result = run_probe("recall(pairs=2, keys=4, values=4)", names, seeds=1, steps=2, items=8)
    console = Console(width=200)
    with console.capture() as shown:
        console.print(result.render())
    assert "learn=[tau]" in "".join(shown.get().split())


def test_a_group_with_calibrated_thresholds_is_another_one_under_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, calibrated = (Setting("probe", "silence", (text,), (0,)) for text in ("pn_fir_tau", "pn_fir_tau_calibrated"))
    before = [one.identity("cpu") for one in (plain, calibrated)]
    monkeypatch.setattr(probe_plan, "LOW", 0.3)
    after = [one.identity("cpu") for one in (plain, calibrated)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]
