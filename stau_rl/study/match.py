"""The reference family's member that is as sharp as another family's raw member, and how well it is known."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from stau_rl.agents.bandit import Pipe, Policy
from stau_rl.calibration import match_sharpness
from stau_rl.heads import Head
from stau_rl.kernels.purposes import purpose_seed
from stau_rl.study.engine import engine_for
from stau_rl.study.family import Family
from stau_rl.study.pilot import seen_scores
from stau_rl.study.setting import Setting

# Relative change of the parameter over which slopes of an entropy are taken.
STEP = 0.01
# The same for slopes of a regret, which is less smooth in a finite sample.
REGRET_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Control:
    """An equally sharp member of the reference family.

    Attributes:
        policy: the member.
        log_se: standard error of the logarithm of its parameter; 0 where the match is exact.
        beside: two members, one with less and one with more of the parameter, which show how regret depends on it; none
            where the match is exact.
        apart: difference of the logarithms of their parameters.
    """

    policy: Policy
    log_se: float = 0.0
    beside: tuple[Policy, ...] = ()
    apart: float = 0.0


def unmatched(kind: str, family: Family, first: Family) -> str:
    """Why two families have no comparison at equal sharpness; empty if nothing speaks against it.

    Args:
        kind: `slope` or `entropy`.
        family: the family to be matched.
        first: the reference, whose parameter would be set.
    """
    for one in (family, first):
        if one.templated:
            return f"{one.shown} is a template, whose {{x}} may be anything"
        head = one.raw.head
        if one.raw.score is None or head is None:
            return f"{one.shown} has no head on scores"
        if head.schedules:
            return f"{one.shown} changes with t"
        if head.sharpness is None:
            return f"{one.shown} has no sharpness parameter"
        if kind == "slope" and not head.smooth_at_zero:
            return f"{one.shown} is not smooth at score 0"
    return ""


def find_control(
    kind: str, family: Family, first: Family, setting: Setting, engine: str = "auto", device: str = "auto"
) -> Control | None:
    """The reference family's member of equal slope at score 0, or of equal mean entropy on the scores seen.

    The scores come from a pilot run of the family's raw member. Its instances are independent, so the matched
    parameter is a Z-estimator: with g_i(beta) the difference of the two mean entropies on the scores of instance i,
    the standard error of log beta is sd(g_i) / (sqrt(n) |d mean g / d log beta|).

    Args:
        kind: `slope` or `entropy`.
        family: the family whose raw member is matched.
        first: the reference.
        setting: gives arms, horizon, seed and the pilot's instances.
        engine: plays the pilot.
        device: where it is played.

    Returns:
        The control; None where there is none.
    """
    if unmatched(kind, family, first):
        return None
    policy: Any = family.raw
    theirs: Any = first.head
    scores: Tensor | None = None
    if kind == "entropy":
        engine = engine_for(family.raw, setting.arms, setting.horizon, engine, device)
    try:
        if kind == "slope":
            matched: Any = match_sharpness(policy.head, theirs)
        else:
            seed = purpose_seed(setting.seed, "pilot")
            scores = seen_scores(
                family.raw, setting.arms, setting.horizon, setting.pilot_instances, seed, engine=engine, device=device
            )
            matched = match_sharpness(policy.head, theirs, on="entropy", scores=scores, dim=0)
    except ValueError:
        # No member of the first family is that soft or that sharp.
        return None
    if not float(getattr(matched, str(matched.sharpness))):
        return None
    unit = Family(str(Pipe(policy.score, matched)))
    slope = unit.slope(unit.raw)
    control = unit.member(slope)
    if scores is None:
        return Control(control)
    log_se = _log_error(policy.head, matched, scores, setting.pilot_instances)
    step = max(REGRET_STEP, min(log_se, 1.0))
    above = unit.member(slope * math.exp(step))
    try:
        return Control(control, log_se, (unit.member(slope * math.exp(-step)), above), 2 * step)
    except ValueError:
        # The parameter is next to its smallest legal value.
        return Control(control, log_se, (control, above), step)


def _log_error(head: Head, matched: Any, scores: Tensor, instances: int) -> float:
    """Standard error of the logarithm of the matched parameter."""
    gap = _entropies(head, scores, instances) - _entropies(matched, scores, instances)
    value = getattr(matched, matched.sharpness)
    # Upwards alone: a smaller parameter may not be legal.
    sharper = replace(matched, **{matched.sharpness: value * math.exp(STEP)})
    slope = float((_entropies(sharper, scores, instances) - _entropies(matched, scores, instances)).mean()) / STEP
    return float(gap.std()) / math.sqrt(instances) / abs(slope) if slope and instances > 1 else math.inf


def _entropies(head: Head, scores: Tensor, instances: int) -> Tensor:
    """Mean entropy over the steps of each instance, float64 [instances]."""
    weights = head.unchecked_log_weights(scores, 0).exp()
    return torch.special.entr(weights).sum(0).reshape(-1, instances).mean(0)
