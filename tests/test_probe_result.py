"""The result of a probe: its tables, figures and files, and the ways to ask for it."""

import doctest
import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
import torch

import stau_rl
from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.envs.tasks import parse_task
from stau_rl.files.finished import TIMING
from stau_rl.machine.threads import one_torch_thread
from stau_rl.probe import run as probe_run
from stau_rl.probe.choose import choose
from stau_rl.probe.curves import Curves
from stau_rl.probe.folder import COLUMNS, GROUPS, TABLE
from stau_rl.probe.model import ProbeModels, Shape
from stau_rl.probe.overview import interval
from stau_rl.probe.plan import PART, Setting, plan
from stau_rl.probe.result import ProbeResult
from stau_rl.probe.run import run_settings
from stau_rl.probe.summary import summary
from stau_rl.probe.train import EVALUATION, Recipe, items

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
    assert len(files(folder)) == 3 * 2 + 3 + 6
    assert loaded.settings == result.settings
    pd.testing.assert_frame_equal(loaded.table(), result.table(), rtol=1e-9, check_dtype=False)
    pd.testing.assert_frame_equal(loaded.summary(), result.summary(), rtol=1e-8)
    for ours, theirs in zip(loaded.maps, result.maps, strict=True):
        assert set(ours) == set(theirs)
        assert all((ours[name] == theirs[name]).all() for name in ours)
    pd.testing.assert_frame_equal(loaded.curves(), result.curves())
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
    assert len(result.plot("curves").axes) == 2
    with pytest.raises(ValueError, match="kind must be one of masses, maps, curves, got 'rows'"):
        result.plot("rows")
    with pytest.raises(ValueError, match=r"setting must be one of silence, .*, passkey\(places=4\), got 'mqar'"):
        result.plot(setting="mqar")


def test_curves_are_the_loss_of_items_before_they_are_learned(result: ProbeResult) -> None:
    """Of 2 + 1 normalisers on 2 seeds, 3 steps each; the first by a model that no step has changed."""
    curves = result.curves()
    assert curves["step"].tolist() == [0, 1, 2] * 6
    setting = SETTINGS[1]
    task = parse_task(setting.task)
    models = ProbeModels(task, [parse_attention("softmax")], (0, 1), setting.shape, torch.device("cpu"))
    first = items(models, task, 0, setting.recipe.batch)
    logits, _ = models.forward(first)
    log_p = logits.double().log_softmax(-1).gather(-1, first.target[..., None])[..., 0, 0]
    begun = curves.query("part == 'length' and step == 0").sort_values("seed")
    assert begun["loss"].tolist() == pytest.approx((-log_p).mean(1).tolist(), rel=1e-5)
    right = (logits.argmax(-1) == first.target).double().mean((1, 2))
    assert begun["right"].tolist() == pytest.approx(right.tolist())
    assert begun["normaliser"].tolist() == ["softmax"] * 2


def test_long_trainings_are_looked_at_a_hundred_times_and_at_the_end() -> None:
    for steps, seen in ((3, 3), (100, 100), (250, 84), (1000, 101)):
        curves = Curves(1, steps)
        for step in range(steps):
            curves(step, torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, dtype=torch.int64))
        kept = curves.arrays([0])
        assert (kept["curve_steps"][0], kept["curve_steps"][-1], len(kept["curve_steps"])) == (0, steps - 1, seen)
        assert kept["curve_loss"].shape == (1, 1, seen)
        # Equal logits of four tokens.
        assert kept["curve_loss"].ravel().tolist() == pytest.approx([math.log(4)] * seen)


def test_groups_of_an_older_version_have_no_curves_and_no_rings(result: ProbeResult) -> None:
    kept = ("weights", "masses", "normalisers", "setting")
    old = ProbeResult(result.rows, tuple({name: group[name] for name in kept} for group in result.maps))
    assert old.curves().empty
    assert [len(old.plot(kind).axes) for kind in ("maps", "masses")] == [3, 2]
    with pytest.raises(ValueError, match="was trained before learning curves were kept"):
        old.plot("curves")
    rings = [len(panel.collections) for panel in result.plot("maps").axes[:2]]
    assert rings == [2, 2]


def test_the_right_slots_are_those_of_the_test_items(result: ProbeResult) -> None:
    task = parse_task(SETTINGS[0].task)
    batch = task.items(0, torch.arange(EVALUATION, EVALUATION + 8))
    assert result.maps[0]["slots"].tolist() == batch.slot[:, 0].tolist()
    (axes, *_) = result.plot("maps").axes
    there = [[slot, row] for row, slot in enumerate(batch.slot[:, 0].tolist()) if slot >= 0]
    assert axes.collections[0].get_offsets().tolist() == there


def test_masses_do_not_lie_on_one_another(result: ProbeResult) -> None:
    for panel in result.plot("masses", setting="silence").axes:
        there, absent = (patch.get_data().values for patch in panel.patches)
        assert (there >= 0).all()
        assert (absent <= 0).all()
        assert (there.sum(), absent.sum()) == (pytest.approx(1.0), pytest.approx(-1.0))


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
    options = {"batch": 5, "learning_rate": 0.5, "width": 6, "layers": 3, "heads": 2}
    (one,) = choose("small", "silence", "sm_fir", **options)  # type: ignore[arg-type]
    (plain,) = choose("small", "silence", "sm_fir")
    assert one == replace(plain, recipe=replace(plain.recipe, batch=5, rate=0.5), shape=Shape(6, 3, heads=2))
    for change, message in (
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be finite and > 0, got 0"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"heads": 3}, "width must be a multiple of heads, got width=64, heads=3"),
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


def test_the_command_takes_a_process_per_core_where_there_is_work_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A normaliser of silence is 600 steps x 128 items x 17 places x 3 seeds: 3.9 million, a process 10 million."""
    for cores, processes, few in ((1, 1, 1), (2, 2, 2), (64, 8, 3)):
        monkeypatch.setattr(probe_run, "cores", lambda cores=cores: cores)
        assert probe_run.default_processes("cpu") == processes
        assert probe_run.default_processes("cpu", plan("small", 3)) == min(processes, 5)
        assert probe_run.default_processes("cpu", choose("small", "silence", ["softmax"] * 1)) == 1
        several = choose("small", "silence", ["softmax", *(f"power_norm(p={p})" for p in range(2, 9))])
        assert probe_run.default_processes("cpu", several) == few


def test_a_notebook_shows_the_overview(result: ProbeResult) -> None:
    shown = result._repr_html_()
    assert shown.count("<caption") == 1
    assert all(setting.task in shown for setting in SETTINGS)
    own = result.rows.query("normaliser == 'sm_fir'")["recall"]
    assert f">{interval(own, 'recall')}</td>" in shown
