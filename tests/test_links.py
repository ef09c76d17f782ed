"""Folders of ours that are symbolic links: what lies behind them is never read, written or removed."""

from pathlib import Path
from typing import Any

import pytest

from rundir_cases import SPEC_A, play
from stau_rl.files.lock import DirectoryLock
from stau_rl.files.whole import whole_file
from stau_rl.plateau.folder import PlateauFolder
from stau_rl.probe.folder import ProbeFolder
from stau_rl.regret.directory import RunDirectory
from stau_rl.rl_study.folder import RLStudyFolder
from stau_rl.study.folder import StudyFolder
from stau_rl.training.folder import TrainFolder


def _train(path: Path) -> Any:
    return TrainFolder(path, {"agent": "ppo"}, True)


def _rl_study(path: Path) -> Any:
    return RLStudyFolder(path, True)


@pytest.mark.parametrize(
    ("pieces", "use"),
    [
        ("cells", lambda path: PlateauFolder(path, True)),
        ("groups", lambda path: ProbeFolder(path, True)),
        ("settings", lambda path: StudyFolder(path, [], resume=True)),
        ("seeds", _train),
        ("runs", _rl_study),
        ("parts", lambda path: RunDirectory.open(path, SPEC_A, resume=True)),
    ],
)
def test_pieces_behind_a_link_are_refused(pieces: str, use: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("a.csv", "a.npz", "a.json", ".a.npz.tmp"):
        (elsewhere / name).write_text("theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / pieces).symlink_to(elsewhere)
    with pytest.raises(ValueError, match=rf"{pieces} is a symbolic link to .*elsewhere, and files behind it"):
        use(tmp_path / "out")
    assert sorted(file.name for file in elsewhere.iterdir()) == [".a.npz.tmp", "a.csv", "a.json", "a.npz"]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [pieces]


def test_a_run_that_becomes_finished_removes_no_parts_behind_a_link(tmp_path: Path) -> None:
    play(tmp_path / "run", SPEC_A, resume=False)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.npz").write_text("theirs")
    (tmp_path / "run" / "parts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="parts is a symbolic link"):
        play(tmp_path / "run", SPEC_A, resume=True)
    assert (tmp_path / "elsewhere" / "a.npz").is_file()


def test_a_folder_that_is_itself_a_link_is_the_users_choice(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    assert play(tmp_path / "run", SPEC_A, resume=False) == 8
    assert (tmp_path / "disk" / "regret.png").is_file()


def test_files_on_their_way_are_not_written_through_links(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / ".a.csv.tmp").symlink_to(tmp_path / "theirs")
    with whole_file(tmp_path / "a.csv") as temporary:
        temporary.write_text("ours")
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert (tmp_path / "a.csv").read_text() == "ours"
    (tmp_path / ".lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="symbolic links"):
        DirectoryLock(tmp_path).take()
    assert not (tmp_path / "nowhere").exists()
