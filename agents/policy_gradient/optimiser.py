"""Adam on one flat vector: a dozen small tensors cost more in calls than in arithmetic."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn


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
