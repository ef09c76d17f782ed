"""From a policy and its arms to a specialisation of the Triton kernel and its run-time parameters.

Nothing here imports Triton, so what the engine can run is known on any machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stau_rl.kernels.contract import ArmTable, EngineError, check_float32, noise_precision
from stau_rl.kernels.philox import MAX_ARMS

LOG2_E = math.log2(math.e)
MAX_HORIZON = (1 << 31) - 1
# Arms per thread; beyond it instances are spread over several threads. Measured on an H200 with s_tau, G arm-steps/s at
# 8 / 16 / 32 arms per thread: 610 / 958 / 1118 for K = 32, 474 / 749 / 932 for K = 48, 536 / 663 / 871 for K = 128.
MAX_SLOTS = 32
# Largest |z| of a Gaussian reward mean + sigma z, z = Phi^-1 of a 24-bit uniform.
LARGEST_NORMAL = 5.42
# Rewards lie in [low, high], so scores do too; weights whose base-2 logarithm stays below this need no shift.
_EXPONENTS = 100.0
_WHOLE_POWERS = range(1, 17)

_OTHERS = "engine='torch' runs them on any device, engine='numba' on a CPU"


@dataclass(frozen=True, slots=True)
class BoundHead:
    """A head with its parameters, as the kernel takes it.

    Attributes:
        name: name of the device function in `triton_heads`.
        shifted: the function is a base-2 logarithm whose row maximum is to be taken off.
        unit: factor from a score to the y of the device function.
        p, q: run-time parameters.
        whole: a whole exponent that is multiplied out, or 0.
        offset: taken off y beforehand, by heads that do not see a shift.
        centred: the function looks at the row's centre.
    """

    name: str
    shifted: bool
    unit: float
    p: float = 1.0
    q: float = 0.0
    whole: int = 0
    offset: float = 0.0
    centred: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """A specialisation of the kernel.

    Attributes:
        choose: which rule of `triton_policies` picks the arm.
        refresh: which rule there renews the pulled arm's cached numbers.
        score: `mean` or `ucb`.
        centred: the mean score over the arms is taken off.
        head: the head, or None.
        slope: name of the slope in `triton_heads`, for gradient bandits.
        forced: arm t is pulled at each step t < K.
        width: what the table of a number per step holds: `none`, `bonus` (times c), `past` (1 / (t + 1)) or
            `before` (1 / t).
        c: factor of the bonus, in the unit of y.
        p, q, unit, offset: as in `BoundHead`; for other rules as their docstrings say.
        preference: where preferences start.
        double: cached numbers are float64.
        packed: pulls, successes and number of a slot share a 32-bit register.
        slots, lanes: arms per thread and threads per instance.
        floor: least count that the cached numbers are computed for.
    """

    choose: str
    refresh: str = "nothing"
    score: str = "mean"
    centred: bool = False
    head: BoundHead | None = None
    slope: str = ""
    forced: bool = False
    width: str = "none"
    c: float = 0.0
    p: float = 0.0
    q: float = 0.0
    unit: float = 1.0
    offset: float = 0.0
    preference: float = 0.0
    double: bool = False
    packed: bool = False
    slots: int = 1
    lanes: int = 1
    floor: int = 1

    @property
    def index_bits(self) -> int:
        """Bits of a packed tally that hold the slot."""
        return max(1, (self.slots - 1).bit_length())

    @property
    def count_bits(self) -> int:
        """Bits of a packed tally that hold the successes, and as many or one more the pulls."""
        return (32 - self.index_bits) // 2

    @property
    def steps_per_launch(self) -> int:
        """Steps after which a tally could overflow; even."""
        return (1 << self.count_bits) - 2 if self.packed else 1 << 20


def make_plan(policy: Any, arms: ArmTable, horizon: int) -> Plan:
    """Choose how the kernel plays `policy` (already lowered).

    Raises:
        EngineError: the policy, its score or its head has no device function, or there are too many arms or steps.
    """
    check_float32(policy, arms)
    if arms.arms > MAX_ARMS:
        raise EngineError(f"at most {MAX_ARMS} arms have random streams, got {arms.arms}; no engine runs more")
    if horizon > MAX_HORIZON:
        raise EngineError(
            f"the triton engine counts steps up to {MAX_HORIZON}, got {horizon}; engine='numba' or 'torch' runs more"
        )
    if getattr(getattr(policy, "head", None), "schedules", ()):
        raise EngineError(f"the triton engine has no heads that change with t, such as {policy.head}; {_OTHERS}")
    if getattr(getattr(policy, "score", None), "offset", 0.0):
        raise EngineError(f"the triton engine has no scores with an offset, such as {policy.score}; {_OTHERS}")
    lanes, slots = _layout(arms.arms)
    common: dict[str, Any] = {"lanes": lanes, "slots": slots, "packed": arms.kind == "bernoulli"}
    if policy.name == "pipe":
        return Plan(**common, **_pipe(policy, arms, horizon))
    if policy.name == "random":
        return Plan("uniform", **common)
    if policy.name == "eps_greedy":
        bound = float(math.ceil(policy.eps * 2.0**24))
        return Plan("explore", refresh="exact", double=True, p=bound, **common)
    if policy.name == "thompson":
        if arms.binary:
            return Plan("beta", **common)
        prior, noise = policy.prior_sd**-2, noise_precision(policy.sigma, arms)
        return Plan(
            "posterior", refresh="posterior", floor=0, p=prior, q=noise, offset=policy.prior_mean * prior, **common
        )
    if policy.name == "gradient_bandit":
        return Plan(**common, **_gradient(policy))
    raise _unsupported("policy", policy.name, ("pipe", "random", "eps_greedy", "thompson", "gradient_bandit"))


def _layout(arms: int) -> tuple[int, int]:
    """Threads per instance, a power of 2, and arms per thread."""
    lanes = 1
    while lanes * MAX_SLOTS < arms:
        lanes *= 2
    return lanes, -(-arms // lanes)


def _pipe(policy: Any, arms: ArmTable, horizon: int) -> dict[str, Any]:
    score = policy.score.name
    if score not in ("mean", "ucb", "centred_ucb"):
        raise _unsupported("score", score, ("mean", "ucb", "centred_ucb"))
    found: dict[str, Any] = {"score": "mean" if score == "mean" else "ucb"}
    c = float(getattr(policy.score, "c", 0.0))
    if score != "mean":
        found |= {"forced": True, "width": "bonus"}
    if policy.head.name == "argmax":
        # Centring moves all scores of a row alike, so the largest stays the largest.
        return found | {"choose": "best", "refresh": "exact", "double": True, "c": c}
    if policy.head.name not in BINDERS:
        raise _unsupported("head", policy.head.name, (*BINDERS, "argmax"))
    low, high = score_range(arms, score, c, horizon)
    head = BINDERS[policy.head.name](policy.head, low, high, score == "centred_ucb")
    return found | {
        "choose": "weight",
        "refresh": "approximate",
        "centred": score == "centred_ucb" and head.centred,
        "head": head,
        "c": c * head.unit,
        "p": head.p,
        "q": head.q,
        "unit": head.unit,
        "offset": head.offset,
    }


def _gradient(policy: Any) -> dict[str, Any]:
    if policy.head.name not in SLOPES:
        raise _unsupported("slope of head", policy.head.name, tuple(SLOPES))
    head = BINDERS[policy.head.name](policy.head, -math.inf, math.inf, False)
    widths = {"none": "none", "mean_including": "past", "mean_before": "before"}
    if policy.baseline not in widths:
        raise _unsupported("baseline", policy.baseline, tuple(widths))
    return {
        "choose": "preference",
        "head": head,
        "slope": SLOPES[policy.head.name],
        "width": widths[policy.baseline],
        "c": float(policy.alpha),
        "p": head.p,
        "q": head.q,
        "unit": head.unit,
        "preference": float(policy.initial_preference),
    }


def score_range(arms: ArmTable, score: str, c: float, horizon: int) -> tuple[float, float]:
    """Bounds of mean and UCB scores, before centring, from the bounds of the rewards."""
    if arms.kind == "bernoulli":
        low, high = 0.0, 1.0
    elif arms.kind == "gaussian":
        reach = LARGEST_NORMAL * arms.sigma
        low, high = float(arms.means.min()) - reach, float(arms.means.max()) + reach
    else:
        low, high = float(arms.values.min()), float(arms.values.max())
    if score == "mean":
        return min(low, 0.0), max(high, 0.0)
    return low, high + c * math.sqrt(2.0 * math.log(max(horizon, 2)))


def bind_softmax(head: Any, low: float, high: float, centred: bool) -> BoundHead:
    """Softmax, which sees no shift: neither the centre nor the middle of the range of the scores."""
    unit = head.beta * LOG2_E
    fits = unit * (high - low) < 2 * _EXPONENTS
    offset = unit * 0.5 * (low + high) if fits else 0.0
    name = "softmax_direct" if fits else "softmax_log2"
    return BoundHead(name, not fits, unit, p=head.beta, offset=offset, centred=False)


def bind_s_tau(head: Any, low: float, high: float, centred: bool) -> BoundHead:
    """s^tau with any exponent and floor."""
    return _bind_power(float(head.tau), float(head.eps), low, high, centred)


def bind_softplus_norm(head: Any, low: float, high: float, centred: bool) -> BoundHead:
    """Softplus normalisation is s^tau at tau = 1, eps = 0."""
    return _bind_power(1.0, 0.0, low, high, centred)


def _bind_power(tau: float, eps: float, low: float, high: float, centred: bool) -> BoundHead:
    """The direct form needs centred rows: their largest score is >= 0, so the largest softplus2 is >= 1."""
    q = eps * LOG2_E
    largest = max(abs(low), abs(high)) * LOG2_E
    if centred and largest < 0.5 * _EXPONENTS and tau <= 16.0 and tau * math.log2(2 * largest + 2 + q) < _EXPONENTS:
        name = "s_tau_direct_no_floor" if q < 2e-7 else "s_tau_direct"
        return BoundHead(name, False, LOG2_E, tau, q, int(tau) if tau in _WHOLE_POWERS else 0)
    return BoundHead("s_tau_log2" if eps > 0.0 else "s_tau_exact_tail_log2", True, LOG2_E, tau, q)


def bind_escort(head: Any, low: float, high: float, centred: bool) -> BoundHead:
    """Escort; scores come as near 0 as they like, so the row's maximum is always taken off."""
    return BoundHead("escort_log2", True, 1.0, float(head.p))


def bind_sigmoid_norm(head: Any, low: float, high: float, centred: bool) -> BoundHead:
    """Sigmoid normalisation."""
    fits = centred and max(abs(low), abs(high)) * LOG2_E < 0.5 * _EXPONENTS
    return BoundHead("sigmoid_direct" if fits else "sigmoid_log2", not fits, LOG2_E)


BINDERS: dict[str, Callable[[Any, float, float, bool], BoundHead]] = {
    "softmax": bind_softmax,
    "s_tau": bind_s_tau,
    "escort": bind_escort,
    "softplus_norm": bind_softplus_norm,
    "sigmoid_norm": bind_sigmoid_norm,
}
SLOPES = {"softmax": "softmax_slope", "s_tau": "s_tau_slope", "escort": "escort_slope"}


def _unsupported(what: str, name: str, known: tuple[str, ...]) -> EngineError:
    return EngineError(f"the triton engine has no {what} {name!r} (it has {', '.join(known)}); engine='torch' runs it")
