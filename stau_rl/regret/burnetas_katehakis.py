"""The Burnetas-Katehakis constant, which extends that of Lai and Robbins beyond one-parameter families.

    lim inf regret(t) / ln t >= C = sum over suboptimal k of (mu* - mu_k) / KL_inf(nu_k, mu*)

KL_inf(nu, mu) is the least KL(nu, nu') over the nu' of the family whose mean exceeds mu. For Bernoulli arms and
Gaussian arms of known deviation it is the KL divergence, and C the Lai-Robbins constant.

Source: Burnetas and Katehakis, "Optimal adaptive policies for sequential allocation problems", Adv. Appl. Math. 1996.
"""

import math
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stau_rl.kernels.contract import ArmTable, gaps_below_best, table_means
from stau_rl.regret.lai_robbins import lai_robbins


def finite_support_kl_inf(values: ArrayLike, mean: float, top: float, weights: ArrayLike | None = None) -> float:
    """KL_inf of a distribution with finitely many values, over all distributions on [.., top].

    By its dual, which has one dimension and is concave:

        KL_inf(nu, mu) = max over 0 <= l <= 1 / (top - mu) of E_nu[ln(1 - l (X - mu))].

    The least favourable nu' puts mass on the values of nu and on `top` alone, so the answer is the same for every
    family that holds these, such as the distributions on a finite set.

    Args:
        values: the values of nu, float64 [m], each <= top.
        mean: mu, the mean that nu' must exceed.
        top: the largest value that a distribution of the family may take.
        weights: probabilities of the values, float64 [m]; equal by default. They are normalised.

    Returns:
        0 where nu's own mean is mu or more; inf where mu >= top, as then no nu' qualifies.

    Raises:
        ValueError: a value exceeds `top`, or the weights do not fit.

    Source: Honda and Takemura, "An asymptotically optimal bandit algorithm for bounded support models", COLT 2010.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not np.all(np.isfinite(x)) or x.max() > top:
        raise ValueError(f"values must be a non-empty vector of finite numbers up to top = {top!r}, got {values!r}")
    w = np.full(x.size, 1.0) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != x.shape or not np.all(w >= 0) or not w.sum() > 0:
        raise ValueError(f"weights must be {x.size} numbers >= 0, not all 0, got {weights!r}")
    x, w = x[w > 0], w[w > 0] / w.sum()
    if float(w @ x) >= mean:
        return 0.0
    if mean >= top:
        return math.inf
    # In units of the largest legal l, so that the search runs over [0, 1].
    excess = (x - mean) / (top - mean)

    def slope(l: float) -> float:
        return -float(w @ (excess / (1 - l * excess)))

    at_top = excess >= 1
    if not at_top.any() and slope(1.0) >= 0:
        return float(w @ np.log1p(-excess))
    # With mass at the top the slope falls to -inf as l nears 1; step back until it is negative.
    high = 1.0
    if at_top.any():
        gap = 0.5
        while slope(1.0 - gap) > 0:
            gap /= 2
        high = 1.0 - gap
    # Loaded on use: it takes a third of a second, and few arms need it.
    from scipy.optimize import brentq

    best = float(brentq(slope, 0.0, high, xtol=1e-15, rtol=8.9e-16))
    return float(w @ np.log1p(-best * excess))


def finite_support_constant(values: ArrayLike, offsets: ArrayLike) -> float:
    """The constant of arms that resample a table, over all distributions on the values of all arms together.

    Args:
        values: observations of all arms, float64 [rows].
        offsets: where each arm's observations start, int64 [K + 1].

    Returns:
        C; 0 where the best arm always gives the largest value there is, as any doubt is then soon settled.

    Raises:
        ValueError: an arm has no observation.
    """
    x, bounds = np.asarray(values, dtype=np.float64), np.asarray(offsets, dtype=np.int64)
    arms = [x[first:last] for first, last in pairwise(bounds)]
    if not arms or any(arm.size == 0 for arm in arms):
        raise ValueError("every arm needs an observation")
    means = table_means(x, bounds)
    best, top = float(means.max()), float(x.max())
    gaps = gaps_below_best(means, np.abs(x).max())
    constant = 0.0
    for arm, gap in zip(arms, gaps, strict=True):
        if gap > 0.0:
            constant += float(gap) / finite_support_kl_inf(arm, best, top)
    return constant


def gaussian_unknown_deviation_constant(means: ArrayLike, sigmas: ArrayLike) -> float:
    """The constant of Gaussian arms where neither means nor deviations are known.

    KL_inf(N(m, s^2), mu) = ln(1 + (mu - m)^2 / s^2) / 2, less than with s known, so the constant is larger.

    Args:
        means: float64 [K].
        sigmas: standard deviation of each arm's rewards, > 0, float64 [K] or one number.

    Raises:
        ValueError: shapes do not fit or a deviation is not positive.

    Source: Burnetas and Katehakis 1996, section 4; Cowan, Honda, Katehakis, JMLR 2018.
    """
    mu = np.asarray(means, dtype=np.float64)
    sigma = np.asarray(sigmas, dtype=np.float64)
    if mu.ndim != 1 or mu.size == 0 or sigma.shape not in ((), mu.shape) or not np.all(sigma > 0):
        raise ValueError(f"means must be [K] and sigmas positive, [K] or one number, got {means!r} and {sigmas!r}")
    gaps = gaps_below_best(mu)
    kl: NDArray[np.float64] = 0.5 * np.log1p((gaps / sigma) ** 2)
    return float(np.sum(gaps[gaps > 0] / kl[gaps > 0]))


def regret_constant(arms: ArmTable) -> float | None:
    """The constant that belongs to a block of arms with fixed means.

    Returns:
        Lai-Robbins for Bernoulli and Gaussian arms, Burnetas-Katehakis for arms that resample a table; None for means
        drawn per instance.
    """
    if arms.kind == "table":
        return finite_support_constant(arms.values, arms.offsets)
    return lai_robbins(arms)
