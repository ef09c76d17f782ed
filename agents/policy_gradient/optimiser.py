"""What moves an agent's parameters: Adam on one flat vector, and the remedies for a sharpness that is learned too.

One vector, since a dozen small tensors cost more in calls than in arithmetic.
"""

import math
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings, learned_column
from stau_rl.agents.policy_gradient.networks import ActorCritic
from stau_rl.nn.remedies import EntropyControl, TauWarmup, entropy_share


class FlatAdam:
    """Adam with clipped gradients, for parameters that become views of one vector.

    Args:
        networks: groups of float32 parameters on the CPU, each clipped by itself, so that a large gradient of one
            does not shorten another's; their memory moves into the vector.
        eps: Adam's epsilon.
        apart: parameters that stay as they are, with a learning rate of their own and no clipping.
        apart_rate: their learning rate as a multiple of the others'.
    """

    def __init__(
        self,
        networks: Iterable[Iterable[nn.Parameter]],
        eps: float,
        apart: Iterable[nn.Parameter] = (),
        apart_rate: float = 1.0,
    ) -> None:
        groups = [list(network) for network in networks]
        members = [member for group in groups for member in group]
        self.flat = nn.Parameter(torch.cat([member.detach().reshape(-1) for member in members]))
        self.flat.grad = torch.zeros_like(self.flat)
        start = 0
        for member in members:
            part = slice(start, start + member.numel())
            member.data = self.flat.data[part].view_as(member)
            # Backward adds into a gradient that is already there, so it fills the vector's.
            member.grad = self.flat.grad[part].view_as(member)
            start = part.stop
        self.apart, self.apart_rate = list(apart), apart_rate
        sizes = [sum(member.numel() for member in group) for group in groups]
        self._grads = self.flat.grad.split(sizes)
        kinds = [[self.flat], *([self.apart] if self.apart else [])]
        self._adam = torch.optim.Adam([{"params": kind} for kind in kinds], lr=0.0, eps=eps, fused=True)

    def step(self, loss: Tensor, learning_rate: float, max_norm: float) -> None:
        """Descend the gradient of a scalar loss, each network's shortened to `max_norm` where it is longer."""
        grad = self.flat.grad
        assert grad is not None
        grad.zero_()
        for parameter in self.apart:
            parameter.grad = None
        loss.backward()
        for part in self._grads:
            norm = torch.linalg.vector_norm(part)
            part.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        for group, factor in zip(self._adam.param_groups, (1.0, self.apart_rate), strict=False):
            group["lr"] = learning_rate * factor
        self._adam.step()

    def finite(self) -> bool:
        """Whether every parameter is finite."""
        return all(bool(torch.isfinite(parameter).all()) for parameter in (self.flat, *self.apart))

    def state(self) -> dict[str, Any]:
        """Parameters and moments, for `load`."""
        apart = [parameter.detach().clone() for parameter in self.apart]
        # Adam's own dictionary holds the moments themselves, which the next step changes.
        return {"flat": self.flat.detach().clone(), "apart": apart, "adam": deepcopy(self._adam.state_dict())}

    def load(self, state: dict[str, Any]) -> None:
        """Take up the state of another optimiser of the same parameters."""
        self.flat.data.copy_(state["flat"])
        for parameter, kept in zip(self.apart, state["apart"], strict=True):
            parameter.data.copy_(kept)
        self._adam.load_state_dict(deepcopy(state["adam"]))


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
