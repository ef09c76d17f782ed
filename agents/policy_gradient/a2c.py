"""A2C: one gradient step on each short rollout.

loss = -mean A log pi(a|s) + value (V - G)^2 - entropy H, with generalised advantages A (lambda = 1: the return of the
rollout, bootstrapped, less the value) and G = A + V.

Source: Mnih et al., "Asynchronous methods for deep reinforcement learning", 2016, in its synchronous form.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.batch import Batch
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.agents.policy_gradient.policy_loss import policy_loss
from stau_rl.agents.policy_gradient.rollout import Player


@dataclass(frozen=True, slots=True, kw_only=True)
class A2CSettings(AgentSettings):
    """Settings of A2C."""

    rollout: int = 8
    """Steps of every environment between two updates."""
    lam: float = 1.0
    """Lambda of the advantages, in [0, 1]."""
    normalise: bool = False
    """Whether advantages are brought to mean 0 and deviation 1 before they are used."""

    def __post_init__(self) -> None:
        """Check the values; a ValueError names the first bad one."""
        AgentSettings.__post_init__(self)
        self.require("rollout", self.rollout >= 1, "at least 1")
        self.require("lam", 0 <= self.lam <= 1, "in [0, 1]")


class A2C(Agent):
    """Advantage actor-critic."""

    name: ClassVar[str] = "a2c"
    Settings = A2CSettings

    def update(self, player: Player, random: np.random.Generator) -> tuple[int, list[float]]:
        """Play a rollout and learn from it once; what is returned is as in `Agent.update`."""
        settings: A2CSettings = self.settings
        rollout, ended = player.play(self.actor, settings.rollout, random)
        batch = Batch.of(rollout, *self.values(rollout), settings, settings.lam)
        if not len(batch.actions):
            # Every copy only reset: there is nothing to learn from, and Adam would move on without a gradient.
            return 0, ended
        loss = policy_loss(self.network, *batch, settings)
        self.optimiser.step(loss, self.learning_rate, settings.max_grad_norm)
        self.remedies.step(batch.observations)
        return len(batch.actions), ended
