"""The Lai-Robbins constant, the slope of the least regret per ln t that a consistent policy can have.

    lim inf regret(t) / ln t >= C = sum over suboptimal k of (mu* - mu_k) / KL(nu_k, nu*)

The statement is asymptotic: C ln t is no bound at a finite t, and good policies do cross it.

Source: Lai and Robbins, "Asymptotically efficient adaptive allocation rules", Adv. Appl. Math. 1985.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stau_rl.kernels.contract import ArmTable, gaps_below_best

_SERIES_BELOW = 1e-3


def bernoulli_kl(p: ArrayLike, q: ArrayLike) -> NDArray[np.float64]:
    """KL(Bernoulli(p), Bernoulli(q)) = p ln(p/q) + (1 - p) ln((1 - p)/(1 - q)), accurate also for p near q.

    Args:
        p: float64 [...], in [0, 1].
        q: float64 [...], in [0, 1]; broadcast against `p`.

    Returns:
        float64 [...]; inf where q is 0 or 1 and p is not q.
    """
    p, q = np.broadcast_arrays(np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        kl = q * _excess((p - q) / q) + (1 - q) * _excess((q - p) / (1 - q))
    kl = np.where((q == 0) | (q == 1), np.inf, kl)
    return np.where(p == q, 0.0, kl)


def gaussian_kl(gap: ArrayLike, sigma: float) -> NDArray[np.float64]:
    """KL of two Gaussians of one deviation, means `gap` apart: gap^2 / (2 sigma^2), float64 [...]."""
    gap = np.asarray(gap, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap == 0, 0.0, gap * gap / np.float64(2 * sigma * sigma))


def bernoulli_constant(means: ArrayLike) -> NDArray[np.float64]:
    """Lai-Robbins constants of Bernoulli arms.

    Args:
        means: float64 [K] or [K, n], in [0, 1].

    Returns:
        float64 [] or [n]; 0 where the best mean is 1 (each KL is infinite) or all arms are equal.

    Raises:
        ValueError: a mean is outside [0, 1] or there is no arm.
    """
    mu = _means(means)
    if not np.all((mu >= 0) & (mu <= 1)):
        raise ValueError("means of Bernoulli arms must lie in [0, 1]")
    best = mu.max(axis=0)
    return _constant(gaps_below_best(mu), bernoulli_kl(mu, best))


def gaussian_constant(means: ArrayLike, sigma: float) -> NDArray[np.float64]:
    """Lai-Robbins constants of Gaussian arms of known standard deviation: sum of 2 sigma^2 / (mu* - mu_k).

    Args:
        means: float64 [K] or [K, n].
        sigma: standard deviation of the rewards, >= 0.

    Returns:
        float64 [] or [n]; 0 where all arms are equal or sigma is 0.

    Raises:
        ValueError: `sigma` is negative or not finite, or there is no arm.
    """
    mu = _means(means)
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma must be finite and not negative, got {sigma!r}")
    gaps = gaps_below_best(mu)
    return _constant(gaps, gaussian_kl(gaps, sigma))


def lai_robbins(arms: ArmTable, *, average: bool = False) -> float | None:
    """The constant of a block of arms, or None where it is not defined.

    Args:
        arms: the arms; means [K, 1] shared by all instances, or [K, n].
        average: with means drawn per instance, give the mean of the instances' constants. Read it with care:
            the constant grows as 1 / gap, so under a continuous prior its expectation diverges and the sample
            mean follows the few closest pairs of arms.

    Returns:
        The constant; None for arms that resample a table (no parametric family), and for means drawn per
        instance unless `average`.
    """
    if arms.kind == "table" or (arms.means.shape[1] != 1 and not average):
        return None
    constants = (
        bernoulli_constant(arms.means) if arms.kind == "bernoulli" else gaussian_constant(arms.means, arms.sigma)
    )
    return float(constants.mean())


def _excess(delta: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1 + d) ln(1 + d) - d = d^2/2 - d^3/6 + d^4/12 - ...; the series where the terms cancel."""
    series = delta * delta * (1 / 2 - delta * (1 / 6 - delta * (1 / 12 - delta * (1 / 20 - delta / 30))))
    closed = np.where(delta == -1, 1.0, (1 + delta) * np.log1p(delta) - delta)
    return np.where(np.abs(delta) < _SERIES_BELOW, series, closed)


def _means(means: ArrayLike) -> NDArray[np.float64]:
    mu = np.asarray(means, dtype=np.float64)
    if mu.ndim not in (1, 2) or mu.shape[0] == 0 or not np.all(np.isfinite(mu)):
        raise ValueError(f"means must be finite, [arms] or [arms, instances] with an arm or more, got shape {mu.shape}")
    return mu


def _constant(gaps: NDArray[np.float64], kl: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gaps > 0, gaps / kl, 0.0).sum(axis=0)
