"""Bandits as Gymnasium environments, one at a time; `stau_rl.envs.gym.bandit_vectors` plays many.

Importing `stau_rl` registers them: `gymnasium.make("stau_rl:stau_rl/BernoulliBandit-v0")`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from stau_rl.envs.arms.bernoulli import BernoulliArms
from stau_rl.envs.arms.gaussian import GaussianArms
from stau_rl.envs.arms.table_arms import TableArms
from stau_rl.envs.gym.bandit_models import ArmsModel, BanditModel, ContextualModel


class BanditEnv(gym.Env[Any, np.int64]):
    """A multi-armed bandit: episodes of `horizon` pulls.

    Args:
        model: the arms.
        horizon: pulls per episode, >= 1.
        render_mode: None; there is nothing to draw.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, model: BanditModel, horizon: int, render_mode: str | None = None) -> None:
        self.model, self.horizon = model, check_horizon(horizon)
        check_render_mode(render_mode)
        self.action_space = gym.spaces.Discrete(model.arms)
        self.observation_space = model.observation_space
        self._left = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of the environment's generator.
            options: `means` sets the arms' means for this episode.

        Returns:
            The observation, and `best_arm` and `best_mean`.

        Raises:
            ValueError: means that these arms cannot have.
        """
        super().reset(seed=seed)
        given = read_options(self.model, options, 1)
        observations = self.model.reset(self.np_random.random((self.model.reset_draws, 1)), given)
        self._left, self._regret = self.horizon, 0.0
        return observations[0], self._best()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pull an arm; `info` has `regret` of this pull, `episode_regret`, `best_arm` and `best_mean`.

        Raises:
            ValueError: there is no such arm.
        """
        actions = check_actions(np.asarray(action).reshape(1), self.model.arms)
        regret, best = float(self.model.regret(actions)[0]), self._best()
        rewards, observations = self.model.step(self.np_random.random((self.model.step_draws, 1)), actions)
        self._left -= 1
        self._regret += regret
        info = {"regret": regret, "episode_regret": self._regret, **best}
        return observations[0], float(rewards[0]), self._left <= 0, False, info

    def _best(self) -> dict[str, Any]:
        return {"best_arm": int(self.model.best_arm[0]), "best_mean": float(self.model.best_mean[0])}


class BernoulliBanditEnv(BanditEnv):
    """Arms that pay 1 with a probability of their own, else 0.

    ## Description
    K arms with hidden probabilities, fixed over an episode. By default each episode draws its probabilities uniformly
    from [0, 1] and lasts one pull.

    ## Action Space
    `Discrete(k)`: the arm to pull.

    ## Observation Space
    `Discrete(1)`: there is one state, 0.

    ## Rewards
    1 with the arm's probability, else 0. `info["regret"]` is the expected reward given up by this pull,
    `info["episode_regret"]` its sum over the episode, `info["best_arm"]` the first arm of the largest mean,
    `info["best_mean"]` that mean.

    ## Starting State
    Probabilities drawn from the prior, or those given: `means` of the constructor for all episodes,
    `reset(options={"means": [...]})` for one.

    ## Episode End
    Terminates after `horizon` pulls.

    Args:
        k: number of arms, in 1..1024.
        means: probabilities of all episodes, instead of `k`.
        horizon: pulls per episode, >= 1.
        render_mode: None.
    """

    def __init__(
        self,
        k: int = 10,
        means: Sequence[float] | None = None,
        horizon: int = 1,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(bernoulli_model(k, means), horizon, render_mode)


class GaussianBanditEnv(BanditEnv):
    """Arms that pay a normal reward around a mean of their own.

    ## Description
    K arms with hidden means, fixed over an episode. By default each episode draws its means from N(loc, scale^2) and
    lasts one pull.

    ## Action Space
    `Discrete(k)`: the arm to pull.

    ## Observation Space
    `Discrete(1)`: there is one state, 0.

    ## Rewards
    N(mean, sigma^2). `info` is as in `BernoulliBanditEnv`.

    ## Starting State
    Means drawn from the prior, or those given: `means` of the constructor for all episodes,
    `reset(options={"means": [...]})` for one.

    ## Episode End
    Terminates after `horizon` pulls.

    Args:
        k: number of arms, in 1..1024.
        means: means of all episodes, instead of `k`, `loc` and `scale`.
        loc: mean of the prior.
        scale: standard deviation of the prior, >= 0.
        sigma: standard deviation of a reward, >= 0.
        horizon: pulls per episode, >= 1.
        render_mode: None.
    """

    def __init__(
        self,
        k: int = 10,
        means: Sequence[float] | None = None,
        loc: float = 0.0,
        scale: float = 1.0,
        sigma: float = 1.0,
        horizon: int = 1,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(gaussian_model(k, means, loc, scale, sigma), horizon, render_mode)


class ContextualBanditEnv(BanditEnv):
    """Arms whose mean reward is linear in a context that is seen before each pull.

    ## Description
    At every step a context x is drawn uniformly from [-1, 1]^dim. Arm k has mean theta_k . x. By default each episode
    draws its coefficients from N(0, 1 / dim) and lasts one pull.

    ## Action Space
    `Discrete(k)`: the arm to pull.

    ## Observation Space
    `Box(-1, 1, (dim,), float32)`: the context.

    ## Rewards
    N(theta_k . x, sigma^2). `info` is as in `BernoulliBanditEnv`, for the best arm in the context of the pull (after
    a reset: in the context that is shown).

    ## Starting State
    Coefficients drawn from the prior, or those given: `means` of the constructor for all episodes,
    `reset(options={"means": theta})` for one, of shape [k, dim]; and a first context.

    ## Episode End
    Terminates after `horizon` pulls.

    Args:
        k: number of arms, >= 1.
        dim: length of the context, >= 1.
        means: coefficients [k, dim] of all episodes, instead of `k` and `dim`.
        sigma: standard deviation of the noise, >= 0.
        horizon: pulls per episode, >= 1.
        render_mode: None.
    """

    def __init__(
        self,
        k: int = 10,
        dim: int = 5,
        means: Sequence[Sequence[float]] | None = None,
        sigma: float = 0.1,
        horizon: int = 1,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(ContextualModel(k, dim, sigma, means), horizon, render_mode)


class EmpiricalBanditEnv(BanditEnv):
    """Arms that pay what was really observed: each pull draws one of the arm's own observations.

    ## Description
    Every arm has a list of observed rewards, and a pull draws from it with replacement. By default the arms are six
    insecticides and the rewards the insects counted on twelve plots each, with the sign turned: fewer is better.

    ## Action Space
    `Discrete(K)`: the arm to pull. Arms are in the order given; those of a file in order of their exact values if all
    labels are plain numbers, else in text order.

    ## Observation Space
    `Discrete(1)`: there is one state, 0.

    ## Rewards
    One of the arm's observations. `info` is as in `BernoulliBanditEnv`; an arm's mean is that of its observations.

    ## Starting State
    Always the same: the observations decide the means, and `options={"means": ...}` is refused.

    ## Episode End
    Terminates after `horizon` pulls.

    Args:
        observations: rewards by the label of the arm, or `stau_rl.envs.arms.TableArms`.
        file: CSV or Parquet file in long form instead, a row per observation.
        arm: with `file`, the column that names the arm.
        reward: with `file`, the column that holds the reward.
        horizon: pulls per episode, >= 1.
        render_mode: None.
    """

    def __init__(
        self,
        observations: Mapping[str, Sequence[float]] | TableArms | None = None,
        file: str | None = None,
        arm: str | None = None,
        reward: str | None = None,
        horizon: int = 1,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(empirical_model(observations, file, arm, reward), horizon, render_mode)


def bernoulli_model(k: int, means: Sequence[float] | None) -> BanditModel:
    """Bernoulli arms; a ValueError names a bad argument."""
    return ArmsModel(BernoulliArms(k=k) if means is None else BernoulliArms(means=tuple(map(float, means))))


def gaussian_model(k: int, means: Sequence[float] | None, loc: float, scale: float, sigma: float) -> BanditModel:
    """Gaussian arms; a ValueError names a bad argument."""
    if means is None:
        return ArmsModel(GaussianArms(k=k, loc=loc, scale=scale, sigma=sigma))
    return ArmsModel(GaussianArms(means=tuple(map(float, means)), loc=loc, scale=scale, sigma=sigma))


def empirical_model(
    observations: Mapping[str, Sequence[float]] | TableArms | None,
    file: str | None,
    arm: str | None,
    reward: str | None,
) -> BanditModel:
    """Empirical arms; a ValueError names a bad argument."""
    from stau_rl.envs.arms.empirical import EmpiricalArms

    if file is None:
        if arm is not None or reward is not None:
            raise ValueError("arm and reward name columns of a file; give the file too")
        return ArmsModel(observations if isinstance(observations, TableArms) else TableArms.of(observations))
    if observations is not None or arm is None or reward is None:
        raise ValueError("file needs the columns arm and reward, and no observations")
    return ArmsModel(EmpiricalArms(file, arm, reward))


def check_horizon(horizon: int) -> int:
    """A whole horizon of at least 1; else a ValueError."""
    if not (horizon >= 1 and horizon % 1 == 0):
        raise ValueError(f"horizon must be a whole number of at least 1, got {horizon!r}")
    return int(horizon)


def check_render_mode(mode: str | None) -> None:
    """Nothing is drawn: a ValueError for any render mode but None."""
    if mode is not None:
        raise ValueError(f"render_mode must be None, as a bandit has nothing to draw, got {mode!r}")


def check_actions(actions: Any, arms: int) -> Any:
    """Actions that name arms, int64; else a ValueError with the first bad one."""
    if actions.dtype.kind not in "iu":
        raise ValueError(f"actions must be whole numbers, got {actions.dtype}")
    if actions.size and (actions.min() < 0 or actions.max() >= arms):
        bad = actions[(actions < 0) | (actions >= arms)][0]
        raise ValueError(f"actions must be arms 0 to {arms - 1}, got {int(bad)}")
    return actions.astype(np.int64, copy=False)


def read_options(model: BanditModel, options: Mapping[str, Any] | None, instances: int) -> Any:
    """The means that a reset's options give, or None; other options are a ValueError."""
    unknown = [name for name in options or () if name != "means"]
    if unknown:
        raise ValueError(f"options may have 'means', got {unknown[0]!r}")
    if not options or options["means"] is None:
        return None
    return model.read_means(options["means"], instances)
