"""Bandit problems as arrays over instances: what single and vector environments share.

Layout is [arms, instances] throughout. A model draws nothing: it is given the uniforms of a reset or a step, one column
per instance, so that an instance's history is that of its own generator however many are played side by side.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.special import ndtri

from stau_rl.envs.arms.arms import Arms
from stau_rl.kernels.contract import gaps_below_best

Floats = NDArray[np.float64]
# The quantile of a normal at 0 is -inf; a uniform of 53 bits is 0 or at least 2^-53.
SMALLEST = 2.0**-54


class BanditModel:
    """Arms whose means are fixed in an episode.

    Attributes:
        arms: number of arms K.
        observation_space: of one instance.
        reset_draws: uniforms that a reset takes per instance.
        step_draws: uniforms that a step takes per instance.
        means: mean rewards of the running episodes, float64 [K, N], after a reset.
        best_arm: the first arm of the largest mean, int64 [N].
        best_mean: that mean, float64 [N].
    """

    arms: int
    observation_space: spaces.Space[Any]
    reset_draws: int
    step_draws: int
    means: Floats
    best_arm: NDArray[np.int64]
    best_mean: Floats
    # Size of the numbers that means come from; see `gaps_below_best`.
    _tie_scale: float | None = None

    def regret(self, actions: NDArray[np.int64]) -> Floats:
        """Expected reward given up by pulling these arms now, float64 [N]."""
        return self._gaps[actions, np.arange(actions.size)]

    def _rank(self) -> None:
        self.best_mean = self.means.max(0)
        self._gaps = gaps_below_best(self.means, self._tie_scale)
        self.best_arm = (self._gaps == 0.0).argmax(0)

    def reset(self, uniforms: Floats, given: Floats | None) -> Any:
        """Begin an episode in every instance.

        Args:
            uniforms: [reset_draws, N].
            given: means for these episodes from `read_means`, or None.

        Returns:
            The observations, batched.
        """
        raise NotImplementedError

    def step(self, uniforms: Floats, actions: NDArray[np.int64]) -> tuple[Floats, Any]:
        """Pull an arm in every instance.

        Args:
            uniforms: [step_draws, N].
            actions: int64 [N].

        Returns:
            Rewards, float64 [N], and the observations that follow, batched.
        """
        raise NotImplementedError

    def read_means(self, given: Any, instances: int) -> Floats:
        """Means from a reset's options, in the layout that `reset` takes.

        Raises:
            ValueError: a wrong shape, or means that these arms cannot have.
        """
        raise NotImplementedError


class ArmsModel(BanditModel):
    """Arms of the benchmark: Bernoulli, Gaussian or empirical; one state, observed as 0.

    Args:
        arms: the arms.
    """

    def __init__(self, arms: Arms) -> None:
        self.process, self.arms = arms, arms.size
        self._tie_scale = float(np.abs(arms.values).max()) if arms.reward_kind == "table" else None
        self.observation_space = spaces.Discrete(1)
        self.reset_draws = 0 if arms.fixed_means is not None else arms.size
        self.step_draws = 1

    def reset(self, uniforms: Floats, given: Floats | None) -> Any:
        """Draw or take the means."""
        n = uniforms.shape[1]
        if given is not None:
            self.means = given
        elif self.process.fixed_means is not None:
            self.means = np.broadcast_to(self.process.fixed_means[:, None], (self.arms, n))
        else:
            self.means = self.process.mean_quantile(np.maximum(uniforms, SMALLEST))
        self._rank()
        return np.zeros(n, dtype=np.int64)

    def step(self, uniforms: Floats, actions: NDArray[np.int64]) -> tuple[Floats, Any]:
        """Reward: the arm's quantile function at the uniform; for 0/1 rewards, 1 if u < mean."""
        u = uniforms[0]
        if self.process.reward_kind == "table":
            offsets, values = self.process.offsets, self.process.values
            first = offsets[actions]
            rewards = values[first + (u * (offsets[actions + 1] - first)).astype(np.int64)]
        else:
            mean = self.means[actions, np.arange(actions.size)]
            if self.process.reward_kind == "bernoulli":
                rewards = (u < mean).astype(np.float64)
            else:
                rewards = mean + self.process.noise * ndtri(np.maximum(u, SMALLEST))
        return rewards, np.zeros(actions.size, dtype=np.int64)

    def read_means(self, given: Any, instances: int) -> Floats:
        """Means [K], or [N, K] for a vector environment; none for empirical arms, whose rows decide them."""
        if self.process.reward_kind == "table":
            raise ValueError("options['means']: the means of empirical arms are those of their observations")
        means = _array(given, (self.arms,), instances)
        if self.process.reward_kind == "bernoulli" and not ((means >= 0) & (means <= 1)).all():
            raise ValueError(f"options['means'] must lie in [0, 1], got {float(means.min())!r} to {means.max()!r}")
        return np.ascontiguousarray(np.broadcast_to(means, (instances, self.arms)).T)


class ContextualModel(BanditModel):
    """Linear arms: a context x uniform on [-1, 1]^d at every step; arm k has mean theta_k . x and Gaussian noise.

    The coefficients theta are N(0, 1 / d) for each episode, unless given.

    Args:
        arms: number of arms K >= 1.
        dim: length d >= 1 of a context.
        sigma: standard deviation of the noise, >= 0.
        theta: coefficients [K, d] of all episodes, instead of draws; `arms` and `dim` then follow from it.
    """

    def __init__(self, arms: int, dim: int, sigma: float, theta: Any = None) -> None:
        if theta is not None:
            theta = np.asarray(theta, dtype=np.float64)
            if theta.ndim != 2 or not np.isfinite(theta).all():
                raise ValueError(f"means must be finite numbers of shape [arms, dim], got shape {theta.shape}")
            arms, dim = theta.shape
        self._fixed = theta
        for name, value in (("k", arms), ("dim", dim)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        if not 0 <= sigma < np.inf:
            raise ValueError(f"sigma must be finite and at least 0, got {sigma!r}")
        self.arms, self.dim, self.sigma = arms, dim, sigma
        self.observation_space = spaces.Box(-1.0, 1.0, (dim,), dtype=np.float32)
        self.reset_draws = dim if theta is not None else arms * dim + dim
        self.step_draws = 1 + dim

    def reset(self, uniforms: Floats, given: Floats | None) -> Any:
        """Draw or take the coefficients, and draw the first context."""
        n = uniforms.shape[1]
        if given is not None:
            self._theta = given
        elif self._fixed is not None:
            self._theta = np.broadcast_to(self._fixed[:, :, None], (self.arms, self.dim, n))
        else:
            drawn = ndtri(np.maximum(uniforms[: -self.dim], SMALLEST)) / np.sqrt(self.dim)
            self._theta = drawn.reshape(self.arms, self.dim, n)
        return self._context(uniforms[-self.dim :])

    def step(self, uniforms: Floats, actions: NDArray[np.int64]) -> tuple[Floats, Any]:
        """Reward of the chosen arm in the present context, and the next context."""
        rewards = self.means[actions, np.arange(actions.size)]
        rewards += self.sigma * ndtri(np.maximum(uniforms[0], SMALLEST))
        return rewards, self._context(uniforms[1:])

    def read_means(self, given: Any, instances: int) -> Floats:
        """Coefficients [K, d], or [N, K, d] for a vector environment: the mean of arm k at x is means[k] . x."""
        theta = _array(given, (self.arms, self.dim), instances)
        theta = theta if theta.ndim == 3 else np.broadcast_to(theta, (instances, *theta.shape))
        return np.ascontiguousarray(np.moveaxis(theta, 0, -1))

    def _context(self, uniforms: Floats) -> Any:
        context = (2.0 * uniforms - 1.0).astype(np.float32)
        # The observed, rounded context is the one that counts; summed in a fixed order whatever the number of columns.
        self.means = np.zeros((self.arms, context.shape[1]))
        for j in range(self.dim):
            self.means += self._theta[:, j] * context[j]
        self._rank()
        return np.ascontiguousarray(context.T)


def _array(given: Any, shape: tuple[int, ...], instances: int) -> Floats:
    try:
        means = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"options['means'] must be numbers, got {given!r}") from None
    if means.shape not in (shape, (instances, *shape)):
        raise ValueError(f"options['means'] must have shape {shape} or {(instances, *shape)}, got {means.shape}")
    if not np.isfinite(means).all():
        raise ValueError("options['means'] must be finite")
    return means
