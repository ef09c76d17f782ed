"""What every engine takes and what every engine returns.

An engine is a function

    simulate(policy, arms, *, seed, first_instance, horizon, checkpoints, dtype="float32", device="cpu",
             record=False, progress=None) -> Block

that plays `policy` on every instance of `arms` for `horizon` steps. Instance j of the block is the global
instance `first_instance + j`; its history depends on (seed, first_instance + j), the arms and the policy alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

RewardKind = Literal["bernoulli", "gaussian", "table"]
Progress = Callable[[int], None]
"""Called now and then with the number of instance-steps finished since the last call; may raise to stop."""


@dataclass(frozen=True, slots=True)
class ArmTable:
    """The arms of one block of instances, as numbers.

    Attributes:
        kind: how a reward follows from the step's uniform. `bernoulli`: 1 if w < ceil(mean * 2^24), with w the
            24-bit word, which is u < mean exactly. `gaussian`: mean + sigma * Phi^-1((w + 1/2) 2^-24).
            `table`: the arm's sorted observations, `values[offsets[k] + (((2 w + 1) * size_k) >> 25)]`.
        means: true means, float64 [arms, instances], or [arms, 1] when all instances share them.
        sigma: standard deviation of a Gaussian reward; for a table, the pooled within-arm one.
        values: float64 [rows], sorted within each arm; empty unless `kind` is `table`.
        offsets: int64 [arms + 1] into `values`; empty unless `kind` is `table`.
        binary: every reward is 0 or 1.
        instances: how many instances the block has.
    """

    kind: RewardKind
    means: NDArray[np.float64]
    sigma: float
    values: NDArray[np.float64]
    offsets: NDArray[np.int64]
    binary: bool
    instances: int

    @property
    def arms(self) -> int:
        """Number of arms K."""
        return int(self.means.shape[0])

    def gaps(self) -> NDArray[np.float64]:
        """Gaps mu* - mu_k of every instance, float64 [arms, instances or 1]; optimal arms have gap 0."""
        return self.means.max(axis=0, keepdims=True) - self.means


@dataclass(frozen=True, slots=True)
class Block:
    """What one policy did on one block of instances; C checkpoints, K arms, n instances, T steps.

    Attributes:
        regret: pseudo-regret sum_k n_k (mu* - mu_k) after each checkpoint's plays, float64 [C, n]; a step
            without a pull adds mu*.
        optimal: the pull at the checkpoint's step was an optimal arm, bool [C, n].
        late_optimal: pulls of optimal arms in the last tenth of the horizon, int64 [n].
        pulls: pulls per arm at the horizon, int64 [K, n].
        reward_sums: reward sums per arm at the horizon, float64 [K, n].
        actions: every pull, int16 [T, n], -1 for a step without one; None unless `record`.
        rewards: every reward, float64 [T, n]; None unless `record`.
    """

    regret: NDArray[np.float64]
    optimal: NDArray[np.bool_]
    late_optimal: NDArray[np.int64]
    pulls: NDArray[np.int64]
    reward_sums: NDArray[np.float64]
    actions: NDArray[np.int16] | None = None
    rewards: NDArray[np.float64] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that a run keeps."""
        kept = (self.regret, self.optimal, self.late_optimal, self.pulls, self.reward_sums)
        return sum(array.nbytes for array in kept)


def late_start(horizon: int) -> int:
    """First step (counting from 0) of the last tenth of the horizon: T - max(1, T // 10)."""
    return horizon - max(1, horizon // 10)


def noise_precision(sigma: float | None, arms: ArmTable) -> float:
    """1 / sigma^2 of one reward for a Gaussian posterior; a given sigma wins over the arms' own.

    Noiseless arms (sigma 0) count as sigma = 1e-6, so that one observation all but settles a mean.
    """
    return max(arms.sigma if sigma is None else sigma, 1e-6) ** -2


# Float32 has 24 bits: scores of this size or more, in units of the differences that matter, lose too many of them.
FLOAT32_RANGE = 1000.0
FLOAT32_PARAMETER = 1e30


def check_float32(policy: Any, arms: ArmTable) -> None:
    """Refuse what float32 scores cannot hold, for the engines that compute in them.

    Raises:
        EngineError: the means are more than 1000 times as large as their spread or the noise, or a parameter of the
            policy is larger than 1e30.
    """
    size = float(np.abs(arms.means).max(initial=0.0))
    spread = max(arms.sigma, float(np.ptp(arms.means)) if arms.means.size else 0.0)
    draws_from_scores = policy.name == "pipe" and policy.head.name != "argmax"
    if draws_from_scores and spread > 0.0 and size > FLOAT32_RANGE * spread:
        raise EngineError(
            f"means up to {size:g} that differ by {spread:g} do not fit float32 scores; engine='torch' runs them, or "
            "subtract a constant from the rewards"
        )
    for part in (policy, getattr(policy, "score", None), getattr(policy, "head", None)):
        for name in getattr(part, "__dataclass_fields__", ()):
            value = getattr(part, name)
            if isinstance(value, float) and abs(value) > FLOAT32_PARAMETER:
                raise EngineError(f"{name}={value:g} does not fit float32; engine='torch' runs it")


class EngineError(ValueError):
    """An engine was asked for something it cannot run; the message names one that can."""
