"""The loss of the agents that learn once from what they played."""

from torch import Tensor

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.networks import ActorCritic, entropies


def policy_loss(
    network: ActorCritic,
    observations: Tensor,
    actions: Tensor,
    advantages: Tensor,
    targets: Tensor | None,
    settings: AgentSettings,
) -> Tensor:
    """-mean A log pi(a|s) + value (V - target)^2 - entropy H.

    Args:
        network: policy and value.
        observations: float32 [B, inputs].
        actions: int64 [B].
        advantages: float32 [B]; no gradient flows through them.
        targets: of the value, float32 [B]; None leaves the value as it is.
        settings: weights of the parts, and whether advantages are normalised.

    Returns:
        A scalar.
    """
    if settings.normalise and len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_policy = network.log_policy(observations)
    loss = -(log_policy.gather(1, actions[:, None]).squeeze(1) * advantages).mean()
    if targets is not None:
        loss = loss + settings.value * (network.values(observations) - targets).square().mean()
    if settings.entropy:
        loss = loss - settings.entropy * entropies(log_policy).mean()
    return loss
