"""What a bandit policy is: a frozen spec with a reference implementation on torch tensors."""

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from stau_rl.agents.bandit.scores import Score
from stau_rl.heads import Head
from stau_rl.heads.parameter import Scheduled
from stau_rl.spec.grammar import format_spec

if TYPE_CHECKING:
    from stau_rl.envs.arms.arms import Arms
    from stau_rl.kernels.torch_loop import Draws, State


class Policy(Scheduled):
    """A rule that picks an arm from what the pulls so far have shown.

    Subclasses are frozen dataclasses. The methods below are the reference, on tensors of layout [arms, instances];
    the compiled engines hold their own code for the same `name`.

    Attributes:
        name: the name in the registry and in text.
        formula: what it does, in a line, for tables.
        source: where it comes from.
        score: the score of a policy `score | head`; None for any other.
        head: what turns numbers into the weights that arms are drawn with; None for a policy without one.
    """

    __slots__ = ()
    score: Score | None = None
    head: Head | None = None
    name: ClassVar[str]
    formula: ClassVar[str]
    source: ClassVar[str] = ""

    @property
    def forces_pulls(self) -> bool:
        """Pull arm t at each step t < K before anything else."""
        return False

    @property
    def may_abstain(self) -> bool:
        """Some steps may pull no arm: they earn 0 and leave every count as it is.

        Abstaining is then one more option, of mean 0, so regret is what a step gives up against max(mu*, 0): mu* for
        abstaining where mu* >= 0, and -mu_k for a pull of arm k where every mean is negative.
        """
        return False

    def check_steps(self, horizon: int) -> None:
        """Raise a ValueError unless all schedules, of score and head too, are legal at t = 1, ..., horizon."""
        Scheduled.check_steps(self, horizon)
        for part in (self.score, self.head):
            if part is not None:
                part.check_steps(horizon)

    def lowered(self) -> "Policy":
        """The policy that engines run: itself, or what it is shorthand for."""
        return self

    def start(self, state: "State") -> None:
        """Put the policy's own tensors into `state.own` before the first step."""

    def note(self, arms: "Arms") -> str:
        """A sentence on why this policy does not suit these arms; empty where there is none to tell."""
        return ""

    def choose(self, state: "State", draws: "Draws") -> Tensor:
        """The arm each instance pulls, int64 [instances]; the number of arms K where it abstains."""
        raise NotImplementedError

    def learn(self, state: "State", arms: Tensor, rewards: Tensor) -> None:
        """Update `state.own` after a pull; `state` already counts it.

        Args:
            state: the state after the pull, with `state.step` still the step of the pull.
            arms: the pulled arms, int64 [instances].
            rewards: their rewards, float64 [instances].
        """

    def __str__(self) -> str:
        """Text of the policy, which parses back to it."""
        return format_spec(self)
