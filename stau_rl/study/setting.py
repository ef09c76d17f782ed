"""One setting of a study: the same arms for several families, tuned on some instances, compared on others."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared where; two equal settings give equal rows.

    Attributes:
        sweep: the axis that this setting is a point of, such as `base` or `c`.
        value: where on the axis it lies, as text.
        arms: text of the arms.
        families: texts of the families; the first is the reference.
        horizon: steps per instance.
        instances: instances of the evaluation.
        tuning_instances: instances that each grid point is tried on, in the first round of tuning.
        pilot_instances: instances whose scores are collected for the match by entropy.
        seed: the study's seed.
        low: smallest slope of the grid.
        high: largest slope of the grid.
        coarse: points of the first grid.
        fine: points of the second grid, between the neighbours of the best of the first.
        finalists: members that enter the last round of tuning, on as many instances as the evaluation has.
        references: policies shown beside the families, as they are.
        ranges: by the place of a family, the ends of its own grid, for a parameter that is no slope; None, or nothing
            at all, where it is from `low` to `high`.
        grids: by the place of a family, the values of its parameter that were set by hand, ascending: its whole grid.
            None, or nothing at all, where the grid is one of slopes.
        content: digests of what the texts stand for and do not show: code of plug-in heads, files of observations.
    """

    sweep: str
    value: str
    arms: str
    families: tuple[str, ...]
    horizon: int
    instances: int
    tuning_instances: int
    pilot_instances: int
    seed: int
    low: float
    high: float
    coarse: int
    fine: int
    finalists: int = 3
    references: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    ranges: tuple[tuple[float, float] | None, ...] = ()
    grids: tuple[tuple[float, ...] | None, ...] = ()

    @property
    def identity(self) -> str:
        """Hexadecimal digest of everything that decides the numbers."""
        fields = self.fields()
        if not self.content:
            del fields["content"]
        text = json.dumps({"format": FORMAT, **fields}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def fields(self) -> dict[str, Any]:
        """The attributes by name; `ranges` and `grids`, which few settings have, only where there are some."""
        found = asdict(self)
        for name in ("ranges", "grids"):
            if not found[name]:
                del found[name]
        return found

    def reach(self, family: str) -> tuple[float, float]:
        """The ends of a family's grid."""
        place = self.families.index(family)
        own = self.ranges[place] if place < len(self.ranges) else None
        return own or (self.low, self.high)

    def grid(self, family: str) -> tuple[float, ...] | None:
        """The values of a family's parameter that were set by hand; None where there are none."""
        place = self.families.index(family)
        return self.grids[place] if place < len(self.grids) else None

    def tries(self, family: str) -> int:
        """Members of a family that are tried, if it can be tuned."""
        own = self.grid(family)
        return self.budget if own is None else len(own)

    @property
    def file_name(self) -> str:
        """Name of the file that holds its rows."""
        shown = "".join(letter if letter.isalnum() else "-" for letter in f"{self.sweep}-{self.value}")
        return f"{shown[:60]}-{self.identity}.csv"

    @property
    def budget(self) -> int:
        """Policies that are tried for each family that can be tuned and has no grid set by hand."""
        return self.coarse + self.fine

    @property
    def rounds(self) -> tuple[tuple[int, int], ...]:
        """(members kept, instances) of the rounds of tuning that follow the grids.

        Ever fewer members on ever more instances: three times the finalists half-way, on a logarithmic scale, to the
        last round, then the finalists.
        """
        last = max(self.instances, self.tuning_instances)
        return (3 * self.finalists, round((self.tuning_instances * last) ** 0.5)), (self.finalists, last)

    def tuning_work(self, family: str) -> int:
        """Instances that are played to tune a family, over all its members and rounds."""
        tries = self.tries(family)
        return tries * self.tuning_instances + sum(min(members, tries) * n for members, n in self.rounds)

    def columns(self) -> dict[str, Any]:
        """What every row of this setting says about it."""
        return {"sweep": self.sweep, "value": self.value, "arms": self.arms, "horizon": self.horizon, "seed": self.seed}
