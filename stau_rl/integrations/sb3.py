"""Policies for Stable-Baselines3: any head in place of softmax in A2C, PPO and what else takes an actor-critic policy.

`PPO(STauPolicy, "CartPole-v1")`, or `PPO(HeadActorCriticPolicy, "CartPole-v1", policy_kwargs={"head": "escort(p=2)"})`.
"""

from typing import Any

from stable_baselines3.common.distributions import CategoricalDistribution
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


class HeadActorCriticPolicy(HeadPolicy, ActorCriticPolicy):
    """`ActorCriticPolicy` whose action probabilities are a head's weights of the network's scores; see `HeadPolicy`."""

    head_distribution = HeadDistribution


class STauPolicy(HeadActorCriticPolicy):
    """`HeadActorCriticPolicy` with s^tau and a learned tau that starts at 2; the arguments may say otherwise."""

    def __init__(
        self, *args: Any, head: str = "s_tau(tau=2)", learn: tuple[str, ...] = ("tau",), **kwargs: Any
    ) -> None:
        super().__init__(*args, head=head, learn=learn, **kwargs)


__all__ = ["HeadActorCriticPolicy", "HeadDistribution", "STauPolicy"]
