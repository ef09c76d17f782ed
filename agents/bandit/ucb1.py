"""UCB1: the arm of the largest upper confidence bound."""

from dataclasses import dataclass
from typing import ClassVar

from stau_rl.agents.bandit.pipe import Pipe
from stau_rl.agents.bandit.policy import Policy
from stau_rl.agents.bandit.scores import Ucb
from stau_rl.heads import Argmax


@dataclass(frozen=True, slots=True)
class Ucb1(Policy):
    """Shorthand for `ucb(c=1) | argmax`.

    Source: Auer, Cesa-Bianchi, Fischer, "Finite-time analysis of the multiarmed bandit problem", 2002.
    """

    name: ClassVar[str] = "ucb1"
    formula: ClassVar[str] = "ucb(c=1) | argmax"
    source: ClassVar[str] = "Auer et al. 2002"

    @property
    def forces_pulls(self) -> bool:
        """Each arm is pulled once first."""
        return True

    def lowered(self) -> Policy:
        """The pipe that engines run."""
        return Pipe(Ucb(c=1.0), Argmax())
