"""Gradient ascent on a one-state problem, for all draws of the rewards and all step sizes at once."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stau_rl.kernels.philox import ACTION_REWARD, closed_uniform, words
from stau_rl.nn.parameter_map import legal_slope, to_legal, to_raw
from stau_rl.plateau.gradient import Sample, evaluate
from stau_rl.plateau.methods import Learned, Method
from stau_rl.plateau.start import Start, draw_rewards, initial_probabilities, initial_scores

GRADIENTS = {
    "exact": "the exact gradient",
    "sampled": "one pull per update, baseline V (the policy's exact value)",
    "sampled_no_baseline": "one pull per update, no baseline",
}
BLOCK = 256
"""Updates between two looks at which columns are done."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Which problem, and how long.

    Attributes:
        arms: number of arms, >= 2.
        start: the initial probabilities.
        gradient: a key of `GRADIENTS`.
        updates: number of updates, >= 1.
        within: distance from the best reward that counts as there, > 0.
        draws: number of draws of the rewards.
        seed: 64-bit seed of rewards and pulls.
    """

    arms: int
    start: Start
    gradient: str
    updates: int
    within: float
    draws: int
    seed: int


@dataclass(frozen=True, slots=True)
class Ascent:
    """What came out; arrays float64.

    Attributes:
        steps: [step sizes, draws], updates until V is within reach of the best reward for the first time, inf where
            it never is.
        curve: [checkpoints, step sizes, draws], best reward less V after so many updates; empty if none were asked for.
    """

    steps: Tensor
    curve: Tensor


def ascend(
    problem: Problem,
    method: Method,
    step_sizes: Sequence[float],
    checkpoints: Sequence[int] = (),
    *,
    closed: bool = True,
    device: str = "cpu",
    report: Callable[[int], None] | None = None,
) -> Ascent:
    """Follow the gradient from the start, s += step size times gradient.

    Args:
        problem: the problem.
        method: the head and what of it is learned.
        step_sizes: positive numbers; each is tried on every draw, with the same pulls' luck.
        checkpoints: numbers of updates, ascending, after which the distance to the best reward is kept. Without any,
            columns that are there are dropped, which does not change `steps`.
        closed: use closed forms of the gradient where there are some.
        device: where the tensors live.
        report: called now and then with the updates that are done.

    Returns:
        Steps and curves.

    Raises:
        ValueError: the start does not fit, or the head has no scores that give it.
    """
    rewards = draw_rewards(problem.arms, problem.draws, problem.seed)
    scores = initial_scores(method.head, initial_probabilities(rewards, problem.start), method.top)
    columns = _Columns(problem, method, rewards.to(device), scores.to(device), step_sizes, closed)
    sizes = (len(step_sizes), problem.draws)
    steps = torch.full((len(step_sizes) * problem.draws,), math.inf, dtype=torch.float64, device=device)
    curve = torch.empty(len(checkpoints), *sizes, dtype=torch.float64, device=device)
    kept = {update: place for place, update in enumerate(checkpoints)}
    uniforms = torch.empty(0, device=device)
    with torch.no_grad():
        for update in range(problem.updates + 1):
            if update % BLOCK == 0:
                if report is not None:
                    report(update)
                if problem.gradient != "exact":
                    uniforms = pull_uniforms(problem.seed, problem.draws, update, BLOCK).to(device)
                if not checkpoints and not columns.drop(steps.isinf()):
                    break
            gap = columns.look()
            if update in kept:
                curve[kept[update]] = gap.view(sizes)
            first = (gap <= problem.within) & steps[columns.place].isinf()
            steps[columns.place] = torch.where(first, float(update), steps[columns.place])
            if update < problem.updates:
                columns.move(update, uniforms[update % BLOCK] if len(uniforms) else None)
    return Ascent(steps.view(sizes).cpu(), curve.cpu())


def pull_uniforms(seed: int, draws: int, update: int, count: int) -> Tensor:
    """Action uniforms of updates `update`, ..., `update + count - 1` (even numbers): float64 [count, draws].

    Philox stream `ACTION_REWARD`, index update >> 1, word 2 (update & 1), of instance = draw.
    """
    index = torch.arange(update >> 1, (update + count) >> 1)[:, None]
    first, _, second, _ = words(seed, torch.arange(draws)[None], index, ACTION_REWARD)
    return closed_uniform(torch.stack((first, second), 1).reshape(count, draws))


class _Columns:
    """The policies under way: column e draws + i follows draw i with step size e."""

    def __init__(
        self,
        problem: Problem,
        method: Method,
        rewards: Tensor,
        scores: Tensor,
        step_sizes: Sequence[float],
        closed: bool,
    ) -> None:
        self.problem, self.method, self.closed = problem, method, closed
        sizes = len(step_sizes)
        self.place = torch.arange(sizes * problem.draws, device=rewards.device)
        self.rewards, self.scores = rewards.repeat(1, sizes), scores.repeat(1, sizes)
        self.step_size = torch.tensor(step_sizes, dtype=torch.float64, device=rewards.device)
        self.step_size = self.step_size.repeat_interleave(problem.draws)
        self.best = self.rewards.amax(0)
        self.raw: Tensor | None = None
        if isinstance(method, Learned):
            start = to_raw("learned", method.parameter, method.start, method.limits)
            self.raw = torch.full_like(self.best, start)

    def drop(self, open_: Tensor) -> bool:
        """Forget the columns that are there; whether any are left."""
        keep = open_[self.place]
        if not bool(keep.all()):
            self.place, self.step_size, self.best = self.place[keep], self.step_size[keep], self.best[keep]
            self.rewards, self.scores = self.rewards[:, keep], self.scores[:, keep]
            self.raw = None if self.raw is None else self.raw[keep]
        return len(self.place) > 0

    def look(self) -> Tensor:
        """Evaluate the policies; best reward less value, [columns]."""
        parameter = None
        if isinstance(self.method, Learned) and self.raw is not None:
            parameter = to_legal(self.raw, self.method.limits)
        self.weights, self.gradient = evaluate(self.method.head, self.scores, parameter, self.closed)
        self.value = (self.weights * self.rewards).sum(0)
        return self.best - self.value

    def move(self, update: int, uniforms: Tensor | None) -> None:
        """One step uphill."""
        sample = None if uniforms is None else self._pull(uniforms[self.place % self.problem.draws])
        by_scores, by_parameter = self.gradient(self.rewards, self.value, sample)
        if isinstance(self.method, Learned) and self.raw is not None and update >= self.method.freeze:
            if self.method.target is None:
                assert by_parameter is not None
                push = legal_slope(self.raw, self.method.limits) * by_parameter
            else:
                entropy = torch.special.entr(self.weights).sum(0)
                push = entropy / math.log(self.problem.arms) - self.method.target
            self.raw = self.raw + self.method.rate * self.step_size * push
        self.scores = self.scores + self.step_size * by_scores

    def _pull(self, uniforms: Tensor) -> Sample:
        cdf = self.weights.cumsum(0)
        arm = (cdf <= uniforms * cdf[-1]).sum(0)
        reward = self.rewards.gather(0, arm[None])[0]
        return Sample(arm, reward if self.problem.gradient == "sampled_no_baseline" else reward - self.value)
