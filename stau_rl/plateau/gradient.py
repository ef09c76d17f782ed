"""Policy gradients of a one-state problem, for many policies at once: a column per policy, a row per arm.

With weights w = f(s) / sum f(s), rewards r and value V = sum w r, the exact gradient is
dV/ds_a = w_a (r_a - V) d log f / ds_a, and that of a parameter sum_a w_a (r_a - V) d log f_a / d parameter. A sample
replaces w_a (r_a - V) by advantage (1[a = A] - w_a). Softmax, s_tau and escort have log f = parameter g(s), with g and
g' in closed form here; any other head goes through automatic differentiation.

The closed forms say again what `Head.log_f` and `Head.slope` of `stau_rl.heads` say: a step of the ascent needs both at
once, for a sharpness that differs by column, and without building a graph for it. The tests compare the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from stau_rl.heads import Escort, Head, Softmax, STau

LINEAR_ABOVE = 50.0
"""Above this score softplus(s) = s to the last bit of float64."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One pull per column.

    Attributes:
        arm: int64 [columns].
        advantage: reward less baseline, float64 [columns].
    """

    arm: Tensor
    advantage: Tensor


Gradient = Callable[[Tensor, Tensor, Sample | None], tuple[Tensor, Tensor | None]]
"""Takes rewards [arms, columns], values [columns] and a sample, or None for the exact gradient; gives the gradient with
respect to the scores [arms, columns] and to the parameter [columns], None where it is not learned."""


def evaluate(head: Head, scores: Tensor, parameter: Tensor | None, closed: bool = True) -> tuple[Tensor, Gradient]:
    """Weights of every column, and the function that gives their gradients.

    Args:
        head: a simplex head.
        scores: float64 [arms, columns].
        parameter: the head's sharpness by column, float64 [columns], to learn it; None for the head's own number.
        closed: use the closed form where there is one.

    Returns:
        Weights [arms, columns], without a graph, and the gradient at these scores.
    """
    form = closed_form(head) if closed else None
    if form is None:
        return _automatic(head, scores, parameter)
    g, slope = form(scores)
    sharpness: Any = getattr(head, str(head.sharpness)) if parameter is None else parameter
    weights = torch.softmax(sharpness * g, 0)

    def gradient(rewards: Tensor, value: Tensor, sample: Sample | None) -> tuple[Tensor, Tensor | None]:
        if sample is None:
            credit = weights * (rewards - value)
        else:
            credit = -sample.advantage * weights
            credit.scatter_add_(0, sample.arm[None], sample.advantage[None])
        by_parameter = None if parameter is None else (credit * torch.where(credit == 0, 0.0, g)).sum(0)
        return credit.mul_(sharpness).mul_(slope), by_parameter

    return weights, gradient


def closed_form(head: Head) -> Callable[[Tensor], tuple[Tensor, Tensor | float]] | None:
    """The function s -> (g, g') of a head with log f = sharpness g(s); None for other heads."""
    if isinstance(head, Softmax):
        return lambda scores: (scores, 1.0)
    if isinstance(head, Escort):
        return _log_size
    # Without a floor phi underflows far below 0, where the general form stays exact.
    if isinstance(head, STau) and isinstance(head.eps, float) and head.eps > 0:
        eps = head.eps
        return lambda scores: _log_phi(scores, eps)
    return None


def _log_size(scores: Tensor) -> tuple[Tensor, Tensor]:
    """log |s| and 1/s, whose product with the weight is 0 at a score of 0."""
    return scores.abs().log(), torch.where(scores == 0, 0.0, 1 / scores)


def _log_phi(scores: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """log(softplus(s) + eps) and sigmoid(s) / (softplus(s) + eps)."""
    phi = softplus(scores, threshold=LINEAR_ABOVE).add_(eps)
    return phi.log(), torch.sigmoid(scores).div_(phi)


def _automatic(head: Head, scores: Tensor, parameter: Tensor | None) -> tuple[Tensor, Gradient]:
    leaves = [scores.detach().requires_grad_()]
    with torch.enable_grad():
        if parameter is not None:
            leaves.append(parameter.detach().requires_grad_())
            head = head.bind(**{str(head.sharpness): leaves[1][None]})
        log_weights = head.unchecked_log_weights(leaves[0], 0)
        weights = log_weights.exp()

    def gradient(rewards: Tensor, value: Tensor, sample: Sample | None) -> tuple[Tensor, Tensor | None]:
        with torch.enable_grad():
            if sample is None:
                # The value less a constant: the weights sum to 1.
                goal = (weights * (rewards - value)).sum()
            else:
                goal = (log_weights.gather(0, sample.arm[None])[0] * sample.advantage).sum()
        found = torch.autograd.grad(goal, leaves)
        return found[0], found[1] if parameter is not None else None

    return weights.detach(), gradient
