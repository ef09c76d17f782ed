"""REINFORCE: one gradient step on whole episodes, weighted by the returns that followed.

loss = -mean (G_t - b(s_t)) log pi(a_t|s_t) + value mean (b - G)^2 - entropy mean H, with the discounted return G_t and
b the learned value or 0; with 0 there is no part of the value. A truncated episode's return goes on with the value of
its last observation; without a baseline there is no value, and it ends.

Source: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.agents.policy_gradient.rollout import RolloutWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceSettings(AgentSettings):
    """Settings of REINFORCE; `envs` is the number of episodes per update."""

    baseline: Literal["value", "none"] = "value"
    """What is subtracted from the return: value, a learned value of the observation, or none."""
    envs: int = 4
    """Episodes per update, one in each copy of the environment."""

    def __post_init__(self) -> None:
        """Check the values; a ValueError names the first bad one."""
        AgentSettings.__post_init__(self)
        self.require("baseline", self.baseline in ("value", "none"), "value or none")


class Reinforce(Agent):
    """Monte-Carlo policy gradient."""

    name: ClassVar[str] = "reinforce"
    Settings = ReinforceSettings

    def update(self, worker: RolloutWorker, random: np.random.Generator) -> tuple[int, list[float]]:
        """Collect an episode of every copy and learn from them once; the rest is as in `Agent.update`."""
        rollout, returns = worker.collect_episodes(self.actor, random)
        baseline = self.settings.baseline == "value"
        # lambda = 1: the return less the value.
        batch = self.batch(rollout, lam=1.0, baseline=baseline)
        self.descend(self.score_loss(batch, fit_value=baseline))
        self.remedies.step(batch.observations)
        return len(batch.actions), returns
