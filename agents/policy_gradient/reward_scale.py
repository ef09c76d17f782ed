"""The unit of the rewards that are learned from: a fixed factor, or the running deviation of the discounted return.

With `return` a reward r becomes r / sqrt(var + 1e-8), cut at -10 and 10, where var is the variance of the discounted
returns R_t = gamma R_{t-1} + r_t of every step of training so far, R starting at 0 with each episode. So a network has
values of size 1 to learn, whatever the environment's unit.

Source: `NormalizeReward` of Gymnasium and `VecNormalize` of Stable-Baselines3, which has the cut. Unlike there all
steps of a rollout have one scale, that of the statistics with the rollout in them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stau_rl.agents.policy_gradient.environments import Floats
from stau_rl.agents.policy_gradient.rollout import Rollout

RETURN = "return"
EPS, CUT = 1e-8, 10.0


class RewardScale:
    """Scales the rewards of rollouts, and keeps the statistics that this may take.

    Args:
        scale: a factor, or `return`.
        gamma: discount factor of the return.

    Attributes:
        count: steps seen.
        mean: of their discounted returns.
        squares: sum of squared deviations from the mean.
    """

    def __init__(self, scale: float | str, gamma: float) -> None:
        self.scale, self.gamma = scale, gamma
        self.count, self.mean, self.squares = 0, 0.0, 0.0
        self._running: NDArray[np.float64] | None = None

    @property
    def factor(self) -> float:
        """What a reward is multiplied by now."""
        if not isinstance(self.scale, str):
            return self.scale
        return float(1 / np.sqrt(self.squares / max(self.count, 1) + EPS))

    def begin(self) -> None:
        """Start on environments that are made anew; the statistics stay."""
        self._running = None

    def rewards(self, rollout: Rollout) -> Floats:
        """The rewards of a rollout as they are learned from, float32 [T, N]; each rollout is to be given once."""
        if not isinstance(self.scale, str):
            return rollout.rewards * np.float32(self.scale)
        self._see(rollout)
        return (rollout.rewards * self.factor).clip(-CUT, CUT).astype(np.float32)

    def _see(self, rollout: Rollout) -> None:
        """Add the discounted returns of a rollout's steps that count."""
        running = np.zeros(rollout.rewards.shape[1]) if self._running is None else self._running
        returns = np.empty(rollout.rewards.shape)
        done = rollout.terminated | rollout.truncated
        for t, rewards in enumerate(rollout.rewards.astype(np.float64)):
            running = np.where(rollout.valid[t], self.gamma * running + rewards, running)
            returns[t] = running
            running = np.where(done[t], 0.0, running)
        self._running = running
        seen = returns[rollout.valid]
        if not len(seen):
            return
        # Chan, Golub and LeVeque 1983: the moments of two samples together.
        mean, total = float(seen.mean()), self.count + len(seen)
        apart = mean - self.mean
        self.squares += float(np.square(seen - mean).sum()) + apart * apart * self.count * len(seen) / total
        self.mean += apart * len(seen) / total
        self.count = total

    def state(self) -> dict[str, Any]:
        """The statistics, for `load`."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def load(self, state: dict[str, Any]) -> None:
        """Take up the statistics of another scale."""
        self.count, self.mean, self.squares = state["count"], state["mean"], state["squares"]
