"""Where the plateau benchmark starts: the initial probabilities of the arms, and the scores that give them.

Source of the set-up: Mei, Xiao, Dai, Li, Szepesvari, Schuurmans, "Escaping the gravitational pull of softmax",
NeurIPS 2020: rewards uniform on [0, 1], exact gradients, the policy close to the corner of a suboptimal arm.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stau_rl.heads import Head, SpecError
from stau_rl.kernels.philox import ARM_MEAN, closed_uniform, words
from stau_rl.spec.registry import Registry

DOUBLINGS, HALVINGS = 64, 80


@dataclass(frozen=True, slots=True)
class Uniform:
    """All arms are equally likely."""

    name: ClassVar[str] = "uniform"

    def shares(self, arms: int) -> tuple[float, float, float]:
        """Initial probability of the best arm, of the second best, and of each other arm."""
        return 1 / arms, 1 / arms, 1 / arms

    def __str__(self) -> str:
        """Its text."""
        return self.name


@dataclass(frozen=True, slots=True)
class Each:
    """Every arm but the second best has the same small probability; the second best has the rest.

    Attributes:
        p: that probability, in (0, 1).
    """

    name: ClassVar[str] = "each"
    p: float = 0.01

    def __post_init__(self) -> None:
        """Check the probability."""
        _check_probability(self.name, self.p)

    def shares(self, arms: int) -> tuple[float, float, float]:
        """Initial probability of the best arm, of the second best, and of each other arm."""
        return self.p, 1 - (arms - 1) * self.p, self.p

    def __str__(self) -> str:
        """Its text, with the probability."""
        return f"each(p={self.p:g})"


@dataclass(frozen=True, slots=True)
class Shared:
    """The best arm has a small probability, the arms below the second best share as much, the second best has the rest.

    Attributes:
        p: the probability of the best arm, in (0, 1).
    """

    name: ClassVar[str] = "shared"
    p: float = 0.01

    def __post_init__(self) -> None:
        """Check the probability."""
        _check_probability(self.name, self.p)

    def shares(self, arms: int) -> tuple[float, float, float]:
        """Initial probability of the best arm, of the second best, and of each other arm."""
        return self.p, 1 - 2 * self.p, self.p / max(arms - 2, 1)

    def __str__(self) -> str:
        """Its text, with the probability."""
        return f"shared(p={self.p:g})"


Start = Uniform | Each | Shared
STARTS: Registry[Start] = Registry("start", Uniform, Each, Shared)


def parse_start(text: str) -> Start:
    """Read `uniform`, `each(p=0.01)` or `shared(p=0.01)`; a SpecError says what is wrong."""
    return STARTS.parse(text)


def fits(start: Start, arms: int) -> bool:
    """Whether most of the probability can lie on the second of so many arms; always for a uniform start."""
    best, second, _ = start.shares(arms)
    return isinstance(start, Uniform) or second > best * (1 + 1e-9)


def draw_rewards(arms: int, draws: int, seed: int) -> Tensor:
    """Expected rewards, uniform on [0, 1): float64 [arms, draws], draw i from Philox instance i, stream `ARM_MEAN`."""
    word, *_ = words(seed, torch.arange(draws)[None], torch.arange(arms)[:, None], ARM_MEAN)
    return closed_uniform(word)


def initial_probabilities(rewards: Tensor, start: Start) -> Tensor:
    """Initial probabilities of the arms, by the rank of their reward.

    Args:
        rewards: float64 [arms, draws]; of equal rewards the first arm counts as better.
        start: how they are spread.

    Returns:
        float64 [arms, draws], columns that sum to 1.

    Raises:
        ValueError: the start does not fit the number of arms.
    """
    arms = len(rewards)
    if not fits(start, arms):
        raise ValueError(f"{start} leaves the second best of {arms} arms no more than the best; take a smaller p")
    best, second, other = start.shares(arms)
    order = torch.sort(rewards, dim=0, descending=True, stable=True).indices
    probabilities = torch.full_like(rewards, other)
    probabilities.scatter_(0, order[1:2], second)
    return probabilities.scatter_(0, order[:1], best)


def initial_scores(head: Head, probabilities: Tensor, top: float) -> Tensor:
    """Scores at which a head has given weights, the largest of them at `top`.

    An elementwise head has log f(s) = log f(top) + log(p / max p), solved by bisection on the branch of log f that
    rises up to `top` (for escort the positive scores); so s_tau's scores are those of `softmax_to_s_tau` and escort's
    top (p / max p)^(1/p). Other heads are tried at scores log p and p, moved so that the largest is `top`.

    Args:
        head: a simplex head.
        probabilities: float64 [arms, draws], all above 0.
        top: the largest score.

    Returns:
        float64 [arms, draws].

    Raises:
        ValueError: no scores were found.
    """
    relative = probabilities.log() - probabilities.log().amax(0)
    candidates = [relative + top, probabilities - probabilities.amax(0) + top, probabilities]
    found = _solve(head, relative, top)
    for scores in [*([] if found is None else [found]), *candidates]:
        try:
            reached = head.weights(scores, 0)
        except ValueError:
            continue
        if bool(((reached - probabilities).abs() <= 1e-9 * probabilities).all()):
            return scores
    least = float(probabilities.min())
    raise ValueError(f"no scores up to top = {top:g} give {head} the initial probabilities (the least is {least:.3g})")


def _solve(head: Head, relative: Tensor, top: float) -> Tensor | None:
    """Scores with log f(s) - log f(top) = relative; None where the head is not elementwise or has no such scores."""
    peak = torch.full_like(relative, top)
    try:
        goal = head.log_f(peak) + relative
        low, high = _bracket(head, goal, peak)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            above = head.log_f(middle) >= goal
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    except (NotImplementedError, ValueError, IndexError):
        return None
    return torch.where(relative == 0, peak, high)


def _bracket(head: Head, goal: Tensor, peak: Tensor) -> tuple[Tensor, Tensor]:
    """Scores at and above the goal, the lower ones first on the positive side, where escort rises."""
    positive = [2.0**-k for k in range(DOUBLINGS)]
    steps = [peak * share for share in positive] if float(peak.max()) > 0 else [peak]
    steps += [-(2.0**k) + peak.clamp(max=0.0) for k in range(-8, 16)]
    low, high = peak, peak
    open_ = torch.ones_like(goal, dtype=torch.bool)
    for trial in steps:
        below = head.log_f(trial) <= goal
        low = torch.where(open_, trial, low)
        high = torch.where(open_ & ~below, trial, high)
        open_ &= ~below
        if not bool(open_.any()):
            break
    return low, high


def _check_probability(name: str, p: float) -> None:
    if not (0 < p < 1 and math.isfinite(p)):
        raise SpecError(f"{name}: p must lie in (0, 1), got {p!r}")


__all__ = [
    "STARTS",
    "Each",
    "Shared",
    "Start",
    "Uniform",
    "draw_rewards",
    "fits",
    "initial_probabilities",
    "initial_scores",
    "parse_start",
]
