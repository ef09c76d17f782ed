"""Scores: the numbers that a head turns into weights."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from stau_rl.heads.parameter import Scheduled, parameter
from stau_rl.spec.grammar import format_spec
from stau_rl.spec.schedule import Schedule

if TYPE_CHECKING:
    from stau_rl.kernels.torch_loop import State


class Score(Scheduled):
    """A number per arm, from the pulls so far; a frozen dataclass with a `name`.

    A parameter made by `stau_rl.heads.parameter.parameter` may be a schedule; `at(t)` is the score of step t, and only
    that has values.

    Attributes:
        forces_pulls: arm t is pulled at each step t < K, so that every arm has been pulled when scores are asked for.
    """

    __slots__ = ()
    name: ClassVar[str]
    formula: ClassVar[str]
    source: ClassVar[str] = ""
    forces_pulls: ClassVar[bool] = False

    def values(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores [arms, instances] in `dtype`."""
        raise NotImplementedError

    def differences(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores up to a constant of the row: all that heads see which do not notice a shift.

        Whatever moves every score alike is left out, as adding it would only round differences away.
        """
        return self.values(state, dtype)

    def fixed(self, value: Any) -> Any:
        """The value of a parameter, for use in `values`; a ValueError for a schedule."""
        if isinstance(value, Schedule):
            raise ValueError(f"{self} changes with t; score.at(t) is the score of step t")
        return value

    def start(self, state: "State") -> None:
        """Put the score's own tensors into `state.own` before the first step."""

    def learn(self, state: "State", arms: Tensor, rewards: Tensor) -> None:
        """Update them after a pull, as `Policy.learn` does."""

    def __str__(self) -> str:
        """Text of the score, which parses back to it."""
        return format_spec(self)


@dataclass(frozen=True, slots=True)
class Mean(Score):
    """Empirical mean reward of each arm; 0 for an arm never pulled."""

    name: ClassVar[str] = "mean"
    formula: ClassVar[str] = "S_k / n_k"

    def values(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores [arms, instances] in `dtype`."""
        return state.means(dtype)


@dataclass(frozen=True, slots=True)
class Ucb(Score):
    """Upper confidence bound: mean_k + c sqrt(2 ln N / n_k), N steps so far.

    Source: Auer, Cesa-Bianchi, Fischer, "Finite-time analysis of the multiarmed bandit problem", 2002 (UCB1, c = 1).

    Attributes:
        c: width of the bonus, >= 0; it carries the scale of the rewards.
        offset: a constant added to every score. Heads that see differences alone, as softmax does, ignore it.
    """

    name: ClassVar[str] = "ucb"
    formula: ClassVar[str] = "S_k / n_k + c sqrt(2 ln N / n_k) + offset"
    forces_pulls: ClassVar[bool] = True

    c: float | Schedule = parameter(1.0, low=0.0, show=False)
    offset: float | Schedule = parameter(0.0, show=False)

    def __post_init__(self) -> None:
        """Check the parameters; schedules at the first step."""
        self._check_ranges()

    def values(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores [arms, instances] in `dtype`."""
        return self._bounds(state, dtype) + self.fixed(self.offset)

    def differences(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores without offset and centre, [arms, instances] in `dtype`."""
        return self._bounds(state, dtype)

    def _bounds(self, state: "State", dtype: torch.dtype) -> Tensor:
        width = self.fixed(self.c) * math.sqrt(2.0 * math.log(state.step))
        return state.means(dtype) + width * state.counts.to(dtype).rsqrt()


@dataclass(frozen=True, slots=True)
class CentredUcb(Ucb):
    """Upper confidence bound minus its mean over the arms.

    Attributes:
        c: width of the bonus, >= 0; it carries the scale of the rewards.
        offset: a constant added to every score after centring.
    """

    name: ClassVar[str] = "centred_ucb"
    formula: ClassVar[str] = "ucb_k - mean over arms of ucb + offset"

    def values(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores [arms, instances] in `dtype`."""
        scores = self._bounds(state, dtype)
        # From the first, so that scores that are all equal are exactly 0: some heads have no weight there.
        scores = scores - scores[:1]
        return scores - (scores.mean(0, keepdim=True) - self.fixed(self.offset))


@dataclass(frozen=True, slots=True)
class RewardCentredUcb(Ucb):
    """Upper confidence bound minus the mean of all rewards so far, whichever arms they came from.

    That mean is at most the largest of the arms' means, so that a row's largest score is never negative.

    Attributes:
        c: width of the bonus, >= 0; it carries the scale of the rewards.
        offset: a constant added to every score after centring.
    """

    name: ClassVar[str] = "reward_centred_ucb"
    formula: ClassVar[str] = "ucb_k - (sum of all rewards) / N + offset"

    def values(self, state: "State", dtype: torch.dtype) -> Tensor:
        """Scores [arms, instances] in `dtype`."""
        return self._bounds(state, dtype) - ((state.total / state.step).to(dtype) - self.fixed(self.offset))
