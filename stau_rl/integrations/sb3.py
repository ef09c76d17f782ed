"""Policies for Stable-Baselines3: any head in place of softmax in A2C, PPO and what else takes an actor-critic policy.

`PPO(STauPolicy, "CartPole-v1")`, or `PPO(HeadActorCriticPolicy, "CartPole-v1", policy_kwargs={"head": "escort(p=2)"})`.
"""

from typing import Any, ClassVar

import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import CategoricalDistribution, MultiCategoricalDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from stau_rl.integrations.policy import HeadPolicy
from stau_rl.nn.categorical import HeadCategorical
from stau_rl.nn.head_module import HeadModule


class HeadDistribution(CategoricalDistribution):
    """Stable-Baselines3's wrapper of a `HeadCategorical`.

    Args:
        module: the head.
        action_dim: number of actions.
    """

    def __init__(self, module: HeadModule, action_dim: int) -> None:
        super().__init__(action_dim)
        self.module = module

    def proba_distribution(self, action_logits: Tensor) -> "HeadDistribution":
        """Set the distribution from the network's scores [batch, actions]."""
        self.distribution = HeadCategorical(action_logits, self.module)
        return self


class MultiHeadDistribution(MultiCategoricalDistribution):
    """Several actions at once, each drawn from the head's weights of its own scores.

    Args:
        module: the head, one for all actions.
        action_dims: how many choices each action has.
    """

    def __init__(self, module: HeadModule, action_dims: list[int]) -> None:
        super().__init__(action_dims)
        self.module = module

    def proba_distribution(self, action_logits: Tensor) -> "MultiHeadDistribution":
        """Set the distributions from the network's scores [batch, choices of all actions]."""
        parts = torch.split(action_logits, self.action_dims, dim=1)
        self.distribution = [HeadCategorical(scores, self.module) for scores in parts]
        return self


class HeadActorCriticPolicy(HeadPolicy, ActorCriticPolicy):
    """`ActorCriticPolicy` whose action probabilities are a head's weights of the network's scores; see `HeadPolicy`."""

    head_distributions: ClassVar[dict[type, Any]] = {
        spaces.Discrete: HeadDistribution,
        spaces.MultiDiscrete: MultiHeadDistribution,
    }


class STauPolicy(HeadActorCriticPolicy):
    """`HeadActorCriticPolicy` with s^tau and a learned tau that starts at 2; the arguments may say otherwise."""

    def __init__(
        self, *args: Any, head: str = "s_tau(tau=2)", learn: str | tuple[str, ...] = ("tau",), **kwargs: Any
    ) -> None:
        super().__init__(*args, head=head, learn=learn, **kwargs)


__all__ = ["HeadActorCriticPolicy", "HeadDistribution", "MultiHeadDistribution", "STauPolicy"]
