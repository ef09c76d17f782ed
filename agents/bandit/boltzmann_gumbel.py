"""Boltzmann exploration done right: the largest mean after Gumbel noise whose scale falls with an arm's own pulls."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from stau_rl.agents.bandit.policy import Policy
from stau_rl.kernels.philox import open_uniform

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import Draws, State


@dataclass(frozen=True, slots=True)
class BoltzmannGumbel(Policy):
    """Arm = argmax over k of S_k / n_k + c / sqrt(n_k) G_k, with G_k standard Gumbel draws.

    G_k = -ln(-ln u_k), u_k being the policy's private uniform for arm k. With one scale for all arms this would be
    softmax(beta=1 / scale) on the means; here an arm that was pulled often is explored less. Arm t is pulled at each
    step t < K, as the scale is infinite before.

    Source: Cesa-Bianchi, Gentile, Lugosi, Neu, "Boltzmann exploration done right", NeurIPS 2017.

    Attributes:
        c: scale of the noise at one pull, > 0; it carries the scale of the rewards.
    """

    name: ClassVar[str] = "boltzmann_gumbel"
    formula: ClassVar[str] = "argmax of S_k / n_k + c / sqrt(n_k) Gumbel_k"
    source: ClassVar[str] = "Cesa-Bianchi et al. 2017"

    c: float = field(default=1.0, metadata={"show": True})

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0.0 < self.c < math.inf:
            raise ValueError(f"boltzmann_gumbel: c must be finite and > 0, got {self.c!r}")

    @property
    def forces_pulls(self) -> bool:
        """Pull arm t at each step t < K before anything else."""
        return True

    def perturbed_means(self, state: "State", draws: "Draws") -> Tensor:
        """Each arm's mean after its noise, float64 [arms, instances]; every arm has been pulled."""
        gumbel = -(-open_uniform(draws.private(state.step)[0]).log()).log()
        return state.sums / state.counts + self.c * gumbel * state.counts.double().rsqrt()

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]."""
        return self.perturbed_means(state, draws).argmax(0)
