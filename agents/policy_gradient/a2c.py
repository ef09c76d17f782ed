"""A2C: one gradient step on each short rollout.

loss = -mean A log pi(a|s) + value mean (V - G)^2 - entropy mean H, with generalised advantages A (lambda = 1: the
return of the rollout, bootstrapped, less the value) and G = A + V.

Source: Mnih et al., "Asynchronous methods for deep reinforcement learning", 2016, in its synchronous form.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.agents.policy_gradient.rollout import RolloutWorker


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

    def update(self, worker: RolloutWorker, random: np.random.Generator) -> tuple[int, list[float]]:
        """Collect a rollout and learn from it once; arguments and what is returned are as in `Agent.update`."""
        settings: A2CSettings = self.settings
        rollout, ended = worker.collect(self.actor, settings.rollout, random)
        if not rollout.steps:
            # Every copy only reset: there is nothing to learn from, and Adam would move on without a gradient.
            return 0, ended
        batch = self.batch(rollout, settings.lam)
        self.descend(self.score_loss(batch))
        self.remedies.step(batch.observations)
        return len(batch.actions), ended
