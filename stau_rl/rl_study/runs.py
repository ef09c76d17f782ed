"""The runs of a study of heads in reinforcement learning, and how a point of a grid is chosen by them."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stau_rl.files.identity import identity
from stau_rl.heads import parse_head
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.plugin.plugin_head import head_hashes
from stau_rl.rl_study.tasks import Family, Task, has_control, points, settings
from stau_rl.training.run import RunSpec

TUNING, CONTROL = "tuning", "control"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StudyRun:
    """One run of the study.

    Attributes:
        task: what is learned.
        family: whose head.
        head: text of the head.
        rate: learning rate.
        role: `tuning`, `evaluation`, or `control`, which has the seeds of the evaluation.
        seed: number of the seed within its role.
        shorter: divides the steps; 1 in a study that counts.
        control_of: name of the family whose control this is.
    """

    task: Task
    family: Family
    head: str
    rate: float
    role: str
    seed: int
    shorter: int = 1
    control_of: str = ""

    @property
    def spec(self) -> RunSpec:
        """What the run's process is given."""
        seed = purpose_seed(self.seed, "tuning" if self.role == "tuning" else "evaluation")
        return RunSpec(self.task.agent, settings(self.task, self.family, self.head, self.rate, self.shorter), seed)

    @property
    def file_name(self) -> str:
        """Name of its file, with a digest of everything that decides its numbers."""
        spec = self.spec
        decides: dict[str, Any] = {"agent": spec.agent, "settings": spec.settings, "seed": spec.seed}
        if hashes := head_hashes([parse_head(self.head)]):
            decides["plugins"] = hashes
        text = json.dumps(identity(decides), sort_keys=True)
        # A task of one's own is called after its environment, `stau_rl:stau_rl/BernoulliBandit-v0` say.
        name = re.sub(r"[^\w.-]+", "_", self.task.name)
        return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def tuning_runs(task: Task, family: Family, seeds: int, shorter: int) -> list[StudyRun]:
    """Every point of the grid on every tuning seed."""
    return [
        StudyRun(task, family, head, rate, "tuning", seed, shorter)
        for head, rate in points(task, family)
        for seed in range(seeds)
    ]


def control_runs(
    task: Task, family: Family, reference: Family, point: tuple[str, float], seeds: int, shorter: int = 1
) -> list[StudyRun]:
    """The reference at the sharpness and learning rate of a family's point; none for itself or on another grid."""
    if not has_control(family, reference):
        return []
    head, rate = dict(zip(points(task, family), points(task, reference), strict=True))[point]
    return [StudyRun(task, reference, head, rate, CONTROL, seed, shorter, family.name) for seed in range(seeds)]


def best_point(rows: Sequence[Row]) -> tuple[str, float]:
    """Head and learning rate of the best mean sampled score; ties go to the higher mean of the learning curve."""
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["head"], row["learning_rate"]), []).append(row)

    def quality(point: tuple[str, float]) -> tuple[float, float]:
        members = groups[point]
        return _mean([row["sampled"] for row in members]), _mean([row["curve_mean"] for row in members])

    return max(groups, key=quality)


def row_of(run: StudyRun, kept: dict[str, Any]) -> Row:
    """A finished run as a row of the study's table."""
    returns = [point["train_return"] for point in kept["curve"] if point["train_return"] is not None]
    return {
        "task": run.task.name,
        "agent": run.task.agent,
        "env": run.task.place,
        "steps": kept["settings"]["steps"],
        "family": run.family.name,
        "head": run.head,
        "score_offset": run.family.offset,
        "learning_rate": run.rate,
        "role": run.role,
        "control_of": run.control_of,
        "seed": run.seed,
        "sampled": kept["sampled"],
        "deterministic": kept["deterministic"],
        "curve_mean": _mean(returns) if returns else float("-inf"),
        "episodes": kept["settings"]["episodes"],
        "seconds": kept["seconds"],
        "commit": kept["commit"],
        "versions": kept["versions"],
        "device": kept["device"],
    }


def curve_rows(results: Mapping[StudyRun, dict[str, Any]]) -> Iterator[Row]:
    """A row per evaluation run and point of its learning curve."""
    for run, kept in results.items():
        if run.role == "evaluation":
            for number, point in enumerate(kept["curve"], 1):
                yield {
                    "task": run.task.name,
                    "family": run.family.name,
                    "seed": run.seed,
                    "point": number,
                    "step": point["step"],
                    "train_return": point["train_return"],
                }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
