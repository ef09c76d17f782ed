"""The remedies for a learned sharpness that an agent's settings ask for, and what the head has learned."""

import math

import torch
from torch import Tensor

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings, learned_column
from stau_rl.agents.policy_gradient.networks import ActorCritic
from stau_rl.nn.remedies import EntropyControl, TauWarmup, entropy_share


class Remedies:
    """Freezes what a head learns for the first environment steps, then has its sharpness follow the target entropy.

    Entropy control moves the sharpness once per update of the agent, after its gradient steps: within the passes of
    PPO the probability ratios change by the gradient alone.

    Args:
        network: policy whose head learns.
        settings: `head_warmup`, `target_entropy` and `target_entropy_rate`.
    """

    def __init__(self, network: ActorCritic, settings: AgentSettings) -> None:
        self.network, self.settings = network, settings
        self.warm_up = TauWarmup(network.module, settings.head_warmup) if settings.head_warmup else None
        self.control: EntropyControl | None = None
        self._seen: Tensor | None = None
        self._take_control()

    @property
    def frozen(self) -> bool:
        """Whether the warm-up is still under way."""
        return self.warm_up is not None and self.warm_up.frozen

    def _take_control(self) -> None:
        # After the warm-up, whose end frees the sharpness that control takes from the optimiser.
        settings = self.settings
        self.control = None
        if settings.target_entropy and not self.frozen:
            self.control = EntropyControl(self.network.module, settings.target_entropy, settings.target_entropy_rate)

    def step(self, observations: Tensor) -> None:
        """Count an update of the agent and, once warmed up, move the sharpness towards the target entropy.

        Args:
            observations: of the environment steps that were learned from, float32 [B, inputs].
        """
        self._seen = observations
        if self.warm_up is not None and self.warm_up.frozen:
            self.warm_up.step(len(observations))
            self._take_control()
        elif self.control is not None:
            with torch.no_grad():
                self.control.move(self.network.log_policy(observations))

    def begin(self) -> None:
        """Start a segment of the run, which knows nothing of the states before."""
        self._seen = None

    def learned(self) -> dict[str, float]:
        """What the head has learned by now; empty where it learns nothing.

        Returns:
            `learned_NAME`, the value of each learned parameter, and `entropy`, the mean entropy of the policy as it is
            now on the states of the segment's last update, as a share of log n, n the number of actions: nan without
            an update, 0 with one action.
        """
        module = self.network.module
        if not module.learn:
            return {}
        with torch.no_grad():
            found = {learned_column(name): float(module.value(name)) for name in module.learn}
            seen = self._seen
            share = math.nan if seen is None else float(entropy_share(self.network.log_policy(seen))[0].mean())
        return found | {"entropy": share}

    def resume(self, step: int) -> None:
        """Go on after as many environment steps as were learned from, forwards or back."""
        if self.warm_up is not None:
            self.warm_up.load_state_dict({"done": step})
            self._take_control()
