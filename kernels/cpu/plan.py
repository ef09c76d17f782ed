"""From a policy and its arms to a specialisation of the compiled loop and its run-time parameters."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl.kernels.contract import ArmTable, EngineError, noise_precision
from stau_rl.kernels.cpu.codegen import Specialisation
from stau_rl.kernels.cpu.heads import BoundHead, bind_head
from stau_rl.kernels.cpu.lanes import WIDTH
from stau_rl.kernels.cpu.plugin import check_plugin
from stau_rl.kernels.float32 import SHIFT_FREE, Float32Error, misfit, require_float32
from stau_rl.kernels.head_parameters import NONE, ZERO, OfScore, Parameters, Widths, compiled_index

# Above it the looped form is as fast or faster (measured at 16, 32 and 64 arms), and it compiles sooner.
UNROLL_ARMS = 20
# Bytes of a block's state that are to stay in the first-level data cache.
CACHE_BYTES = 28 * 1024
# Constant exponents that are multiplied out instead of taken through a logarithm.
WHOLE_POWERS = range(1, 16)
SCORES = {"mean": "MEAN", "ucb": "UCB", "centred_ucb": "CENTRED", "reward_centred_ucb": "PAST"}


@dataclass(frozen=True, slots=True)
class Plan:
    """A specialisation, its parameters, and how the state starts.

    Attributes:
        spec: what is compiled.
        parameters: p, q, c, reward sigma, alpha, prior mean, prior precision, noise precision, score offset.
        mean, root, preference: initial values of the state arrays.
        cost: rough time per arm-step in units of the fastest policy's, for choosing the size of a call.
        head: the parameters of the head, p and q, with their schedules.
        bonus, offset: c and the offset of the scores, with their schedules.
    """

    spec: Specialisation
    parameters: tuple[float, ...]
    mean: float = 0.0
    root: float = 0.0
    preference: float = 0.0
    cost: float = 1.0
    head: Parameters = NONE
    bonus: OfScore = ZERO
    offset: OfScore = ZERO

    @property
    def changes(self) -> bool:
        """Some parameter is a table of the steps."""
        return any((*self.head.schedules, self.bonus.schedule, self.offset.schedule))

    def table(self, begin: int, end: int) -> NDArray[np.float64]:
        """p, q, c and offset at steps begin, ..., end - 1, float64 [4, steps]; empty where nothing changes."""
        if not self.changes:
            return np.empty((4, 0))
        of_score = [number.steps(begin, end) for number in (self.bonus, self.offset)]
        return np.concatenate([self.head.steps(begin, end), of_score])


def check(policy: Any, arms: ArmTable, horizon: int, dtype: str = "float32") -> None:
    """Raise an EngineError, naming an engine that can, for what this one cannot run."""
    require_float32("numba", dtype)
    make_plan(policy.lowered(), arms, horizon)


def make_plan(policy: Any, arms: ArmTable, horizon: int) -> Plan:
    """Choose the templates and flags that play `policy`.

    Raises:
        EngineError: the policy, its score or its head has no compiled form.
        ValueError: the device code of a plug-in head contradicts the head.
    """
    why = misfit(policy, arms, horizon)
    bonus = offset = ZERO
    alpha = mean = root = preference = prior_precision = noise = 0.0
    bound, choose, cost, index = BoundHead(None), "choose_by_weight", 1.0, None
    flags = {arms.kind.upper()}
    if policy.name == "pipe":
        found = compiled_index(policy, arms, horizon, "numba")
        if found is None and policy.score.name not in SCORES:
            raise _unsupported("score", policy.score.name, SCORES)
        kind = SCORES.get(policy.score.name, "INDEX")
        flags |= {"HAS_MEAN"} | ({"HAS_ROOT", "FORCED"} if kind != "MEAN" else set())
        if found is not None:
            choose, cost, index = "choose_best", 4.0, found.function
            bound = BoundHead(None, Parameters(q=found.q, schedules=(Widths(found.widths), None)))
            flags |= {"DOUBLE", "INDEX"} | ({"CONTRAST"} if found.contrast else set())
        elif policy.head.name == "argmax":
            bonus = OfScore.named(policy.score, "c")
            # Centring and an offset move all scores alike, so the largest stays the largest.
            choose = "choose_best"
            flags |= {"DOUBLE", "UCB" if kind in ("CENTRED", "PAST") else kind}
        else:
            bonus = OfScore.named(policy.score, "c")
            bound = _bound(policy.head, horizon)
            if why and (bound.device is None or bound.device.wide is None):
                raise Float32Error(why)
            if policy.head.name not in SHIFT_FREE:
                offset = OfScore.named(policy.score, "offset")
            flags |= {kind} | ({"OFFSET"} if offset != ZERO else set())
            # Scores that float32 cannot hold are float64; so is the quantile behind the rewards that they come from.
            flags |= {"DOUBLE", "WIDE"} if why else {"SINGLE"}
            cost = 3.0 if why else cost
    elif policy.name == "random":
        choose = "choose_uniform"
    elif policy.name == "eps_greedy":
        choose, bound = "choose_best", BoundHead(None, Parameters.number(policy.eps, 2.0**24))
        flags |= {"DOUBLE", "MEAN", "HAS_MEAN", "EXPLORES"}
    elif policy.name == "thompson":
        choose, cost = "choose_noisy", 6.0
        if arms.binary:
            flags |= {"BETA"}
        else:
            mean, root = float(policy.prior_mean), float(policy.prior_sd)
            prior_precision, noise = root**-2, noise_precision(policy.sigma, arms)
            flags |= {"POSTERIOR", "HAS_MEAN", "HAS_ROOT"}
    elif policy.name == "boltzmann_gumbel":
        choose, cost, bound = "choose_noisy", 6.0, BoundHead(None, Parameters(float(policy.c)))
        flags |= {"DOUBLE", "HAS_MEAN", "HAS_ROOT", "FORCED", "GUMBEL"}
    elif policy.name == "gradient_bandit":
        if why:
            raise Float32Error(why)
        bound = _bound(policy.head, horizon)
        if bound.device is None or bound.device.slope is None:
            raise EngineError(f"the numba engine has no slope of head {policy.head.name!r}; engine='torch' runs it")
        alpha, preference = float(policy.alpha), float(policy.head.name == "escort")
        baselines = {"none": "NO_BASELINE", "mean_including": "MEAN_INCLUDING", "mean_before": "MEAN_BEFORE"}
        if policy.baseline not in baselines:
            raise _unsupported("baseline", policy.baseline, baselines)
        flags |= {"PREFERENCES", baselines[policy.baseline]}
    else:
        known = ("pipe", "random", "eps_greedy", "thompson", "boltzmann_gumbel", "gradient_bandit")
        raise _unsupported("policy", policy.name, known)
    if any(bound.parameters.schedules):
        flags |= {"SCHEDULED"}
    elif bound.device is not None and bound.device.base is not None and bound.parameters.p in WHOLE_POWERS and not why:
        flags |= {"POWER"}
    if bonus.schedule is not None:
        flags |= {"WIDENS"}
    if offset.schedule is not None:
        flags |= {"MOVES"}
    real = "float32" if choose == "choose_by_weight" and not why else "float64"
    spec = replace(_specialisation(choose, bound.key, arms, real, frozenset(flags), horizon), index=index)
    head = bound.parameters
    parameters = (head.p, head.q, bonus.value, float(arms.sigma), alpha, mean, prior_precision, noise, offset.value)
    return Plan(spec, parameters, mean, root, preference, cost, head, bonus, offset)


def _bound(head: Any, horizon: int) -> BoundHead:
    """The head's device code and parameters; a plug-in's code is compared with the head first."""
    bound = bind_head(head, horizon)
    if bound.device is not None and bound.device.origin != "":
        check_plugin(head, bound.device, horizon)
    return bound


def _specialisation(
    choose: str, head: str | None, arms: ArmTable, real: str, flags: frozenset[str], horizon: int
) -> Specialisation:
    count = "int64" if horizon >= 1 << 31 else "int32"
    gain = count if arms.kind == "bernoulli" else "float64"
    unrolled = arms.arms <= UNROLL_ARMS
    per_lane = arms.arms * (20 if real == "float32" and gain == "int32" else 32)
    lanes = max(1, min(256 // WIDTH, CACHE_BYTES // (WIDTH * per_lane))) * WIDTH
    return Specialisation(choose, head, arms.arms, lanes, unrolled, count, gain, real, flags)


def _unsupported(what: str, name: str, known: Any) -> EngineError:
    names = ", ".join(known)
    return EngineError(f"the numba engine has no {what} {name!r} (it has {names}); engine='torch' runs it")
