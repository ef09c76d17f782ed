"""`stau-rl status`: how far the work in a folder is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stau_rl.cli.options import PositionalPath

MORE = {"train": ", and takes more --steps or --seeds"}
"""What a finished folder of a command takes, beside what it has."""


@dataclass(frozen=True)
class Status:
    """How far is the work in a folder, and what has it found so far?

    It reads a folder of stau-rl regret, study, probe, train, rl-study or plateau while the work goes on, after it was
    stopped, or when it is finished, and changes nothing in it.

    Example: stau-rl status runs/my-run
    """

    folder: PositionalPath
    """The folder, as named with --out."""

    after_stop = ""

    def run(self) -> None:
        """Print it."""
        from stau_rl.terminal.console import wide_console

        console = wide_console()
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder} is no folder; name one that a command has filled with --out")
        for part in _regret(self.folder) or _pieces(self.folder):
            console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))


def _regret(folder: Path) -> list[Any]:
    """The lines and the table on a regret benchmark; none where the folder holds none."""
    from stau_rl.regret.files import SPEC

    if not (folder / SPEC).is_file():
        return []
    from rich.table import Table

    from stau_rl.regret.progress import run_progress

    found = run_progress(folder)
    spec = found.spec
    size = f"{spec['instances']} instances, {spec['horizon']} steps, {len(spec['policies'])} policies on {spec['arms']}"
    if found.finished:
        again = f"stau-rl regret --out {folder} --resume"
        return [f"{folder}: a finished run of stau-rl regret, {size}. {again} prints its table."]
    table = Table()
    for column in ("policy", "instances", f"regret at {spec['checkpoints'][-1]}", "95 % interval"):
        table.add_column(column, justify="left" if column == "policy" else "right", overflow="fold")
    for one in found.policies:
        cells = ("-", "-")
        if one.regret is not None:
            cells = (f"{one.regret.mean:.4g}", f"[{one.regret.low:.4g}, {one.regret.high:.4g}]")
        table.add_row(one.policy, f"{one.instances} of {spec['instances']}", *cells)
    return [f"{folder}: {_state(found.running)} of stau-rl regret, {size}.", table, *_left(found, folder)]


def _left(found: Any, folder: Path) -> list[str]:
    if found.running:
        return [] if found.seconds_left != found.seconds_left else [f"About {found.seconds_left:.0f} s are left."]
    return [f"stau-rl regret --out {folder} --resume goes on with it."]


def _state(running: bool) -> str:
    return "a run at work" if running else "a run that was stopped"


def _pieces(folder: Path) -> list[str]:
    """Lines on a folder of finished pieces.

    Raises:
        ValueError: it is no such folder.
    """
    from stau_rl.files.finished import read_timing
    from stau_rl.files.lock import DirectoryLock
    from stau_rl.plateau.folder import PlateauFolder
    from stau_rl.probe.folder import ProbeFolder
    from stau_rl.rl_study.folder import RLStudyFolder
    from stau_rl.study.folder import StudyFolder
    from stau_rl.training.folder import SETTINGS, TrainFolder
    from stau_rl.training.request import kept_spec

    kinds: dict[str, tuple[Any, str]] = {
        "train": (TrainFolder, "seeds"),
        "study": (StudyFolder, "settings"),
        "probe": (ProbeFolder, "groups of models"),
        "rl-study": (RLStudyFolder, "runs"),
        "plateau": (PlateauFolder, "cells"),
    }
    for command, (kind, name) in kinds.items():
        if not (folder / kind.pieces).is_dir() or (command == "train") != (folder / SETTINGS).is_file():
            continue
        done = sorted((folder / kind.pieces).glob(f"*.{kind.ending}"))
        whole = len((kept_spec(folder) or {}).get("seeds", ())) if command == "train" else 0
        seconds = sum(value for value in read_timing(folder).values() if isinstance(value, (int, float)))
        finished = any(next(folder.glob(pattern), None) for pattern in kind.tables) or (
            command == "train" and (folder / "scores.csv").is_file()
        )
        running = DirectoryLock(folder).held_elsewhere()
        state = "at work" if running else "finished" if finished else "stopped"
        lines = [f"{folder}: {kind.made_for} of stau-rl {command}, {state}."]
        lines.append(f"{len(done)}{f' of {whole}' if whole else ''} {name} are finished, {seconds:.0f} s of work.")
        if done:
            lines.append(f"The last: {max(done, key=lambda path: path.stat().st_mtime).name}.")
        if not running:
            options = "" if command == "train" else ", with the options it was begun with,"
            lines.append(f"stau-rl {command} --out {folder} --resume{options} goes on{MORE.get(command, '')}.")
        return lines
    raise ValueError(f"{folder} holds no work of stau-rl; name a folder that a command has filled with --out")
