"""Bandits as native Gymnasium vector environments: numpy over all instances at once.

Instance i of a vector environment that was reset with seed s plays exactly what the single environment plays that was
reset with seed s + i, as `gymnasium.vector.SyncVectorEnv` has it, infos included.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

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
from stau_rl.envs.gym.uniform_tape import UniformTape

Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class BanditVectorEnv(VectorEnv[Any, Any, Any]):
    """N bandits in step with each other; as all episodes have one length, all begin and end together.

    Args:
        model: the arms.
        num_envs: N >= 1.
        horizon: pulls per episode, >= 1.
        autoreset_mode: NEXT_STEP (the step after an episode's end only resets) or SAME_STEP (the step that ends an
            episode also resets; `info["final_obs"]` and `info["final_info"]` hold what came before).
        render_mode: None, or "rgb_array" for pictures as of the single environments.
        max_episode_steps: pulls after which an episode is cut off, as by Gymnasium's `TimeLimit`; None or -1 for no
            such end.

    Raises:
        ValueError: an argument is out of range.
    """

    metadata: ClassVar[dict[str, Any]] = {
        **RENDERS,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        model: BanditModel,
        num_envs: int,
        horizon: int,
        autoreset_mode: str | AutoresetMode,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs!r}")
        mode = AutoresetMode(autoreset_mode)
        if mode is AutoresetMode.DISABLED:
            raise ValueError("autoreset_mode must be NextStep or SameStep: episodes begin and end together")
        self.model, self.num_envs, self.horizon = model, num_envs, check_horizon(horizon)
        self.metadata = {**self.metadata, "autoreset_mode": mode}  # type: ignore[misc]
        self._same_step = mode is AutoresetMode.SAME_STEP
        self.render_mode = check_render_mode(render_mode)
        limited = max_episode_steps not in (None, -1)
        self.max_episode_steps = check_horizon(max_episode_steps, "max_episode_steps") if limited else None
        self.single_action_space = Discrete(model.arms)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space = model.observation_space
        self.observation_space = batch_space(model.observation_space, num_envs)
        self._seeds: tuple[int, ...] | None = None
        self._played, self._over = 0, False
        self._last = np.full(num_envs, -1)
        self._regret = np.zeros(num_envs)
        self._every = np.ones(num_envs, dtype=np.bool_)
        self._every.setflags(write=False)

    @property
    def np_random_seed(self) -> Any:
        """Seeds of the instances' generators, after a reset."""
        return self._seeds

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every instance.

        Args:
            seed: s, for seeds s, s + 1, ...; or a seed per instance, None for a fresh one. Without, generators go on
                where they are.
            options: `means` sets the arms' means for these episodes: for all instances, or with a leading axis of
                instances.

        Returns:
            The observations, and `best_arm` and `best_mean` of every instance.

        Raises:
            ValueError: as many seeds as instances are needed, or means that these arms cannot have.
        """
        given = read_options(self.model, options, self.num_envs)
        if seed is not None or self._seeds is None:
            self._seed(seed)
        return self._begin(given)

    def step(self, actions: Any) -> Step:
        """Pull an arm in every instance; `info` is that of the single environment, as arrays.

        Raises:
            ValueError: an action names no arm, or there are not N of them.
            ResetNeeded: before the first reset.
        """
        check_begun(self._seeds is not None, "step")
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,):
            raise ValueError(f"actions must have shape ({self.num_envs},), got {chosen.shape}")
        if self._over:
            observations, info = self._begin(None)
            return observations, np.zeros(self.num_envs), ~self._every, ~self._every, info
        chosen = check_actions(chosen, self.model.arms)
        regret = self.model.regret(chosen)
        self._regret = self._regret + regret
        info = self._info(regret=regret, episode_regret=self._regret, **self._best())
        rewards, observations = self.model.step(self._tape.take(self.model.step_draws), chosen)
        self._played += 1
        self._last = chosen.copy() if self.render_mode is not None else self._last
        terminated = self._every & (self._played == self.horizon)
        truncated = self._every & (self._played == self.max_episode_steps)
        self._over = bool(terminated[0] | truncated[0])
        if self._over and self._same_step:
            final = _objects(observations)
            observations, begun = self._begin(None)
            info = {**self._info(final_obs=final, final_info=info), **begun}
        return observations, rewards, terminated, truncated, info

    def render(self) -> Any:
        """A picture of every instance, as of the single environment; None without a mode.

        Raises:
            ResetNeeded: before the first reset.
        """
        if not may_draw(self.render_mode, self._seeds is not None):
            return None
        columns = zip(self.model.means.T, self.model.best_arm.tolist(), self._last.tolist(), strict=True)
        return tuple(bars(means, best, last) for means, best, last in columns)

    def _seed(self, seed: int | Sequence[int | None] | None) -> None:
        seeds = [None] * self.num_envs if seed is None else seed
        if isinstance(seeds, (int, np.integer)):
            seeds = [int(seeds) + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be one number or {self.num_envs}, got {len(seeds)}")
        made = [seeding.np_random(one) for one in seeds]
        self._seeds = tuple(number for _, number in made)
        self._tape = UniformTape([generator for generator, _ in made])

    def _begin(self, given: Any) -> tuple[Any, dict[str, Any]]:
        observations = self.model.reset(self._tape.take(self.model.reset_draws), given)
        self._played, self._over = 0, False
        self._last = np.full(self.num_envs, -1)
        self._regret = np.zeros(self.num_envs)
        return observations, self._info(**self._best())

    def _best(self) -> dict[str, Any]:
        return {"best_arm": self.model.best_arm.copy(), "best_mean": self.model.best_mean.copy()}

    def _info(self, **values: Any) -> dict[str, Any]:
        """Gymnasium's form: beside every array a mask `_name` of the instances that have it, here all."""
        return {**values, **{f"_{name}": self._every for name in values}}


def _objects(observations: NDArray[Any]) -> NDArray[np.object_]:
    """A vector of observations as objects, one each."""
    if observations.ndim == 1:
        return observations.astype(object)
    objects = np.empty(len(observations), dtype=object)
    objects[:] = list(observations)
    return objects


class BernoulliBanditVectorEnv(BanditVectorEnv):
    """`num_envs` times `BernoulliBanditEnv`; further arguments are those of the two base classes."""

    def __init__(
        self,
        num_envs: int = 1,
        k: int = 10,
        means: Sequence[float] | None = None,
        horizon: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        model = bernoulli_model(k, means)
        super().__init__(model, num_envs, horizon, autoreset_mode, render_mode, max_episode_steps)


class GaussianBanditVectorEnv(BanditVectorEnv):
    """`num_envs` times `GaussianBanditEnv`; further arguments are those of the two base classes."""

    def __init__(
        self,
        num_envs: int = 1,
        k: int = 10,
        means: Sequence[float] | None = None,
        loc: float = 0.0,
        scale: float = 1.0,
        sigma: float = 1.0,
        horizon: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        model = gaussian_model(k, means, loc, scale, sigma)
        super().__init__(model, num_envs, horizon, autoreset_mode, render_mode, max_episode_steps)


class ContextualBanditVectorEnv(BanditVectorEnv):
    """`num_envs` times `ContextualBanditEnv`; further arguments are those of the two base classes."""

    def __init__(
        self,
        num_envs: int = 1,
        k: int = 10,
        dim: int = 5,
        means: Sequence[Sequence[float]] | None = None,
        sigma: float = 0.1,
        horizon: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        model = ContextualModel(k, dim, sigma, means)
        super().__init__(model, num_envs, horizon, autoreset_mode, render_mode, max_episode_steps)


class EmpiricalBanditVectorEnv(BanditVectorEnv):
    """`num_envs` times `EmpiricalBanditEnv`; further arguments are those of the two base classes."""

    def __init__(
        self,
        num_envs: int = 1,
        observations: Mapping[str, Sequence[float]] | TableArms | None = None,
        file: str | None = None,
        arm: str | None = None,
        reward: str | None = None,
        horizon: int = 1,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        model = empirical_model(observations, file, arm, reward)
        super().__init__(model, num_envs, horizon, autoreset_mode, render_mode, max_episode_steps)
