"""Kinds of weights of captured scores, such as those of softmax or of s^tau at tau*, and what is said of each.

Every number is a ratio of two sums over rows: a mean over rows, or over entries. So parts of the rows add up, and the
error of a sample of rows follows from the ratio's own formula.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit
from torch import Tensor

from stau_rl.calibration.score_source import Part
from stau_rl.calibration.tau_problem import Each
from stau_rl.heads import Head, Softmax, log_s_tau

SPARSE, SINK, TOP, DEAD = 1e-6, 0.3, 10, 1e-6
DESCRIBED = ("entropy", "sparsity", "top10_mass", "sink_rate", "mean_weight")
COMPARED = ("kl", "distance", "mass", "silent")
SHARES = {"silent": True, "sink_rate": True, "sparsity": False}
"""Which of these are shares: whether of rows, or of entries."""
CONFIDENCE = 0.95
Terms = Callable[[Part, float], Tensor]
"""Of a part and a parameter: numerators and denominators of every number, float64 [2, rows, numbers]."""


@dataclass(slots=True)
class Kind:
    """One kind of weights.

    Attributes:
        columns: names of its numbers.
        terms: what they are made of.
        value: of the parameter that was fitted to the scores; NaN for none.
        least: smallest value of it.
        influence: of every row on that value, [rows]: its error is about the mean of these over the rows.
    """

    columns: tuple[str, ...]
    terms: Terms
    value: float = float("nan")
    least: float = 0.0
    influence: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one kind, and their intervals where rows were drawn.

    Attributes:
        values: in the order of the kind's terms.
        low: lower ends of the intervals, in that order; None where every row was looked at.
        high: upper ends.
        value_half: half-width of the interval of the fitted parameter.
    """

    values: NDArray[np.float64]
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    value_half: float = float("nan")


@dataclass(frozen=True, slots=True)
class Drawn:
    """How rows were drawn: in equal numbers from each of some heads.

    Attributes:
        sizes: rows with a key that were drawn, of each head.
        shares: share of each head's rows that was drawn.
    """

    sizes: tuple[int, ...]
    shares: tuple[float, ...]

    def half_width(self, influence: Tensor) -> Tensor:
        """Half-width of the 95 % Student interval of means of the influences of rows, [rows, numbers]: [numbers].

        The variance is that within the heads, less the share of rows that was seen: none is left where all were.
        """
        total, variance = sum(self.sizes), torch.zeros(influence.shape[1:], dtype=torch.float64)
        for rows, share in zip(influence.split(self.sizes), self.shares, strict=True):
            if len(rows) == 1:
                return torch.full_like(variance, torch.nan if share < 1 else 0.0)
            if len(rows):
                variance = variance + len(rows) * rows.var(0) * (1 - share)
        freedom = total - sum(size > 0 for size in self.sizes)
        return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * variance.sqrt() / total

    def of_share(self, share: float, half: float | None = None) -> tuple[float, float]:
        """Wilson's interval of a share, which has a width where the share is 0 or 1 too.

        Args:
            share: of rows; or of entries, which count as so many rows as would leave the half-width.
            half: half-width from the variance of the rows; 0 or None for a share of rows.
        """
        total = sum(self.sizes)
        seen = sum(size * one for size, one in zip(self.sizes, self.shares, strict=True)) / total
        normal = float(ndtri(0.5 + CONFIDENCE / 2))
        # 1 / rows, less what drawing without replacement leaves out.
        spread = share * (1 - share)
        ratio = half**2 / spread if half and spread else normal**2 * (1 - seen) / total
        centre, width = share + ratio / 2, float(np.sqrt(ratio * (spread + ratio / 4)))
        return max(0.0, (centre - width) / (1 + ratio)), min(1.0, (centre + width) / (1 + ratio))


def described(weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Numerators and denominators of `DESCRIBED`, float64 [rows, 5] each.

    Args:
        weights: non-negative, 0 under the mask, [rows, keys].
        mask: boolean, in their shape; every row has an entry that counts.
    """
    counted = mask.sum(-1).double()
    one = torch.ones_like(counted)
    above = [
        torch.special.entr(weights).sum(-1),
        (mask & (weights < SPARSE)).sum(-1).double(),
        weights.topk(min(TOP, weights.shape[-1]), -1).values.sum(-1),
        (weights[:, 0] > SINK).double(),
        weights.sum(-1),
    ]
    return torch.stack(above, -1), torch.stack([one, counted, one, one, counted], -1)


def numbers(kind: Kind, parts: Sequence[Part], drawn: Drawn | None, each: Each) -> Numbers:
    """The numbers of a kind on some parts, with intervals where rows were drawn.

    A row moves a number by what it adds to its two sums, and through the fitted parameter: by its influence on that,
    times the slope of the number in it, taken across the parameter's own interval.
    """
    if drawn is None:
        above, below = sum(each(partial(_summed, kind.terms, kind.value), parts))
        return Numbers((above / below).numpy())
    above, below = torch.cat(each(lambda part: kind.terms(part, kind.value), parts), 1)
    ratio = above.sum(0) / below.sum(0)
    influence = (above - ratio * below) / below.mean(0)
    value_half = float("nan")
    if kind.influence is not None:
        value_half = float(drawn.half_width(kind.influence[:, None]))
        low, high = max(kind.least, kind.value - value_half), kind.value + value_half
        if high > low:
            ends = [sum(each(partial(_summed, kind.terms, value), parts)) for value in (low, high)]
            first, last = (end[0] / end[1] for end in ends)
            influence = influence + (last - first) / (high - low) * kind.influence[:, None]
    values, half = ratio.numpy(), drawn.half_width(influence).numpy()
    # None of the numbers is negative.
    low, high = np.maximum(values - half, 0.0), values + half
    for name, of_rows in SHARES.items():
        if name in kind.columns:
            place = kind.columns.index(name)
            low[place], high[place] = drawn.of_share(float(values[place]), None if of_rows else float(half[place]))
    return Numbers(values, low, high, value_half)


def _summed(terms: Terms, value: float, part: Part) -> Tensor:
    return terms(part, value).sum(1)


def softmax_terms(part: Part, value: float) -> Tensor:
    """KL(softmax || softmax) = 0, and `DESCRIBED`."""
    scores, mask = part.read()
    above, below = described(Softmax().weights(scores, mask=mask), mask)
    return torch.stack([_after(torch.zeros(len(scores)), above), _after(torch.ones(len(scores)), below)])


def s_tau_terms(part: Part, u: float, eps: float, scale: Tensor) -> Tensor:
    """KL(softmax || s^tau) at tau = 1 + u / scale, and `DESCRIBED`; rows that are flat are uniform under any tau."""
    scores, mask = part.read()
    kl = part.rows().kl(torch.full_like(scale, u), scale)[0]
    tau = max(1.0, 1.0 + u / float(scale)) if float(scale) else 1.0
    above, below = described(log_s_tau(scores, tau, eps, mask=mask).exp(), mask)
    return torch.stack([_after(kl, above), _after(torch.ones_like(kl), below)])


def head_terms(part: Part, value: float, head: Callable[[float], Head], reference: Head) -> Tensor:
    """`COMPARED` with the weights of a reference, and `DESCRIBED`, but for the entropy, which is that of shares.

    KL(reference || head) and the distance too are those of shares, weights over their sum, of rows that have a mass.
    """
    scores, mask = part.read()
    ours, weights = reference.weights(scores, mask=mask), head(value).weights(scores, mask=mask)
    mass, base = weights.sum(-1), ours.sum(-1)
    both = (mass >= DEAD) & (base >= DEAD)
    p, q = (one / one.sum(-1, keepdim=True).clamp(min=DEAD) for one in (ours, weights))
    kl = (torch.special.xlogy(p, p) - torch.special.xlogy(p, q)).sum(-1).clamp(min=0.0)
    distance = 0.5 * (p - q).abs().sum(-1)
    one, alive = torch.ones_like(mass), mass >= DEAD
    above, below = described(weights, mask)
    above[:, 0] = torch.where(alive, torch.special.entr(q).sum(-1), 0.0)
    below[:, 0] = alive
    compared = torch.stack([torch.where(both, kl, 0.0), torch.where(both, distance, 0.0), mass, (~alive).double()])
    of = torch.stack([both.double(), both.double(), one, one])
    return torch.stack([torch.cat([compared.mT, above], -1), torch.cat([of.mT, below], -1)])


def _after(first: Tensor, others: Tensor) -> Tensor:
    return torch.cat([first.double()[:, None], others], -1)
