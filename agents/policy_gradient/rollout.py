"""Playing a vector environment: observations as rows of numbers, and rollouts with every end of an episode told."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from stau_rl.agents.policy_gradient.networks import NumpyActor

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
BOX2D = 'Box2D is not installed; pip install -e ".[rl]" -c constraints.txt'


@dataclass(frozen=True, slots=True)
class Spaces:
    """Sizes of an environment's spaces.

    Attributes:
        inputs: length of an observation as a row of numbers.
        actions: number of actions.
        first_action: the environment's name of action 0.
        one_hot: observations are numbers of states, and become one-hot rows.
        first_state: number of the first state, with `one_hot`.
    """

    inputs: int
    actions: int
    first_action: int
    one_hot: bool
    first_state: int = 0

    @classmethod
    def of(cls, envs: VectorEnv, name: str) -> "Spaces":
        """Sizes of the spaces of a vector environment.

        Raises:
            ValueError: the actions are not discrete, or observations neither a box of numbers nor discrete.
        """
        action, observation = envs.single_action_space, envs.single_observation_space
        if not isinstance(action, gym.spaces.Discrete):
            raise ValueError(f"env {name!r} must have discrete actions, its action space is {action}")
        actions, first = int(action.n), int(action.start)
        if isinstance(observation, gym.spaces.Discrete):
            return cls(int(observation.n), actions, first, True, int(observation.start))
        if isinstance(observation, gym.spaces.Box):
            return cls(int(np.prod(observation.shape)), actions, first, False)
        raise ValueError(f"env {name!r} must have Box or Discrete observations, its space is {observation}")

    def rows(self, observations: Any) -> Floats:
        """A batch of observations as float32 [N, inputs]."""
        if self.one_hot:
            return np.eye(self.inputs, dtype=np.float32)[np.asarray(observations) - self.first_state]
        return np.asarray(observations, dtype=np.float32).reshape(len(observations), self.inputs)


def make_envs(name: str, count: int) -> VectorEnv:
    """A vector environment of `count` copies: the id's own vector class if it has one, else one process in turns.

    Raises:
        ValueError: the id is unknown or cannot be made.
    """
    try:
        module, _, rest = name.rpartition(":")
        if module:
            import_module(module)
        own = gym.spec(rest).vector_entry_point is not None
        envs = gym.make_vec(name, count, vectorization_mode="vector_entry_point" if own else "sync")
    except gym.error.DependencyNotInstalled as error:
        # Gymnasium's own advice knows nothing of the pinned versions.
        fix = BOX2D if "box2d" in str(error).lower() else str(error)
        raise ValueError(f"cannot make env {name!r}: {fix}") from None
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"cannot make env {name!r}: {error}") from None
    if reset_mode(envs) is AutoresetMode.DISABLED:
        raise ValueError(f"env {name!r} does not reset its copies by itself (its autoreset mode is DISABLED)")
    return envs


def reset_mode(envs: VectorEnv) -> AutoresetMode:
    """When a vector environment resets a copy whose episode has ended; NEXT_STEP if it does not say."""
    return AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of N environments; every array starts with [T, N], `observations` with [T + 1, N].

    Attributes:
        observations: what each step was chosen on, and what the last one led to, float32 [..., inputs].
        actions: int64.
        rewards: float32.
        terminated: the episode ended for good.
        truncated: the episode was cut off.
        valid: the step was played and counts; a step that only resets, or belongs to no wanted episode, does not.
        finals: observations before a reset that `observations` does not hold (SAME_STEP), float32 [F, inputs].
        final_places: where they belong, int64 [F, 2]: step and environment.
    """

    observations: Floats
    actions: NDArray[np.int64]
    rewards: Floats
    terminated: Flags
    truncated: Flags
    valid: Flags
    finals: Floats
    final_places: NDArray[np.int64]

    @property
    def steps(self) -> int:
        """How many steps count."""
        return int(self.valid.sum())

    def next_values(self, values: Floats, final_values: Floats) -> Floats:
        """V of the observation that followed each step, before any reset.

        Args:
            values: V of `observations`, [T + 1, N].
            final_values: V of `finals`, [F].
        """
        following = values[1:]
        if len(self.final_places):
            following = following.copy()
            following[self.final_places[:, 0], self.final_places[:, 1]] = final_values
        return following


class Player:
    """Steps a vector environment with an actor, and keeps count of episodes.

    Args:
        envs: the environment.
        spaces: its sizes.
        seed: of its first reset.
    """

    def __init__(self, envs: VectorEnv, spaces: Spaces, seed: int) -> None:
        self.envs, self.spaces = envs, spaces
        self.same_step = reset_mode(envs) is AutoresetMode.SAME_STEP
        self._returns = np.zeros(envs.num_envs)
        self._begin(seed)

    def _begin(self, seed: int | None) -> None:
        observations, _ = self.envs.reset(seed=seed)
        self._rows = self.spaces.rows(observations)
        self._resets = np.zeros(self.envs.num_envs, dtype=np.bool_)
        self._returns[:] = 0.0

    def play(self, actor: NumpyActor, steps: int, random: np.random.Generator) -> tuple[Rollout, list[float]]:
        """Play on for a number of steps.

        Args:
            actor: samples the actions.
            steps: T.
            random: gives the action uniforms.

        Returns:
            The rollout, and the returns of the episodes that ended in it.
        """
        n = self.envs.num_envs
        rows = np.empty((steps + 1, n, self.spaces.inputs), dtype=np.float32)
        actions = np.empty((steps, n), dtype=np.int64)
        rewards = np.empty((steps, n), dtype=np.float32)
        terminated, truncated, valid = (np.empty((steps, n), dtype=np.bool_) for _ in range(3))
        uniforms = random.random((steps, n), dtype=np.float32)
        finals: list[Floats] = []
        places: list[tuple[int, int]] = []
        ended: list[float] = []
        rows[0] = self._rows
        for t in range(steps):
            np.logical_not(self._resets, out=valid[t])
            actions[t] = actor.sample(rows[t], uniforms[t])
            info = self._step(actions[t], rewards[t], terminated[t], truncated[t], ended)
            rows[t + 1] = self._rows
            if self.same_step and "final_obs" in info:
                where = np.flatnonzero(info["_final_obs"])
                finals += [self.spaces.rows([info["final_obs"][i]])[0] for i in where]
                places += [(t, int(i)) for i in where]
        return Rollout(rows, actions, rewards, terminated, truncated, valid, *self._finals(finals, places)), ended

    def play_episodes(self, actor: NumpyActor, random: np.random.Generator) -> tuple[Rollout, list[float]]:
        """Start every copy anew and play one whole episode with each; what a copy plays after its own does not count.

        Args:
            actor: samples the actions.
            random: gives the action uniforms.

        Returns:
            The rollout, as long as the longest episode, and the return of each copy's episode.
        """
        self._begin(None)
        n = self.envs.num_envs
        running = np.ones(n, dtype=np.bool_)
        columns: list[tuple[Any, ...]] = []
        rows = [self._rows]
        finals: list[Floats] = []
        places: list[tuple[int, int]] = []
        returns = np.zeros(n)
        while running.any():
            chosen = actor.sample(rows[-1], random.random(n, dtype=np.float32))
            reward = np.empty(n, dtype=np.float32)
            over, cut = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
            info = self._step(chosen, reward, over, cut, [])
            columns.append((chosen, reward, over, cut, running))
            rows.append(self._rows)
            returns += np.where(running, reward, 0.0)
            if self.same_step and "final_obs" in info:
                where = np.flatnonzero(info["_final_obs"] & running)
                finals += [self.spaces.rows([info["final_obs"][i]])[0] for i in where]
                places += [(len(columns) - 1, int(i)) for i in where]
            running = running & ~(over | cut)
        actions, rewards, terminated, truncated, valid = (np.array(part) for part in zip(*columns, strict=True))
        rollout = Rollout(np.array(rows), actions, rewards, terminated, truncated, valid, *self._finals(finals, places))
        return rollout, returns.tolist()

    def _finals(self, rows: list[Floats], places: list[tuple[int, int]]) -> tuple[Floats, NDArray[np.int64]]:
        return (
            np.array(rows, dtype=np.float32).reshape(-1, self.spaces.inputs),
            np.array(places, dtype=np.int64).reshape(-1, 2),
        )

    def _step(
        self, actions: NDArray[np.int64], rewards: Floats, terminated: Flags, truncated: Flags, ended: list[float]
    ) -> dict[str, Any]:
        """Step once into the given arrays; the returns of ended episodes are added to `ended`."""
        chosen = actions + self.spaces.first_action if self.spaces.first_action else actions
        observations, reward, over, cut, info = self.envs.step(chosen)
        self._rows = self.spaces.rows(observations)
        rewards[:], terminated[:], truncated[:] = reward, over, cut
        # A step that only resets has reward 0.
        self._returns += reward
        done = terminated | truncated
        if done.any():
            ended += self._returns[done].tolist()
            self._returns[done] = 0.0
        self._resets = np.zeros_like(done) if self.same_step else done
        return info
