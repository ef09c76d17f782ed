"""Each family's own best parameter, on instances that no comparison is made on.

Every family gets the same number of grid points, on the same instances with the same luck: first log-spaced slopes over
the whole range, then as many points for everyone between the neighbours of the best. A grid that was set by hand is
tried as it is, without such a second one. The best of all these go on to two rounds of fewer members on more instances
(successive halving), so that the choice rests on as many instances as the comparison that follows.

Source: Karnin, Koren, Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013 (successive halving).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stau_rl.agents.bandit import Policy
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.study.family import Family
from stau_rl.study.setting import Setting

Play = Callable[[list[Policy], int, int], dict[Policy, NDArray[np.float64]]]
"""Policies, instances and 64-bit seed to the regret of every policy and instance at the horizon."""


@dataclass(frozen=True, eq=False)
class Tuning:
    """What tuning a family showed.

    Attributes:
        best: the member of least mean regret.
        edge: `low` or `high` where the best lies at that end of the grid, else empty.
        slopes: the slopes tried, ascending.
        policies: the members tried, in the order of the slopes.
        regret: their regrets in the first round, float64 [members, tuning instances].
        finalists: the members of the last round, in the order of the slopes.
        final: their regrets in it, float64 [finalists, instances].
    """

    best: Policy
    edge: str
    slopes: list[float]
    policies: list[Policy]
    regret: NDArray[np.float64]
    finalists: list[Policy]
    final: NDArray[np.float64]


def tune(family: Family, setting: Setting, play: Play) -> Tuning | None:
    """Find the family's best member; None if it has nothing to tune.

    Args:
        family: the family.
        setting: gives the range, the budget and the tuning instances.
        play: plays policies on the setting's arms.
    """
    if not family.tunable:
        return None
    seed = purpose_seed(setting.seed, "tuning")
    own = setting.grid(family.text)
    if own is None:
        slopes = family.grid(*setting.reach(family.text), setting.coarse)
        coarse = {slope: family.member(slope) for slope in slopes}
    else:
        coarse = {family.slope_of(value): family.with_value(value) for value in own}
    regret: dict[float, NDArray[np.float64]] = {}
    members: dict[float, Policy] = {}

    def try_out(made: dict[float, Policy]) -> None:
        fresh = {slope: member for slope, member in made.items() if member not in members.values()}
        found = play(list(fresh.values()), setting.tuning_instances, seed)
        for slope, policy in fresh.items():
            members[slope], regret[slope] = policy, found[policy]

    try_out(coarse)
    best = min(regret, key=lambda slope: float(regret[slope].mean()))
    ordered = list(coarse)
    place = ordered.index(best)
    below, above = ordered[max(place - 1, 0)], ordered[min(place + 1, len(ordered) - 1)]
    if own is None and setting.fine and below < above:
        try_out({slope: family.member(slope) for slope in _between(below, best, above, setting.fine)})
    slopes = sorted(regret)
    first = np.array([regret[slope] for slope in slopes])
    final = dict(regret)
    for most, instances in setting.rounds:
        kept = sorted(final, key=lambda slope: float(final[slope].mean()))[:most]
        found = play([members[slope] for slope in sorted(kept)], instances, seed)
        final = {slope: found[members[slope]] for slope in sorted(kept)}
    best = min(final, key=lambda slope: float(final[slope].mean()))
    edge = "low" if best == slopes[0] else "high" if best == slopes[-1] else ""
    return Tuning(
        best=members[best],
        edge=edge,
        slopes=slopes,
        policies=[members[slope] for slope in slopes],
        regret=first,
        finalists=[members[slope] for slope in final],
        final=np.array(list(final.values())),
    )


def _between(below: float, best: float, above: float, points: int) -> list[float]:
    """Points between two neighbours of the best, half on either side of it (all on one side at an end of the grid)."""
    sides = [(below, best)] if best == above else [(best, above)] if best == below else [(below, best), (best, above)]
    found: list[float] = []
    for number, (low, high) in enumerate(sides):
        count = points // len(sides) + (number < points % len(sides))
        found += np.geomspace(low, high, count + 2)[1:-1].tolist()
    return found
