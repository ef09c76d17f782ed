"""The bandit loop as a torch user would write it: one step at a time, eager or compiled; the peer of the engines.

Centred UCB scores | s_tau or softmax on Bernoulli arms, layout [arms, instances], float32. Uniforms are drawn for a
block of steps at once, as a call of the generator costs as much as an operation on the state.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

EPS = 1e-8
UNIFORMS_AT_ONCE = 1 << 25


def step(counts: Any, sums: Any, uniforms: Any, width: Any, means: Any, tau: float | None, beta: float | None) -> Any:
    """The state after one more pull; `uniforms` [2, instances], `width` [4] begins with c sqrt(2 ln N)."""
    scores = sums / counts + width[0] * counts.rsqrt()
    scores = scores - scores.mean(0)
    weights = torch.exp(beta * scores) if tau is None else (torch.nn.functional.softplus(scores) + EPS) ** tau
    cdf = weights.cumsum(0)
    arm = (cdf <= uniforms[0] * cdf[-1]).sum(0)
    pulled = torch.arange(len(counts), device=counts.device)[:, None] == arm
    return counts + pulled, sums + pulled * (uniforms[1] < means)


class TorchPeer:
    """A case that is played again and again."""

    def __init__(
        self,
        means: NDArray[np.float64],
        *,
        tau: float | None = None,
        beta: float | None = None,
        horizon: int,
        instances: int,
        device: str,
        compiled: bool,
    ) -> None:
        """Put the arms on the device.

        Args:
            means: [arms, 1 or instances].
            tau: exponent of s_tau; or
            beta: inverse temperature of softmax.
            horizon: steps T, at least the number of arms, whose first pulls are forced.
            instances: independent replicates.
            device: `cpu` or `cuda`.
            compiled: whether torch compiles the step.
        """
        self._means = torch.as_tensor(means, dtype=torch.float32, device=device)
        self._head, self._horizon, self._instances = {"tau": tau, "beta": beta}, horizon, instances
        steps = torch.arange(horizon, dtype=torch.float64).clamp(min=1)
        # Rows of four numbers, so that every row starts where vector loads may.
        self._widths = (2.0 * steps.log()).sqrt().float()[:, None].expand(-1, 4).contiguous().to(device)
        self._step = torch.compile(step, dynamic=False) if compiled else step
        self._counts = self._means

    def run(self, seed: int) -> None:
        """Play from the start; returns when it is done."""
        arms, n, device = len(self._means), self._instances, self._means.device
        generator = torch.Generator(device).manual_seed(seed)
        counts = torch.ones(arms, n, device=device)
        sums = (torch.rand(arms, n, generator=generator, device=device) < self._means).float()
        block = max(1, UNIFORMS_AT_ONCE // (2 * n))
        with torch.no_grad():
            for t in range(arms, self._horizon):
                if (t - arms) % block == 0:
                    uniforms = torch.rand(block, 2, n, generator=generator, device=device)
                row = uniforms[(t - arms) % block]
                counts, sums = self._step(counts, sums, row, self._widths[t], self._means, **self._head)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._counts = counts

    def regret(self) -> NDArray[np.float64]:
        """Pseudo-regret of the last play, float64 [instances]."""
        means = self._means.double()
        gaps = means.max(0, keepdim=True).values - means
        return (self._counts.double() * gaps).sum(0).cpu().numpy()
