"""PPO: several epochs of minibatches on a rollout, with the probability ratio clipped.

loss = -mean min(rho A, clip(rho, 1 - c, 1 + c) A) + value (V - G)^2 - entropy H, rho = pi(a|s) / pi_old(a|s), with
generalised advantages A and G = A + V.

Source: Schulman et al., "Proximal policy optimization algorithms", 2017.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.batch import Batch
from stau_rl.agents.policy_gradient.networks import entropies
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.agents.policy_gradient.rollout import Player


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

    def update(self, player: Player, random: np.random.Generator) -> tuple[int, list[float]]:
        """Play a rollout and make the passes over it; what is returned is as in `Agent.update`."""
        settings: PPOSettings = self.settings
        rollout, ended = player.play(self.actor, settings.rollout, random)
        batch = Batch.of(rollout, *self.values(rollout), settings, settings.lam)
        if not len(batch.actions):
            # Every copy only reset: there is nothing to learn from, and Adam would move on without a gradient.
            return 0, ended
        with torch.no_grad():
            old = _taken(self.network.log_policy(batch.observations), batch.actions)
        learning_rate = self.learning_rate
        pieces = max(1, round(len(batch.actions) / settings.minibatch))
        for _ in range(settings.epochs):
            order = torch.from_numpy(random.permutation(len(batch.actions)))
            # One gather per pass, and minibatches that are slices of it.
            parts = (part[order].tensor_split(pieces) for part in (*batch, old))
            for minibatch in zip(*parts, strict=True):
                self.optimiser.step(self._loss(*minibatch), learning_rate, settings.max_grad_norm)
        self.remedies.step(batch.observations)
        return len(batch.actions), ended

    def _loss(self, observations: Tensor, actions: Tensor, advantages: Tensor, targets: Tensor, old: Tensor) -> Tensor:
        settings: PPOSettings = self.settings
        if settings.normalise and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_policy = self.network.log_policy(observations)
        ratio = (_taken(log_policy, actions) - old).exp()
        clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        loss = loss + settings.value * (self.network.values(observations) - targets).square().mean()
        if settings.entropy:
            loss = loss - settings.entropy * entropies(log_policy).mean()
        return loss


def _taken(log_policy: Tensor, actions: Tensor) -> Tensor:
    return log_policy.gather(1, actions[:, None]).squeeze(1)
