"""REINFORCE: one gradient step on whole episodes, weighted by the returns that followed.

loss = -mean (G_t - b(s_t)) log pi(a_t|s_t), with the discounted return G_t and b the learned value or 0. A truncated
episode's return goes on with the value of its last observation; without a baseline there is no value, and it ends.

Source: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.batch import Batch
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.agents.policy_gradient.policy_loss import policy_loss
from stau_rl.agents.policy_gradient.rollout import Player


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceSettings(AgentSettings):
    """Settings of REINFORCE; `envs` is the number of episodes per update."""

    baseline: Literal["value", "none"] = "value"
    """What is subtracted from the return: a learned value of the observation, or nothing."""
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

    def update(self, player: Player, random: np.random.Generator) -> tuple[int, list[float]]:
        """Play an episode in every copy and learn from them once; what is returned is as in `Agent.update`."""
        settings: ReinforceSettings = self.settings
        rollout, returns = player.play_episodes(self.actor, random)
        if settings.baseline == "value":
            values, following = self.values(rollout)
        else:
            values = following = np.zeros_like(rollout.rewards)
        # lambda = 1: the return less the value.
        batch = Batch.of(rollout, values, following, settings, lam=1.0)
        targets = batch.targets if settings.baseline == "value" else None
        loss = policy_loss(self.network, batch.observations, batch.actions, batch.advantages, targets, settings)
        self.optimiser.step(loss, self.learning_rate, settings.max_grad_norm)
        self.remedies.step(batch.observations)
        return len(batch.actions), returns
