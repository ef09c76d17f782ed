"""The result of a probe: its tables, figures and files, and the ways to ask for it."""

import doctest
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import torch

import stau_rl
from stau_rl.files.finished import TIMING
from stau_rl.machine.threads import one_torch_thread
from stau_rl.probe import run as probe_run
from stau_rl.probe.choose import choose
from stau_rl.probe.folder import COLUMNS, GROUPS, TABLE
from stau_rl.probe.model import Shape
from stau_rl.probe.plan import PART, Setting, plan
from stau_rl.probe.result import ProbeResult
from stau_rl.probe.run import run_settings
from stau_rl.probe.summary import cell, summary
from stau_rl.probe.train import Recipe

TINY = Recipe(steps=3, batch=8, warm_up=1)
SETTINGS = [
    Setting("silence", "silence(pairs=2, keys=5, values=3)", ("sm_fir", "pn_fir_tau"), (0, 1), Shape(8), TINY, 64),
    Setting("length", "passkey(places=4)", ("softmax",), (0, 1), Shape(8, positions="none"), TINY, 64, (2, 4)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("result") / "run"
    run_settings(SETTINGS, "cpu", path)
    return path


@pytest.fixture(scope="module")
def result() -> ProbeResult:
    """The same probe without a folder."""
    return run_settings(SETTINGS, "cpu")


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (TIMING, ".lock")
    }


def test_saving_writes_the_files_of_the_run_and_loading_gives_them_back(
    folder: Path, result: ProbeResult, tmp_path: Path
) -> None:
    result.save(tmp_path / "saved")
    assert files(tmp_path / "saved") == files(folder)
    loaded = ProbeResult.load(tmp_path / "saved")
    assert len(files(folder)) == 3 * 2 + 2 + 4
    assert loaded.settings == result.settings
    pd.testing.assert_frame_equal(loaded.table(), result.table(), rtol=1e-9, check_dtype=False)
    pd.testing.assert_frame_equal(loaded.summary(), result.summary(), rtol=1e-8)
    for ours, theirs in zip(loaded.maps, result.maps, strict=True):
        assert all((ours[name] == theirs[name]).all() for name in ("weights", "masses", "normalisers", "setting"))
    # Saving again where it is saved changes nothing.
    loaded.save(tmp_path / "saved")
    assert files(tmp_path / "saved") == files(folder)


def test_another_probe_s_folder_is_left_alone(folder: Path, result: ProbeResult, tmp_path: Path) -> None:
    result.save(tmp_path / "own")
    part = ProbeResult(result.rows[result.rows["part"] == "length"], result.maps[2:])
    before = files(tmp_path / "own")
    with pytest.raises(ValueError, match=r"own holds a group of another probe, silence-[0-9a-f]+; name a new or empty"):
        part.save(tmp_path / "own")
    assert files(tmp_path / "own") == before


def test_what_is_no_finished_probe_is_named(result: ProbeResult, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no finished probe \(.*; finish it with --resume"):
        ProbeResult.load(tmp_path)
    result.save(tmp_path)
    lost = sorted((tmp_path / GROUPS).glob("*.npz"))[0]
    lost.write_bytes(b"junk")
    with pytest.raises(ValueError, match=f"the group {lost.stem} is missing or damaged"):
        ProbeResult.load(tmp_path)
    (tmp_path / TABLE).write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no finished probe"):
        ProbeResult.load(tmp_path)


def test_tables_are_copies_and_the_line_counts(result: ProbeResult) -> None:
    assert list(result.table().columns) == list(COLUMNS)
    copy = result.table()
    copy["decoded"] = -1.0
    pd.testing.assert_frame_equal(result.summary(), summary(result.rows))
    assert result.table()["decoded"].min() >= 0
    assert repr(result) == "ProbeResult(2 settings, 3 normalisers, 2 seeds)"
    assert result.settings == [("silence", SETTINGS[0].task), ("length", "passkey(places=4)")]


def test_figures_are_those_of_the_setting(result: ProbeResult) -> None:
    assert [len(result.plot(setting=name).axes) for name in (None, "length", "passkey(places=4)")] == [2, 1, 1]
    # The panels and the bar of colours.
    assert len(result.plot("maps").axes) == 2 + 1
    with pytest.raises(ValueError, match="kind must be one of masses, maps, got 'rows'"):
        result.plot("rows")
    with pytest.raises(ValueError, match=r"setting must be one of silence, .*, passkey\(places=4\), got 'mqar'"):
        result.plot(setting="mqar")


def test_the_public_names() -> None:
    assert stau_rl.ProbeResult is ProbeResult
    found = stau_rl.run_probe("passkey(places=3)", "softmax", seeds=1, steps=1, items=5, device="cpu")
    assert found.rows[["task", "normaliser", "seed", "steps", "items"]].to_numpy().tolist() == [
        ["passkey(places=3)", "softmax", 0, 1, 5]
    ]
    assert str(stau_rl.parse_task("passkey(places=3)")) == "passkey(places=3)"
    assert stau_rl.parse_attention("sm_fir").fir_taps == 7


def test_one_text_is_one_task_or_normaliser() -> None:
    assert choose("small", "silence", "sm_fir", steps=7, items=9) == choose(
        "small", ["silence"], ["sm_fir"], None, 7, 9
    )
    (one,) = choose("small", "silence", "sm_fir", steps=7, items=9)
    assert (one.recipe.steps, one.recipe.batch, one.items, one.normalisers) == (7, 128, 9, ("sm_fir",))
    for change, message in (
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"items": 0}, "items must be at least 1, got 0"),
        ({"tasks": "recal"}, "did you mean 'recall'"),
    ):
        with pytest.raises(ValueError, match=message):
            choose(**{"tasks": "silence", **change})  # type: ignore[arg-type]
    for wrong in ({"batch": 0}, {"warm_up": -1}, {"rate": 0.0}, {"rate": float("inf")}):
        ((name, value),) = wrong.items()
        with pytest.raises(ValueError, match=f"{name} must be .*, got {value}"):
            Recipe(**wrong)  # type: ignore[arg-type]


def test_longer_items_need_models_without_learned_positions() -> None:
    with pytest.raises(ValueError, match=r"factors=\(2,\) ask for more places than the learned positions of passkey"):
        Setting("length", "passkey", ("softmax",), (0,), factors=(2,))


def test_every_group_of_a_plan_has_a_title_of_its_own() -> None:
    for size, together in (("small", 1), ("full", 1), ("full", 9)):
        titles = [group.title for setting in plan(size, 2) for group in setting.groups(together)]
        assert len(set(titles)) == len(titles)
    assert Setting(PART, "mqar", ("softmax",), (0,)).title == "mqar: softmax"
    assert Setting("sweep", "recall", ("softmax",), (0,)).title == "recall: softmax (sweep)"


def test_a_group_is_trained_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(*arguments: object) -> object:
        seen.append(torch.get_num_threads())
        return train_group(*arguments)  # type: ignore[arg-type]

    train_group = probe_run.train_group
    monkeypatch.setattr(probe_run, "train_group", watched)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run_settings(SETTINGS[1:], "cpu")
        with pytest.raises(RuntimeError, match="1 thread"), one_torch_thread():
            raise RuntimeError(f"{torch.get_num_threads()} thread")
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "name",
    [
        *("probe.run", "probe.result", "probe.choose", "envs.tasks"),
        *("agents.attention.attention_spec", "agents.attention.attention_model"),
    ],
)
def test_examples_in_docstrings(name: str) -> None:
    results = doctest.testmod(import_module(f"stau_rl.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_command_takes_a_process_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processes in ((1, 1), (2, 2), (64, 8)):
        monkeypatch.setattr(probe_run, "cores", lambda cores=cores: cores)
        assert probe_run.default_processes("cpu") == processes


def test_a_notebook_shows_a_table_per_setting_and_folds_the_notes(result: ProbeResult) -> None:
    shown = result._repr_html_()
    assert shown.count("<caption") == len(SETTINGS)
    for setting in SETTINGS:
        assert f"{setting.task}: median of 2 seeds (worst)" in shown
    assert shown.count("<details>") == 1
    recall = result.summary().query("normaliser == 'sm_fir' and metric == 'recall'").iloc[0]
    assert f">{cell(recall['median'], recall['worst'])}</td>" in shown
