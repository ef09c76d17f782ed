"""Steps of a vector environment as arrays: rollouts with every end of an episode told, advantages, evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from stau_rl.agents.policy_gradient.environments import Floats, Spaces, make_envs, reset_mode
from stau_rl.agents.policy_gradient.finite import require_finite
from stau_rl.agents.policy_gradient.networks import NumpyActor

Flags = NDArray[np.bool_]
# Episodes of an evaluation that are played side by side; more would only cost memory.
EVALUATED = 128


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of N copies of an environment; every array starts with [T, N], `observations` with [T + 1, N].

    Attributes:
        observations: what each step was chosen on, and what the last one led to, float32 [..., inputs].
        actions: int64.
        rewards: float32.
        terminated: the episode ended for good.
        truncated: the episode was cut off.
        valid: the step counts; one that only resets a copy, or belongs to no wanted episode, does not.
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


class RolloutWorker:
    """Steps a vector environment with an actor, and keeps count of episodes.

    Args:
        envs: the environment.
        spaces: its sizes.
        seed: of its first reset.

    Attributes:
        steps: environment steps of the last rollout that count, or of the one under way.
    """

    def __init__(self, envs: VectorEnv, spaces: Spaces, seed: int) -> None:
        self.envs, self.spaces = envs, spaces
        self.same_step = reset_mode(envs) is AutoresetMode.SAME_STEP
        self.steps = 0
        self._returns = np.zeros(envs.num_envs)
        self._begin(seed)

    def _begin(self, seed: int | None) -> None:
        observations, _ = self.envs.reset(seed=seed)
        self._rows = self.spaces.rows(observations)
        self._resets = np.zeros(self.envs.num_envs, dtype=np.bool_)
        self._returns[:] = 0.0

    def collect(self, actor: NumpyActor, steps: int, random: np.random.Generator) -> tuple[Rollout, list[float]]:
        """Go on for a number of steps of every copy.

        Args:
            actor: samples the actions.
            steps: T.
            random: gives the action uniforms.

        Returns:
            The rollout, and the returns of the episodes that ended in it.

        Raises:
            NonFiniteError: an observation, a reward or the weight of an action is not finite in float32.
        """
        self.steps = 0
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
            self.steps += int(np.count_nonzero(valid[t]))
            actions[t] = actor.sample(rows[t], uniforms[t])
            info = self._step(actions[t], rewards[t], terminated[t], truncated[t], ended)
            rows[t + 1] = self._rows
            if self.same_step and "final_obs" in info:
                where = np.flatnonzero(info["_final_obs"])
                finals += [self.spaces.rows([info["final_obs"][i]])[0] for i in where]
                places += [(t, int(i)) for i in where]
        return Rollout(rows, actions, rewards, terminated, truncated, valid, *self._finals(finals, places)), ended

    def collect_episodes(self, actor: NumpyActor, random: np.random.Generator) -> tuple[Rollout, list[float]]:
        """Start every copy anew for one whole episode each; what a copy does after its own does not count.

        Args:
            actor: samples the actions.
            random: gives the action uniforms.

        Returns:
            The rollout, as long as the longest episode, and the return of each copy's episode.

        Raises:
            NonFiniteError: as `collect`.
        """
        self.steps = 0
        self._begin(None)
        n = self.envs.num_envs
        running = np.ones(n, dtype=np.bool_)
        columns: list[tuple[Any, ...]] = []
        rows = [self._rows]
        finals: list[Floats] = []
        places: list[tuple[int, int]] = []
        returns = np.zeros(n)
        while running.any():
            self.steps += int(np.count_nonzero(running))
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
        require_finite("reward", np.asarray(reward))
        rewards[:], terminated[:], truncated[:] = reward, over, cut
        # A step that only resets has reward 0.
        self._returns += reward
        done = terminated | truncated
        if done.any():
            ended += self._returns[done].tolist()
            self._returns[done] = 0.0
        self._resets = np.zeros_like(done) if self.same_step else done
        return info


@np.errstate(over="ignore", invalid="ignore")
def generalised_advantages(
    rewards: Floats, values: Floats, next_values: Floats, terminated: Flags, ended: Flags, gamma: float, lam: float
) -> Floats:
    """A_t = delta_t + gamma lambda A_{t+1} within an episode, delta_t = r_t + gamma V(s_{t+1}) - V(s_t).

    An episode that *terminates* has no future: its last V(s_{t+1}) counts 0. One that is *truncated* has a future that
    was not played: the value of its last observation stands for it (it bootstraps). With lambda = 1, A is the
    discounted return less the value.

    Args:
        rewards: float32 [T, N].
        values: V(s_t), float32 [T, N].
        next_values: V of the observation that followed, before any reset, float32 [T, N].
        terminated: the episode ended for good at t, [T, N].
        ended: the episode ended at t, either way, [T, N].
        gamma: discount factor.
        lam: lambda, in [0, 1].

    Returns:
        Advantages, float32 [T, N].

    Source: Schulman et al., "High-dimensional continuous control using generalized advantage estimation", 2016.
    """
    delta = rewards + np.float32(gamma) * next_values * np.where(terminated, np.float32(0), np.float32(1)) - values
    carry = np.where(ended, np.float32(0), np.float32(gamma * lam))
    advantages = np.empty_like(delta)
    running: Floats = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + carry[t] * running
        advantages[t] = running
    return advantages


def evaluate(
    actor: NumpyActor,
    env: str,
    episodes: int,
    random: np.random.Generator,
    *,
    deterministic: bool,
    env_args: Mapping[str, Any] | None = None,
) -> NDArray[np.float64]:
    """Undiscounted returns of whole episodes.

    Every copy of the environment plays one episode, so that short episodes are not counted more often than long ones.

    Args:
        actor: the policy.
        env: Gymnasium id.
        episodes: how many.
        random: gives the environments' seeds and the action uniforms.
        deterministic: take the likeliest action instead of a sample.
        env_args: the environment's arguments by name.

    Returns:
        float64 [episodes].

    Raises:
        ValueError: the environment cannot be made, or its spaces do not fit.
        NonFiniteError: an observation, a reward or the weight of an action is not finite in float32.
    """
    counts = [min(EVALUATED, episodes - first) for first in range(0, episodes, EVALUATED)]
    return np.concatenate([_evaluate_some(actor, env, env_args, count, random, deterministic) for count in counts])


def _evaluate_some(
    actor: NumpyActor,
    env: str,
    env_args: Mapping[str, Any] | None,
    episodes: int,
    random: np.random.Generator,
    deterministic: bool,
) -> NDArray[np.float64]:
    envs = make_envs(env, episodes, env_args)
    spaces = Spaces.of(envs, env)
    observations, _ = envs.reset(seed=int(random.integers(1 << 31)))
    returns = np.zeros(episodes)
    running = np.ones(episodes, dtype=np.bool_)
    while running.any():
        rows = spaces.rows(observations)
        uniforms = random.random(episodes, dtype=np.float32)
        actions = actor.best(rows) if deterministic else actor.sample(rows, uniforms)
        observations, rewards, terminated, truncated, _ = envs.step(actions + spaces.first_action)
        require_finite("reward", np.asarray(rewards))
        returns += np.where(running, rewards, 0.0)
        running &= ~(terminated | truncated)
    envs.close()
    return returns
