"""Random: every arm alike."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from stau_rl.agents.bandit.policy import Policy

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import Draws, State


@dataclass(frozen=True, slots=True)
class Random(Policy):
    """Arm floor(u K), the yardstick of learning nothing."""

    name: ClassVar[str] = "random"
    formula: ClassVar[str] = "uniform over the arms"

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]."""
        return (draws.action(state.step) * state.arms).to(torch.int64)
