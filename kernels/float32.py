"""What float32 scores can hold: the guard of the engines that compute in them.

A score of size S carries an error of about S 2^-24, which a head of slope b = |d log f / ds| turns into a relative
error b S 2^-24 of a weight. Two histories part where a uniform falls between two values of a cumulative weight, so

- a weight is off by at most about b S 2^-26, which is to stay below 2e-5 of a boundary;
- the chance that a step parts them is about S 2^-24 min(b, 1 / D) per pair of arms, for scores that differ by D, which
  is to leave 99 % of the histories of 10 arms identical over 1000 steps.

Both limits are set by recorded histories of ten arms. The guard reads the arms' spec (see `ArmTable.levels`), never the
means that one instance has drawn, so that all instances and all seeds of a run are played alike.
"""

import math
from typing import Any

import numpy as np

from stau_rl.kernels.contract import LARGEST_NORMAL, ArmTable, EngineError, UnfitError
from stau_rl.kernels.head_parameters import Parameters
from stau_rl.spec.schedule import Schedule

# Largest b S of a weight within 2e-5, and largest S min(b, 1 / D) of 99 % of identical histories of ten arms.
STEEPEST, LONGEST = 1100.0, 20.0
# The contract is one of histories of so many steps.
STEPS = 1000
# Largest power that is taken through a float32 logarithm, whose rounding it multiplies.
POWER = 100.0
# Whole powers up to it are multiplied out.
WHOLE = 15
# Numbers beyond it, or below its inverse, come too near the ends of float32 to be multiplied.
EXTREME = 1e30
TINY = 1e-300
# A Gaussian reward comes from a float32 quantile, which is off by so many roundings of one standard deviation.
QUANTILE_ROUNDINGS = 5.0
# Largest step of a gradient bandit's log weights: beyond it a preference is as large as its rounding matters.
KICK = 16.0
# Scores of which the largest of a row is never below their offset.
CENTRED = ("centred_ucb", "reward_centred_ucb")
# The same of an escort, by the least power: its preferences cross 0, where the slope p / H has no bound, and only
# weights that vanish there quickly hide it.
ESCORT_KICKS = ((0.0, 0.03), (2.0, 0.8), (3.0, KICK))
# A reward below its baseline drives preferences apart, and their rounding too: largest exponent of that growth.
GROWTH = 4.0
# Heads that see differences of scores alone.
SHIFT_FREE = ("softmax", "argmax", "sparsemax", "entmax15", "entmax")


class Float32Error(UnfitError):
    """Float32 does not hold what a policy computes with."""


def require_float32(engine: str, dtype: str) -> None:
    """Raise an EngineError unless weights are asked for in float32."""
    if dtype != "float32":
        raise EngineError(f"the {engine} engine computes in float32, got dtype={dtype!r}; engine='torch' has float64")


def misfit(policy: Any, arms: ArmTable, horizon: int) -> str:
    """Why float32 scores cannot play a policy within the contract; empty if they can.

    Args:
        policy: the policy, lowered. Those that take the largest of some numbers decide in float64 on every engine.
        arms: any block of the arms.
        horizon: number of steps T.
    """
    if policy.name == "pipe" and policy.head.name != "argmax":
        return _misfit_of_scores(policy.score, policy.head, arms, horizon)
    if policy.name == "gradient_bandit":
        return _misfit_of_preferences(policy, arms, horizon)
    return ""


def score_range(arms: ArmTable, score: str, c: float, horizon: int) -> tuple[float, float]:
    """Bounds of mean and UCB scores, before centring, from the bounds of the rewards of any instance."""
    levels = arms.levels()
    if arms.kind == "bernoulli":
        low, high = 0.0, 1.0
    elif arms.kind == "gaussian":
        reach = LARGEST_NORMAL * arms.sigma
        low, high = levels[0] - reach, levels[-1] + reach
    else:
        low, high = float(arms.values.min()), float(arms.values.max())
    if score == "mean":
        return min(low, 0.0), max(high, 0.0)
    return low, high + c * math.sqrt(2.0 * math.log(max(horizon, 2)))


def _misfit_of_scores(score: Any, head: Any, arms: ArmTable, horizon: int) -> str:
    c = _largest(getattr(score, "c", 0.0), horizon) if score.name != "mean" else 0.0
    for offset in _offsets(0.0 if head.name in SHIFT_FREE else getattr(score, "offset", 0.0), horizon):
        if why := _misfit_at_offset(score, head, c, offset, arms, horizon):
            return why
    return ""


def _offsets(value: Any, horizon: int) -> tuple[float, ...]:
    """Where an offset may not fit: the number itself, or the ends of a schedule and what lies nearest 0 between."""
    if not isinstance(value, Schedule):
        return (float(value),)
    low, high = Parameters(schedules=(value, None)).extent(0, horizon)
    return low, high, min(max(low, 0.0), high)


def _misfit_at_offset(score: Any, head: Any, c: float, offset: float, arms: ArmTable, horizon: int) -> str:
    _, lower, below, above, upper, _ = arms.levels()
    k, steps = arms.arms, min(horizon, STEPS)
    plays = max(1.0, steps / k)
    # A mean of rewards of 0 and 1 never leaves [0, 1].
    noise = arms.sigma * {"bernoulli": 0.0, "table": 3.0, "gaussian": QUANTILE_ROUNDINGS}[arms.kind]
    mean = (1.0 if arms.kind == "bernoulli" else max(abs(lower), abs(upper))) + abs(offset)
    # Bonuses and noise are largest after the first pulls, when few steps have been played.
    first = mean + noise + c * math.sqrt(2.0 * math.log(max(k, 2)))
    size = mean + noise / math.sqrt(plays) + c * math.sqrt(2.0 * math.log(max(steps, 2)) / plays)
    spread = max((above - below) / 2.0, arms.sigma / math.sqrt(plays))
    low, high = score_range(arms, score.name, c, horizon)
    # A row's largest score is at least the mean of the row, which centring makes 0.
    least, top = (offset, high - low + offset) if score.name in CENTRED else (low + offset, high + offset)
    slope, power = _slope(head, score.name, least, top, spread, size, horizon)
    largest = max(first, high - low, *_numbers(head), c, abs(offset))
    if largest > EXTREME:
        return f"numbers as large as {largest:g} do not fit float32 scores of {score} | {head}"
    if 0.0 < spread < 1.0 / EXTREME and slope * spread > 1e-7:
        return f"rewards that differ by {spread:g} do not fit float32 scores of {score} | {head}"
    if power > POWER:
        return f"a power as high as {power:g} multiplies the rounding of a float32 logarithm: {head}"
    pairs = 9.0 / min(max(k - 1, 1), 9)
    if slope * first > STEEPEST or size * min(slope, 1.0 / spread if spread > 0.0 else math.inf) > LONGEST * pairs:
        return (
            f"scores up to {first:.3g} that differ by {spread:.3g} do not fit float32 where a difference of 1 "
            f"changes a log weight by {slope:.3g}: {score} | {head}"
        )
    return ""


def _misfit_of_preferences(policy: Any, arms: ArmTable, horizon: int) -> str:
    low, high = score_range(arms, "ucb", 0.0, horizon)
    # Against the mean of all rewards, the current one included, only differences count.
    reach = high - low if policy.baseline == "mean_including" else max(abs(low), abs(high))
    alpha = float(policy.alpha)
    slope, power = _slope(policy.head, "ucb", 0.0, 1.0, 1.0, 1.0, horizon)
    kick = slope * slope * alpha * reach
    largest = KICK
    if policy.head.name == "escort":
        least = Parameters.of(policy.head).extent(0, horizon)[0]
        largest = next(limit for start, limit in reversed(ESCORT_KICKS) if least >= start)
    if kick > largest or power > POWER or max(reach, alpha, *_numbers(policy.head)) > EXTREME:
        return (
            f"rewards up to {reach:.3g} from the baseline move a log weight by up to {kick:.3g} at once, more than "
            f"float32 preferences can take: {policy}"
        )
    _, _, below, above, _, _ = arms.levels()
    # Against a mean of rewards they lie on both sides of the baseline, and what grows shrinks again.
    lack = max(0.0, -(below + above) / 2.0) if policy.baseline == "none" else 0.0
    growth = slope * slope * alpha * lack * min(horizon, STEPS) / arms.arms
    if growth > GROWTH:
        return (
            f"rewards of about {-lack:.3g} against no baseline drive preferences apart, and their rounding by a factor "
            f"of up to exp({growth:.3g}), more than float32 preferences can take: {policy}"
        )
    return ""


def _largest(value: Any, horizon: int) -> float:
    """Largest value of a parameter, a number or a schedule, in a run of `horizon` steps."""
    return Parameters(schedules=(value, None)).extent(0, horizon)[1] if isinstance(value, Schedule) else float(value)


def _numbers(head: Any) -> tuple[float, ...]:
    """The constant parameters of a head."""
    values = [getattr(head, name) for name in getattr(head, "__dataclass_fields__", ())]
    return tuple(abs(float(value)) for value in values if isinstance(value, (int, float)))


def _slope(
    head: Any, score: str, least: float, top: float, spread: float, size: float, horizon: int
) -> tuple[float, float]:
    """Largest |d log f / ds| where a row's weight lies, for scores between two bounds, and the power of a logarithm.

    Args:
        head: the head.
        score: the name of its scores.
        least: a bound below the largest score of every row.
        top: a bound above it.
        spread: how far the scores of a row differ.
        size: of a score before it is centred.
        horizon: number of steps, for schedules.
    """
    if head.name in ("softmax", "s_tau", "clamp_power", "escort"):
        found = Parameters.of(head)
        sharpness = found.extent(0, horizon)[1]
        plain = found.schedules[0] is None and sharpness == round(sharpness) and sharpness <= WHOLE
        power = 0.0 if plain else sharpness
        if head.name == "softmax":
            return sharpness, 0.0
        if head.name == "s_tau":
            return sharpness * _relative_slope(least), power
        if head.name == "clamp_power" and top <= 0.0:
            # Every score counts as eps.
            return 0.0, power
        if score == "mean":
            # A mean is rounded relative to itself.
            return sharpness / max(size, TINY), power
        nearest = 0.0 if least <= 0.0 <= top else min(abs(least), abs(top))
        return sharpness / max(nearest, spread, TINY), power
    if head.name == "softplus_norm":
        return _relative_slope(least), 0.0
    if head.name in ("power_norm", "reweight", "lssar"):
        return _largest(head.p, horizon) / max(spread, TINY), 0.0
    return _measured_slope(head, least, top, horizon), 0.0


def _relative_slope(s: float) -> float:
    """sigmoid(s) / softplus(s), which falls from 1 far below 0 to 1 / s far above it."""
    if s > 30.0:
        return 1.0 / s
    s = max(s, -30.0)
    return 1.0 / ((1.0 + math.exp(-s)) * math.log1p(math.exp(s)))


def _measured_slope(head: Any, least: float, top: float, horizon: int) -> float:
    """Of a head whose slope has no closed form here, at the first and the last step; 1 where it has no slope."""
    if not hasattr(head, "slope") or not math.isfinite(least + top) or head.name in SHIFT_FREE:
        return 1.0
    import torch

    scores = torch.as_tensor(np.linspace(least, max(top, least), 65))
    found: list[float] = []
    for step in (1, horizon):
        try:
            slopes = head.at(step).slope(scores).abs()
        except (ValueError, NotImplementedError, RuntimeError):
            # It looks at whole rows, or refuses some of these scores.
            continue
        found += slopes[slopes.isfinite()].tolist()
    return max(found, default=1.0)
