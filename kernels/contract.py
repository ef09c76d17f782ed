"""What every engine takes and what every engine returns.

An engine is three functions, the last of which lives in a plan module of its own:

    simulate(policy, arms, *, seed, first_instance, horizon, checkpoints, dtype="float32", device="cpu",
             record=False, progress=None) -> Block
    load(policy, arms, *, horizon, dtype, device)          compile what such a run needs, or load it from the disk
    check(policy, arms, horizon, dtype)                    raise an EngineError for what the engine cannot run

`simulate` plays `policy` on every instance of `arms` for `horizon` steps. Instance j of the block is the global
instance `first_instance + j`; its history depends on (seed, first_instance + j), the arms and the policy alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

RewardKind = Literal["bernoulli", "gaussian", "table"]
Progress = Callable[[int], None]
"""Called now and then with the number of instance-steps finished since the last call; may raise to stop."""

# Largest |z| of a Gaussian reward mean + sigma z, z = Phi^-1 of a 24-bit uniform.
LARGEST_NORMAL = 5.42
# Shares of the prior below `ArmTable.levels`; the outer ones are the least and the largest 24-bit uniform.
LEVELS = (2.0**-25, 0.001, 0.16, 0.84, 0.999, 1.0 - 2.0**-25)
# Means that differ by less, relative to the largest number they come from, differ by rounding: .1 + .7 and .4 + .4.
TIE = 2.0**-51


def table_means(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of each arm's observations, float64 [K], from sums that are rounded once whatever their order.

    Args:
        values: observations of all arms, float64 [rows].
        offsets: where each arm's observations start, int64 [K + 1].
    """
    sums = [math.fsum(values[first:last].tolist()) for first, last in pairwise(offsets)]
    return np.array(sums) / np.diff(offsets)


def gaps_below_best(means: Any, scale: Any = None) -> Any:
    """Gaps mu* - mu_k along the first axis, exactly 0 where the means differ by rounding alone.

    Args:
        means: float64 [arms, ...], of numpy or torch.
        scale: size of the numbers that the means come from, which broadcasts against a row; by default that of the
            largest mean.
    """
    best = means.max(0) if isinstance(means, np.ndarray) else means.amax(0)
    if scale is None:
        scale = abs(means).max(0) if isinstance(means, np.ndarray) else means.abs().amax(0)
    gaps = best - means
    return gaps * (gaps > TIE * scale)


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
        mean_levels: quantiles of a mean at `LEVELS`, over all instances there may ever be; None where all share theirs
            or where nothing is known but the means of this block.
    """

    kind: RewardKind
    means: NDArray[np.float64]
    sigma: float
    values: NDArray[np.float64]
    offsets: NDArray[np.int64]
    binary: bool
    instances: int
    mean_levels: tuple[float, ...] | None = None

    @property
    def arms(self) -> int:
        """Number of arms K."""
        return int(self.means.shape[0])

    def levels(self) -> tuple[float, ...]:
        """Quantiles of a mean at `LEVELS`; for fixed means their least three times and their largest three times."""
        if self.mean_levels is not None:
            return self.mean_levels
        low, high = float(self.means.min()), float(self.means.max())
        return low, low, low, high, high, high

    @property
    def tie_scale(self) -> float | None:
        """Size of the numbers that means come from, as `gaps_below_best` takes it."""
        return float(np.abs(self.values).max()) if self.kind == "table" else None

    def gaps(self, abstain: bool = False) -> NDArray[np.float64]:
        """Gaps mu* - mu_k, float64 [arms, instances or 1]; exactly 0 for optimal arms, those but for rounding too.

        Args:
            abstain: a step may also pull nothing, which earns 0. That is one more option of known mean, so gaps are
                from max(mu*, 0), and a last row has the gap of pulling nothing: no step can gain against the best.
        """
        means = np.pad(self.means, ((0, 1), (0, 0))) if abstain else self.means
        gaps: NDArray[np.float64] = gaps_below_best(means, self.tie_scale)
        return gaps

    def bernoulli_bounds(self) -> NDArray[np.int32]:
        """What the 24-bit reward word must stay below, ceil(mean 2^24): the reward is 1 just if u < mean."""
        return np.ceil(self.means * 2.0**24).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Block:
    """What one policy did on one block of instances; C checkpoints, K arms, n instances, T steps.

    Attributes:
        regret: pseudo-regret sum_k n_k (mu* - mu_k) after each checkpoint's plays, float64 [C, n]. For a policy that
            may abstain, max(mu*, 0) takes the place of mu*, and a step without a pull adds it: abstaining has mean 0.
        optimal: the pull at the checkpoint's step was an optimal arm, or abstaining was optimal, bool [C, n].
        late_optimal: such steps in the last tenth of the horizon, int64 [n].
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


class EngineError(ValueError):
    """An engine was asked for something it cannot run; the message names one that can."""


class UnfitError(EngineError):
    """An engine has the policy's parts and cannot play them here; `auto` tells why where it takes another.

    Attributes:
        why: what does not fit, without what to do about it.
    """

    def __init__(self, why: str, runs: str = "engine='torch'") -> None:
        """Make the message; `runs` is what holds it."""
        super().__init__(f"{why}; {runs} runs it")
        self.why = why
