"""Files of others that stand in a folder are never lost, and what a killed process leaves is gone on with."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rundir_cases import SPEC_A
from stau_rl.cli.main import main
from stau_rl.files.finished import write_table
from stau_rl.files.whole import write_json
from stau_rl.plateau.folder import PlateauFolder
from stau_rl.plugin.load import load_plugin
from stau_rl.probe.folder import ProbeFolder
from stau_rl.regret.directory import RunDirectory
from stau_rl.rl_study.folder import RLStudyFolder
from stau_rl.study.folder import StudyFolder
from stau_rl.training.folder import TrainFolder
from stau_rl.training.run import RunSpec, play_run


def _study(path: Path, resume: bool = False) -> Any:
    return StudyFolder(path, [], resume=resume)


def _train(path: Path, resume: bool = False) -> Any:
    return TrainFolder(path, {"agent": "ppo"}, resume)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("make", "names"),
    [
        (PlateauFolder, ["plateau.csv", "plateau_curves.csv", "plateau.png"]),
        (
            ProbeFolder,
            ["probe.csv", "summary.csv", "curves.csv", "maps-recall-1.png", "masses-recall-1.png", "curves-a-1.png"],
        ),
        (_study, ["study.csv", "curves.png"]),
        (RLStudyFolder, ["rl_runs.csv", "rl_curves.csv"]),
    ],
)
def test_tables_of_another_origin_are_refused(make: Any, names: list[str], resume: bool, tmp_path: Path) -> None:
    for name in [*names, "timing.json"]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("theirs")
        with pytest.raises(ValueError, match=f"holds {name}, which would be lost, and no finished piece"):
            make(folder, resume)
        assert [(file.name, file.read_text()) for file in folder.iterdir()] == [(name, "theirs")]


@pytest.mark.parametrize("make", [PlateauFolder, ProbeFolder, _study, RLStudyFolder])
def test_times_without_a_piece_are_of_a_process_that_was_killed(make: Any, tmp_path: Path) -> None:
    (tmp_path / "timing.json").write_text('{"first": 1.5}')
    with make(tmp_path, True) as folder:
        (tmp_path / folder.pieces / f"a.{folder.ending}").write_text("ours")
    # With a piece, tables are made of pieces, and made anew.
    for name in folder.tables:
        (tmp_path / name.replace("*", "a")).write_text("ours")
    with make(tmp_path, True):
        pass


def test_a_training_that_was_killed_before_it_said_what_it_is_goes_on(tmp_path: Path) -> None:
    (tmp_path / "seeds").mkdir()
    for name in (".lock", ".settings.json.tmp"):
        (tmp_path / name).write_text("{")
    with _train(tmp_path, True):
        assert (tmp_path / "settings.json").is_file()
    (tmp_path / "settings.json").unlink()
    (tmp_path / "seeds" / "theirs.txt").touch()
    with pytest.raises(ValueError, match=r"files that are no training \(seeds\)"):
        _train(tmp_path, True)


@pytest.mark.parametrize("make", [PlateauFolder, ProbeFolder, _study, RLStudyFolder, _train, RunDirectory.open])
def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_is_done(make: Any, tmp_path: Path) -> None:
    arguments = (SPEC_A,) if make == RunDirectory.open else ()
    with pytest.raises(ValueError, match=r"the path '.*a\\udcff' has bytes that are not UTF-8; name another"):
        make(tmp_path / "a\udcff", *arguments)
    with pytest.raises(ValueError, match="not UTF-8"):
        load_plugin(tmp_path / "a\udcff.py")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["scores.npz", "link.npz"])
def test_the_scores_that_are_analysed_are_not_written_over(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "scores.npz", scores=np.ones((1, 1, 2, 2)))
    (tmp_path / "link.npz").symlink_to("scores.npz")
    before = (tmp_path / "scores.npz").read_bytes()
    with pytest.raises(SystemExit, match="2"):
        main(["analyse", str(tmp_path / "scores.npz"), "--out", str(tmp_path / name)])
    assert "is the file of the scores, which would be lost" in capsys.readouterr().err
    assert (tmp_path / "scores.npz").read_bytes() == before


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file may grow beyond 1000 bytes."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, kept[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, kept)


def _checkpoint(path: Path) -> None:
    play_run(RunSpec("reinforce", {"env": "CartPole-v1", "steps": 64, "points": 1}, 0), path)


def _table(path: Path) -> None:
    write_table(path, pd.DataFrame({"a": range(1000)}))


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("write", [_checkpoint, _table, lambda path: write_json(path, "a" * 2000)])
def test_a_full_disk_is_an_error_of_the_system_that_names_the_file(write: Any, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"File too large: '.*whole\.txt'"):
        write(tmp_path / "whole.txt")
    assert list(tmp_path.iterdir()) == []
