"""A policy for sb3-contrib's MaskablePPO: any head, over the valid actions alone.

`MaskablePPO(MaskableHeadPolicy, env, policy_kwargs={"head": "s_tau(tau=2)", "learn": ("tau",)})`.
"""

from typing import Any, ClassVar

import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import (
    MaskableCategoricalDistribution,
    MaskableMultiCategoricalDistribution,
)
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from torch import Tensor

from stau_rl.integrations.policy import HeadPolicy
from stau_rl.nn.categorical import HeadCategorical
from stau_rl.nn.head_module import HeadModule


class MaskableHeadDistribution(MaskableCategoricalDistribution):
    """sb3-contrib's wrapper of a `HeadCategorical`; masked actions have probability exactly 0.

    Args:
        module: the head.
        action_dim: number of actions.
    """

    def __init__(self, module: HeadModule, action_dim: int) -> None:
        super().__init__(action_dim)
        self.module = module

    def proba_distribution(self, action_logits: Tensor) -> "MaskableHeadDistribution":
        """Set the distribution from the network's scores [batch, actions], unmasked."""
        self.scores = action_logits.view(-1, self.action_dim)
        self.apply_masking(None)
        return self

    def apply_masking(self, masks: Any) -> None:
        """Give all the weight to the valid actions: masks [batch, actions], True where valid; None for all."""
        mask = None
        if masks is not None:
            mask = torch.as_tensor(masks, dtype=torch.bool, device=self.scores.device).reshape(self.scores.shape)
        self.distribution = HeadCategorical(self.scores, self.module, mask)


class MaskableMultiHeadDistribution(MaskableMultiCategoricalDistribution):
    """Several actions at once, each drawn from the head's weights over its valid choices.

    Args:
        module: the head, one for all actions.
        action_dims: how many choices each action has.
    """

    def __init__(self, module: HeadModule, action_dims: list[int]) -> None:
        super().__init__(action_dims)
        self.module = module

    def proba_distribution(self, action_logits: Tensor) -> "MaskableMultiHeadDistribution":
        """Set the distributions from the network's scores [batch, choices of all actions], unmasked."""
        self.scores = action_logits.view(-1, sum(self.action_dims))
        self.apply_masking(None)
        return self

    def apply_masking(self, masks: Any) -> None:
        """Give all the weight to the valid choices; masks as for one action, those of all actions side by side."""
        parts = torch.split(self.scores, self.action_dims, dim=1)
        kept: Any = [None] * len(parts)
        if masks is not None:
            whole = torch.as_tensor(masks, dtype=torch.bool, device=self.scores.device).reshape(self.scores.shape)
            kept = torch.split(whole, self.action_dims, dim=1)
        pairs = zip(parts, kept, strict=True)
        self.distributions = [HeadCategorical(scores, self.module, mask) for scores, mask in pairs]


class MaskableHeadPolicy(HeadPolicy, MaskableActorCriticPolicy):
    """`MaskableActorCriticPolicy` whose action probabilities are a head's weights over the valid actions; see there."""

    head_distributions: ClassVar[dict[type, Any]] = {
        spaces.Discrete: MaskableHeadDistribution,
        spaces.MultiDiscrete: MaskableMultiHeadDistribution,
    }


__all__ = ["MaskableHeadDistribution", "MaskableHeadPolicy", "MaskableMultiHeadDistribution"]
