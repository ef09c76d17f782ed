"""Regrets of every policy on the same instances, in memory: the arrays that tables, figures and files are made of.

P policies, C checkpoints, K arms, n instances.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stau_rl.agents.bandit import parse_policy
from stau_rl.kernels.contract import Block
from stau_rl.spec.grammar import SpecError
from stau_rl.statistics.bootstrap import RESAMPLES, Resampled, resampled_means

SHOWN = 200
NEEDED = ("policies", "checkpoints", "horizon", "instances", "seed")


@dataclass(frozen=True, eq=False, repr=False)
class Regrets:
    """Regret of P policies at C checkpoints on n instances of K arms.

    Attributes:
        spec: what was run, JSON-able. Read here: `policies` (list of P texts), `checkpoints` (list of C
            steps, ascending, counted as plays done), `horizon`, `instances` (n), `seed` and, if present,
            `baseline`.
        regret: pseudo-regret after each checkpoint's plays, float64 [P, C, n].
        optimal: the pull at the checkpoint's step was optimal, bool [P, C, n].
        late_optimal: pulls of optimal arms in the last max(1, horizon // 10) steps, int64 [P, n].
        pulls: pulls per arm at the horizon, int32 or int64 [P, K, n].
        best_mean: mean of the best arm of every instance, float64 [n].
        lai_robbins: the Lai-Robbins constant (Burnetas-Katehakis for empirical arms), or None where means are drawn.
        timing: whatever may differ between two runs of one spec (seconds, host, memory), JSON-able.

    Arrays are meant to change through `put` alone, which also forgets the tables made so far.

    Raises:
        ValueError: a field of `spec` is missing or wrong, or an array has not the shape or dtype above.
    """

    spec: dict[str, Any]
    regret: NDArray[np.float64]
    optimal: NDArray[np.bool_]
    late_optimal: NDArray[np.int64]
    pulls: NDArray[np.integer[Any]]
    best_mean: NDArray[np.float64]
    lai_robbins: float | None = None
    timing: dict[str, Any] = field(default_factory=dict)
    # Tables that `stau_rl.regret.tables` has made, and the resampled means behind comparisons; each takes seconds at a
    # million instances.
    tables: dict[str, pd.DataFrame] = field(default_factory=dict, init=False, repr=False)
    _resampled: dict[int, Resampled] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check shapes and dtypes against the spec."""
        p, c, n = _sizes(self.spec)
        arms = self.pulls.shape[1] if self.pulls.ndim == 3 else 0
        wide = np.int64 if self.pulls.dtype != np.int32 else np.int32
        expected = {
            "regret": ((p, c, n), np.float64),
            "optimal": ((p, c, n), np.bool_),
            "late_optimal": ((p, n), np.int64),
            "pulls": ((p, max(arms, 1), n), wide),
            "best_mean": ((n,), np.float64),
        }
        for name, (shape, dtype) in expected.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype != dtype:
                found = f"{array.dtype} {list(array.shape)}"
                raise ValueError(f"{name} must be {np.dtype(dtype)} {list(shape)}, got {found}")

    @classmethod
    def allocate(
        cls,
        spec: dict[str, Any],
        best_mean: NDArray[np.float64],
        arms: int,
        lai_robbins: float | None = None,
    ) -> Self:
        """A result whose arrays wait for `put`: regret at the last checkpoint is nan, the rest 0.

        Pulls are int32 where they fit.

        Args:
            spec: as the attribute.
            best_mean: as the attribute, float64 [n].
            arms: number of arms K.
            lai_robbins: as the attribute.

        Raises:
            ValueError: a field of `spec` is missing, or `best_mean` does not match it.
        """
        p, c, n = _sizes(spec)
        narrow = spec["horizon"] <= np.iinfo(np.int32).max
        # One row marks what is missing: memory of zeros is not touched before it is filled.
        regret = np.zeros((p, c, n))
        regret[:, -1] = np.nan
        return cls(
            spec,
            regret,
            np.zeros((p, c, n), dtype=np.bool_),
            np.zeros((p, n), dtype=np.int64),
            np.zeros((p, arms, n), dtype=np.int32 if narrow else np.int64),
            np.asarray(best_mean, dtype=np.float64),
            lai_robbins,
        )

    def put(self, policy: str, first_instance: int, block: Block) -> None:
        """Copy what `policy` did on instances first_instance, first_instance + 1, ... into the arrays.

        Args:
            policy: the policy's text.
            first_instance: number of the block's first instance, counted from 0 in this result.
            block: an engine's answer.

        Raises:
            ValueError: the policy is not in the spec, or the block does not fit.
        """
        p = self.index(policy)
        last = first_instance + block.late_optimal.size
        arms, checkpoints = self.pulls.shape[1], self.regret.shape[1]
        if first_instance < 0 or last > self.best_mean.size:
            text = f"instances {first_instance} to {last - 1} do not fit in {self.best_mean.size} instances"
            raise ValueError(text)
        if block.regret.shape[0] != checkpoints or block.pulls.shape[0] != arms:
            shapes = f"regret {block.regret.shape} and pulls {block.pulls.shape}"
            raise ValueError(f"block must have {checkpoints} checkpoints and {arms} arms, got {shapes}")
        rows = slice(first_instance, last)
        self.regret[p, :, rows] = block.regret
        self.optimal[p, :, rows] = block.optimal
        self.late_optimal[p, rows] = block.late_optimal
        self.pulls[p, :, rows] = block.pulls
        self.tables.clear()
        self._resampled.clear()

    def resampled(self, resamples: int = RESAMPLES) -> Resampled:
        """Means of every policy in each bootstrap resample of the instances; drawn once, for all comparisons."""
        if resamples not in self._resampled:
            self._resampled[resamples] = resampled_means(self.regret, seed=self.spec["seed"], resamples=resamples)
        return self._resampled[resamples]

    @property
    def arms_shown(self) -> str:
        """Text of the arms for titles, cut where it is long."""
        text = str(self.spec.get("arms", "arms"))
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

    @property
    def policies(self) -> list[str]:
        """The policies' texts, in the order of the first axis."""
        return list(self.spec["policies"])

    @property
    def stuck(self) -> NDArray[np.bool_]:
        """Less than 1 % of the last max(1, horizon // 10) pulls went to optimal arms, bool [P, n]."""
        return self._stuck(self.late_optimal)

    def stuck_in(self, policy: int, instances: slice) -> NDArray[np.bool_]:
        """`stuck` of some instances of the policy at that position."""
        return self._stuck(self.late_optimal[policy, instances])

    def _stuck(self, late_optimal: NDArray[np.int64]) -> NDArray[np.bool_]:
        return late_optimal * 100 < max(1, self.spec["horizon"] // 10)

    def index(self, policy: str) -> int:
        """Position of a policy on the first axis.

        Raises:
            ValueError: the policy is not in this result; the message lists those that are.
        """
        if policy not in self.policies:
            policy = _canonical(policy)
        if policy not in self.policies:
            known = ", ".join(repr(p) for p in self.policies)
            raise ValueError(f"policy {policy!r} is not in this result; it has {known}")
        return self.policies.index(policy)


def _canonical(policy: str) -> str:
    """The text that a policy prints, for `ucb|softmax(1)` and the like; the text itself if it does not parse."""
    try:
        return str(parse_policy(policy))
    except SpecError:
        return policy


def _sizes(spec: dict[str, Any]) -> tuple[int, int, int]:
    """Numbers of policies, checkpoints and instances of a spec."""
    missing = [name for name in NEEDED if name not in spec]
    if missing:
        raise ValueError(f"spec lacks {', '.join(missing)}; a result needs {', '.join(NEEDED)}")
    policies, checkpoints = spec["policies"], spec["checkpoints"]
    if not policies or len(set(policies)) != len(policies):
        raise ValueError(f"spec policies must be different texts, one or more, got {policies!r}")
    if not checkpoints or any(b <= a for a, b in pairwise(checkpoints)):
        raise ValueError(f"spec checkpoints must ascend, one or more, got {checkpoints!r}")
    baseline = spec.get("baseline")
    if baseline is not None and baseline not in policies:
        raise ValueError(f"spec baseline {baseline!r} is not one of its policies: {', '.join(map(repr, policies))}")
    return len(policies), len(checkpoints), int(spec["instances"])
