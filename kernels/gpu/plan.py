"""From a policy and its arms to a variant of the Triton kernel and its run-time parameters.

Nothing here imports Triton, so what the engine can run is known on any machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl.kernels.contract import ArmTable, EngineError, noise_precision
from stau_rl.kernels.float32 import CENTRED, EXTREME, SHIFT_FREE, Float32Error, misfit, require_float32, score_range
from stau_rl.kernels.gpu.bind import BoundHead, Scores, bind_head
from stau_rl.kernels.gpu.variant import Variant, layout, tally_bits
from stau_rl.kernels.head_parameters import OfScore, compiled_index, constant
from stau_rl.kernels.philox import MAX_ARMS
from stau_rl.spec.schedule import Schedule

MAX_HORIZON = (1 << 31) - 1
# Arms per thread; beyond it instances are spread over several threads. Measured on an H200 with s_tau, G arm-steps/s at
# 8 / 16 / 32 arms per thread: 610 / 958 / 1118 for K = 32, 474 / 749 / 932 for K = 48, 536 / 663 / 871 for K = 128 (by
# now 1271 for K = 32 and 929 for K = 128 at 32; the order is what counts).
MAX_SLOTS = 32
SCORES = ("mean", "ucb", "centred_ucb", "reward_centred_ucb")
# What the number per step is, by the baseline of a gradient bandit.
BASELINES = {"none": "none", "mean_including": "past", "mean_before": "before"}


@dataclass(frozen=True, slots=True)
class Plan:
    """How the kernel plays a policy.

    Attributes:
        variant: what is compiled; launches add how they start.
        refresh: which rule of `gpu.policies` renews the pulled arm's cached numbers.
        score: `mean` or `ucb`, or the index's device function in `gpu.indices`.
        head: the head, or None.
        width: what the table of a number per step holds: `none`, `bonus` (times c), `past` (1 / (t + 1)),
            `before` (1 / t) or `index` (what `widths` makes of the numbers of steps).
        c: factor of the bonus, in the unit of y, or a gradient bandit's step size.
        changing: what the factor of the bonus is multiplied by at each step; None for 1.
        p, q: parameters of head or rule.
        unit: factor from a score to y.
        offset: taken off y.
        preference: where preferences start.
        posterior: prior precision, noise precision, and prior precision times prior mean, of a Gaussian posterior.
        widths: an index's number per step.
        exact_rewards: Gaussian rewards come from a float64 quantile and deviation.
    """

    variant: Variant
    refresh: str = "nothing"
    score: str = "mean"
    head: BoundHead | None = None
    width: str = "none"
    c: float = 0.0
    changing: Schedule | None = None
    p: float = 0.0
    q: float = 0.0
    unit: float = 1.0
    offset: float = 0.0
    preference: float = 0.0
    posterior: tuple[float, float, float] | None = None
    widths: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    exact_rewards: bool = False

    @property
    def float64_widths(self) -> bool:
        """The table of a number per step is float64."""
        variant = self.variant
        return variant.double or (variant.choose == "preference" and not variant.packed)


def check(policy: Any, arms: ArmTable, horizon: int, dtype: str = "float32") -> None:
    """Raise an EngineError, naming an engine that can, for what this one cannot run."""
    require_float32("triton", dtype)
    make_plan(policy.lowered(), arms, horizon)


def make_plan(policy: Any, arms: ArmTable, horizon: int) -> Plan:
    """Choose how the kernel plays `policy` (already lowered).

    Raises:
        EngineError: the policy, its score or its head has no device function, or there are too many arms or steps.
    """
    if arms.arms > MAX_ARMS:
        raise EngineError(f"at most {MAX_ARMS} arms have random streams, got {arms.arms}; no engine runs more")
    if horizon > MAX_HORIZON:
        raise EngineError(
            f"the triton engine counts steps up to {MAX_HORIZON}, got {horizon}; engine='numba' or 'torch' runs more"
        )
    lanes, slots = layout(arms.arms, MAX_SLOTS)
    index_bits, count_bits = tally_bits(slots)
    variant = Variant(
        arms.arms, slots, lanes, packed=arms.kind == "bernoulli", index_bits=index_bits, count_bits=count_bits
    )
    plan = _plan(variant, policy, arms, horizon)
    if arms.kind == "gaussian" and not 1.0 / EXTREME <= arms.sigma <= EXTREME:
        # Arguments of a kernel are float32.
        plan = replace(plan, exact_rewards=True)
    return plan


def _plan(variant: Variant, policy: Any, arms: ArmTable, horizon: int) -> Plan:
    if policy.name == "pipe":
        return _pipe(variant, policy, arms, horizon)
    if policy.name == "random":
        return Plan(variant)
    if policy.name == "eps_greedy":
        bound = float(math.ceil(constant(policy, "eps", policy.eps, "triton") * 2.0**24))
        return Plan(replace(variant, choose="explore", cached=True, double=True), "exact", p=bound)
    if policy.name == "thompson":
        if arms.binary:
            return Plan(replace(variant, choose="beta"))
        prior, noise = policy.prior_sd**-2, noise_precision(policy.sigma, arms)
        variant = replace(variant, choose="posterior", cached=True, double=True, floor=0)
        return Plan(variant, "posterior", posterior=(prior, noise, policy.prior_mean * prior))
    if policy.name == "boltzmann_gumbel":
        variant = replace(variant, choose="gumbel", cached=True, double=True, forced=True)
        return Plan(variant, "exact", p=float(policy.c))
    if policy.name == "gradient_bandit":
        if why := misfit(policy, arms, horizon):
            raise Float32Error(why)
        return _gradient(variant, policy, horizon)
    known = ("pipe", "random", "eps_greedy", "thompson", "boltzmann_gumbel", "gradient_bandit")
    raise _unsupported("policy", policy.name, known)


def _pipe(variant: Variant, policy: Any, arms: ArmTable, horizon: int) -> Plan:
    score = policy.score.name
    if index := compiled_index(policy, arms, horizon, "triton"):
        if abs(index.q) > EXTREME:
            raise Float32Error(f"the constant {index.q:g} of {policy.score} is beyond float32 arguments")
        kind: Any = "contrast" if index.contrast else "alone"
        variant = replace(variant, choose="best", index=kind, forced=True, width=True, cached=True, double=True)
        return Plan(variant, "exact", index.function, width="index", q=index.q, widths=index.widths)
    if score not in SCORES:
        raise _unsupported("score", score, SCORES)
    bonus = OfScore.named(policy.score, "c")
    c = bonus.value if bonus.schedule is None else 1.0
    width = "none" if score == "mean" else "bonus"
    variant = replace(variant, forced=score != "mean", width=score != "mean", cached=True)
    kind = "mean" if score == "mean" else "ucb"
    if policy.head.name == "argmax":
        # Centring and an offset move all scores of a row alike, so the largest stays the largest.
        return Plan(replace(variant, choose="best", double=True), "exact", kind, None, width, c, bonus.schedule)
    low, high = score_range(arms, score, bonus.largest(horizon), horizon)
    given = getattr(policy.score, "offset", 0.0)
    # A head that sees differences alone has no use for it.
    idle = policy.head.name in SHIFT_FREE and isinstance(given, Schedule)
    offset = 0.0 if idle else constant(policy, "offset", given, "triton")
    why = misfit(policy, arms, horizon)
    head = bind_head(policy.head, Scores(low, high, score in CENTRED, offset), horizon, why)
    centred = score in CENTRED and head.shifts
    if centred and score == "reward_centred_ucb":
        variant = replace(variant, past=True)
    if why:
        moved = head.shifts and offset != 0.0
        if moved and abs(offset) > EXTREME:
            raise Float32Error(why)
        # Of a softmax the log weights are the scores times p, and rows of them are compared as float32.
        steepest = max(map(abs, head.parameters.extent(0, horizon))) if policy.head.name == "softmax" else 0.0
        if steepest * max(abs(low), abs(high)) > EXTREME:
            raise Float32Error(why)
        variant = replace(_with_head(variant, head), choose="weight", centred=centred, moved=moved, double=True)
        p, q = head.parameters.p, head.parameters.q
        exact = arms.kind == "gaussian"
        return Plan(variant, "exact", kind, head, width, c, bonus.schedule, p, q, offset=-offset, exact_rewards=exact)
    variant = replace(_with_head(variant, head), choose="weight", centred=centred, moved=centred and offset != 0.0)
    # What is taken off every mean moves uncentred scores; the kernel takes it off the centre of the others.
    offset = head.middle - (offset * head.unit if head.shifts else 0.0)
    return Plan(
        variant,
        "approximate",
        kind,
        head,
        width,
        c=c * head.unit,
        changing=bonus.schedule,
        p=head.parameters.p * head.units[0],
        q=head.parameters.q * head.units[1],
        unit=head.unit,
        offset=offset,
    )


def _with_head(variant: Variant, head: BoundHead) -> Variant:
    return replace(
        variant,
        form=head.form,
        whole=head.whole,
        reaches_zero=head.reaches_zero,
        inputs=head.inputs,
        scheduled=any(s is not None for s in head.parameters.schedules),
    )


def _gradient(variant: Variant, policy: Any, horizon: int) -> Plan:
    head = bind_head(policy.head, Scores(-math.inf, math.inf), horizon)
    if not head.slope:
        raise _unsupported("slope of head", policy.head.name, ("softmax", "s_tau", "escort"))
    if policy.baseline not in BASELINES:
        raise _unsupported("baseline", policy.baseline, tuple(BASELINES))
    baseline: Any = BASELINES[policy.baseline]
    variant = replace(_with_head(variant, head), choose="preference", baseline=baseline, width=baseline != "none")
    return Plan(
        variant,
        head=head,
        width=baseline,
        c=float(policy.alpha),
        p=head.parameters.p * head.units[0],
        q=head.parameters.q * head.units[1],
        unit=head.unit,
        preference=float(policy.initial_preference),
    )


def _unsupported(what: str, name: str, known: tuple[str, ...]) -> EngineError:
    return EngineError(f"the triton engine has no {what} {name!r} (it has {', '.join(known)}); engine='torch' runs it")
