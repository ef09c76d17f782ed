"""What an agent learns from: the steps of a rollout as tensors."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stau_rl.agents.policy_gradient.advantages import generalised_advantages
from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.rollout import Floats, Rollout


class Batch(NamedTuple):
    """The B steps of a rollout that were steps; those that only reset an environment are left out.

    Attributes:
        observations: float32 [B, inputs].
        actions: int64 [B].
        advantages: float32 [B].
        targets: of the value: what the advantage was taken from, A + V, float32 [B].
    """

    observations: Tensor
    actions: Tensor
    advantages: Tensor
    targets: Tensor

    @classmethod
    def of(cls, rollout: Rollout, values: Floats, following: Floats, settings: AgentSettings, lam: float) -> "Batch":
        """The batch of a rollout, with rewards times `reward_scale`.

        Args:
            rollout: T steps of N environments.
            values: V(s_t), float32 [T, N].
            following: V of what followed before any reset, float32 [T, N].
            settings: discount factor and scale of the rewards.
            lam: lambda of the advantages, in [0, 1].
        """
        done = rollout.terminated | rollout.truncated
        rewards = rollout.rewards * np.float32(settings.reward_scale)
        advantages = generalised_advantages(rewards, values, following, rollout.terminated, done, settings.gamma, lam)
        keep = np.flatnonzero(rollout.valid)
        return cls(
            torch.from_numpy(rollout.observations[:-1].reshape(rollout.valid.size, -1)[keep]),
            torch.from_numpy(rollout.actions.ravel()[keep]),
            torch.from_numpy(advantages.ravel()[keep]),
            torch.from_numpy((advantages + values).ravel()[keep]),
        )
