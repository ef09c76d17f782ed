"""What a run that is not finished has so far: instances and mean regret by policy, from the parts in its folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stau_rl.files.lock import DirectoryLock
from stau_rl.regret.directory import PARTS, RunDirectory
from stau_rl.regret.files import SPEC
from stau_rl.statistics.means import MeanInterval, mean_interval


@dataclass(frozen=True, slots=True)
class PolicyProgress:
    """One policy.

    Attributes:
        policy: its text.
        instances: how many are finished.
        regret: their mean regret at the last checkpoint, with its interval; None without any.
    """

    policy: str
    instances: int
    regret: MeanInterval | None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run.

    Attributes:
        spec: its spec.
        finished: all files are there.
        running: a process holds the folder.
        policies: what each has.
        seconds_left: at the pace of the parts that are there; nan where it cannot be told.
    """

    spec: dict[str, Any]
    finished: bool
    running: bool
    policies: list[PolicyProgress]
    seconds_left: float


def run_progress(path: Path) -> RunProgress:
    """Look at a run directory; nothing in it is touched, whoever works in it.

    Raises:
        ValueError: it is no run.
        OSError: it cannot be read.
    """
    try:
        spec = json.loads((path / SPEC).read_text(encoding="utf-8"))
        names, instances = [str(name) for name in spec["policies"]], int(spec["instances"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: {SPEC} is no spec of stau-rl ({error})") from None
    run = RunDirectory(path, spec)
    found = []
    for name in names:
        blocks = [] if run.finished else run.blocks(name)
        last = np.concatenate([block.regret[-1] for block in blocks]) if blocks else np.empty(0)
        found.append(PolicyProgress(name, last.size, mean_interval(last) if last.size > 1 else None))
    done, all_of_it = sum(one.instances for one in found), len(names) * instances
    times = sorted(file.stat().st_mtime for file in (path / PARTS).glob("*.npz"))
    left = float("nan")
    if len(times) > 1 and times[-1] > times[0]:
        # The first part is there when its time begins to count.
        share = done / all_of_it * (1 - 1 / len(times))
        left = (times[-1] - times[0]) * (1 - done / all_of_it) / share
    return RunProgress(spec, run.finished, DirectoryLock(path).held_elsewhere(), found, left)
