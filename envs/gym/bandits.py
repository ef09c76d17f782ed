"""Bandits as Gymnasium environments, one at a time; `stau_rl.envs.gym.bandit_vectors` plays many.

Importing `stau_rl` registers them: `gymnasium.make("stau_rl:stau_rl/BernoulliBandit-v0")`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from stau_rl.envs.arms.table_arms import TableArms
from stau_rl.envs.gym.bandit_arguments import (
    bernoulli_model,
    check_actions,
    check_horizon,
    empirical_model,
    gaussian_model,
    read_options,
)
from stau_rl.envs.gym.bandit_models import BanditModel, ContextualModel
from stau_rl.envs.gym.drawing import RENDERS, bars, check_begun, check_render_mode, may_draw


class BanditEnv(gym.Env[Any, np.int64]):
    """A multi-armed bandit: episodes of `horizon` pulls.

    Args:
        model: the arms.
        horizon: pulls per episode, >= 1.
        render_mode: None, or "rgb_array" for pictures: a bar per arm, as high as its mean.
    """

    metadata: ClassVar[dict[str, Any]] = RENDERS

    def __init__(self, model: BanditModel, horizon: int, render_mode: str | None = None) -> None:
        self.model, self.horizon = model, check_horizon(horizon)
        self.render_mode = check_render_mode(render_mode)
        self.action_space = gym.spaces.Discrete(model.arms)
        self.observation_space = model.observation_space
        self._left = 0
        self._begun, self._last = False, -1

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
        self._begun, self._last = True, -1
        return observations[0], self._best()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Pull an arm; `info` has `regret` of this pull, `episode_regret`, `best_arm` and `best_mean`.

        Raises:
            ValueError: there is no such arm.
            ResetNeeded: the episode is over, or was never begun.
        """
        check_begun(self._left > 0, "step")
        actions = check_actions(np.asarray(action).reshape(1), self.model.arms)
        regret, best = float(self.model.regret(actions)[0]), self._best()
        rewards, observations = self.model.step(self.np_random.random((self.model.step_draws, 1)), actions)
        self._left -= 1
        self._last = int(actions[0])
        self._regret += regret
        info = {"regret": regret, "episode_regret": self._regret, **best}
        return observations[0], float(rewards[0]), self._left <= 0, False, info

    def render(self) -> Any:
        """A picture of the arms, the best and the last pulled marked, uint8 [height, width, 3]; None without a mode.

        Raises:
            ResetNeeded: before the first reset.
        """
        if not may_draw(self.render_mode, self._begun):
            return None
        return bars(self.model.means[:, 0], int(self.model.best_arm[0]), self._last)

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
        render_mode: None or "rgb_array".
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
        render_mode: None or "rgb_array".
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
        render_mode: None or "rgb_array".
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
        render_mode: None or "rgb_array".
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
