"""What a study of heads in reinforcement learning would play: how many runs, and for how long."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stau_rl.rl_study.tasks import RATES, SLOPES, Family, Task, has_control, points

NOTES = (
    "runs = points x tuning seeds + evaluation seeds + controls.",
    f"Points: {len(SLOPES)} sharpnesses x {RATES} learning rates; {len(SLOPES) * RATES} learning rates for a family "
    "without {x}.",
    "Controls: evaluation seeds of the first family at the point chosen for another, where both have {x}.",
)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a task and family in a study.

    Attributes:
        task: what is learned.
        family: whose head.
        points: of its grid.
        tuning_seeds: seeds per point.
        seeds: evaluation runs.
        controls: runs of the first family beside them.
    """

    task: Task
    family: Family
    points: int
    tuning_seeds: int
    seeds: int
    controls: int

    @property
    def runs(self) -> int:
        """All runs."""
        return self.points * self.tuning_seeds + self.seeds + self.controls


def shares(tasks: Sequence[Task], families: Sequence[Family], tuning_seeds: int, seeds: int) -> Iterator[Share]:
    """A share per task and family; the first family is the reference."""
    for task in tasks:
        for family in families:
            controls = seeds * has_control(family, families[0])
            yield Share(task, family, len(points(task, family)), tuning_seeds, seeds, controls)


def estimate(
    tasks: Sequence[Task], families: Sequence[Family], tuning_seeds: int, seeds: int, shorter: int = 1
) -> tuple[int, float]:
    """Rows of a study, and the minutes that one core would need if each were a run of its own.

    Raises:
        ValueError: a number is less than 1.
    """
    for name, value in (("tuning_seeds", tuning_seeds), ("seeds", seeds), ("shorter", shorter)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")
    found = list(shares(tasks, families, tuning_seeds, seeds))
    return sum(share.runs for share in found), sum(share.task.seconds * share.runs for share in found) / 60 / shorter


def plan(tasks: Sequence[Task], families: Sequence[Family], tuning_seeds: int, seeds: int) -> str:
    """The shares as a table, a line per task and family, and what its columns are."""
    header = ("task", "family", "points", "tuning seeds", "evaluation seeds", "controls", "runs")
    rows = [
        (share.task.name, share.family.name, share.points, share.tuning_seeds, share.seeds, share.controls, share.runs)
        for share in shares(tasks, families, tuning_seeds, seeds)
    ]
    return "\n".join([text_table(header, rows), *NOTES])


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]], gap: int = 2) -> str:
    """Columns of equal width with a gap between them; the first two are flush left, the others flush right."""
    lines = [header, *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        sides = ("<" if number < 2 else ">" for number in range(len(cells)))
        return (" " * gap).join(f"{cell:{side}{width}}" for cell, side, width in zip(cells, sides, widths, strict=True))

    return "\n".join(line(cells).rstrip() for cells in lines)
