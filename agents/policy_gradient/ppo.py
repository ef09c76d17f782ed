"""PPO: several epochs of minibatches on a rollout, with the probability ratio clipped.

loss = -mean min(rho A, clip(rho, 1 - c, 1 + c) A) + value mean (V - G)^2 - entropy mean H, with the probability ratio
rho = pi(a|s) / pi_old(a|s), generalised advantages A and G = A + V.

Source: Schulman et al., "Proximal policy optimization algorithms", 2017.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.policy_gradient import Agent, Batch, log_taken
from stau_rl.agents.policy_gradient.rollout import RolloutWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOSettings(AgentSettings):
    """Settings of PPO."""

    rollout: int = 128
    """Steps of every environment between two updates."""
    epochs: int = 4
    """Passes over each rollout."""
    minibatch: int = 256
    """Steps per gradient step; a rollout is cut into equal minibatches of about this size."""
    lam: float = 0.95
    """Lambda of the advantages, in [0, 1]."""
    clip: float = 0.2
    """Largest change of a probability ratio that is rewarded."""

    def __post_init__(self) -> None:
        """Check the values; a ValueError names the first bad one."""
        AgentSettings.__post_init__(self)
        for name in ("rollout", "epochs", "minibatch"):
            self.require(name, getattr(self, name) >= 1, "at least 1")
        self.require("lam", 0 <= self.lam <= 1, "in [0, 1]")
        self.require("clip", self.clip > 0, "positive")


class PPO(Agent):
    """Proximal policy optimisation."""

    name: ClassVar[str] = "ppo"
    Settings = PPOSettings

    def update(self, worker: RolloutWorker, random: np.random.Generator) -> tuple[int, list[float]]:
        """Collect a rollout and make the passes over it; arguments and what is returned are as in `Agent.update`."""
        settings: PPOSettings = self.settings
        rollout, ended = worker.collect(self.actor, settings.rollout, random)
        if not rollout.steps:
            # Every copy only reset: there is nothing to learn from, and Adam would move on without a gradient.
            return 0, ended
        batch = self.batch(rollout, settings.lam)
        with torch.no_grad():
            old = log_taken(self.network.log_policy(batch.observations), batch.actions)
        count = max(1, round(len(batch.actions) / settings.minibatch))
        for _ in range(settings.epochs):
            order = self.tensor(random.permutation(len(batch.actions)))
            # One gather per pass, and minibatches that are slices of it.
            parts = (part[order].tensor_split(count) for part in (*batch, old))
            for *minibatch, old_part in zip(*parts, strict=True):
                self.descend(self.loss(Batch(*minibatch), old_part))
        self.remedies.step(batch.observations)
        return len(batch.actions), ended

    def loss(self, batch: Batch, old: Tensor) -> Tensor:
        """-mean min(rho A, clip(rho, 1 - c, 1 + c) A), and the shared parts.

        Args:
            batch: a minibatch of B steps.
            old: log pi_old(a|s) of the policy that collected them, float32 [B].
        """
        settings: PPOSettings = self.settings
        advantages = self.weighed(batch.advantages)
        log_policy = self.network.log_policy(batch.observations)
        ratio = (log_taken(log_policy, batch.actions) - old).exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        return self.with_shared_parts(loss, log_policy, batch)
