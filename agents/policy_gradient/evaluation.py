"""Playing whole episodes with a policy that does not learn."""

import numpy as np
from numpy.typing import NDArray

from stau_rl.agents.policy_gradient.networks import NumpyActor
from stau_rl.agents.policy_gradient.rollout import Spaces, make_envs

# Episodes played side by side; more would only cost memory.
BATCH = 128


def evaluate(
    actor: NumpyActor, env: str, episodes: int, random: np.random.Generator, *, deterministic: bool
) -> NDArray[np.float64]:
    """Undiscounted returns of whole episodes.

    Every copy of the environment plays one episode, so that short episodes are not counted more often than long ones.

    Args:
        actor: the policy.
        env: Gymnasium id.
        episodes: how many.
        random: gives the environments' seeds and the action uniforms.
        deterministic: take the likeliest action instead of a sample.

    Returns:
        float64 [episodes].

    Raises:
        ValueError: the environment cannot be made, or its spaces do not fit.
    """
    return np.concatenate(
        [_batch(actor, env, min(BATCH, episodes - first), random, deterministic) for first in range(0, episodes, BATCH)]
    )


def _batch(
    actor: NumpyActor, env: str, episodes: int, random: np.random.Generator, deterministic: bool
) -> NDArray[np.float64]:
    envs = make_envs(env, episodes)
    spaces = Spaces.of(envs, env)
    observations, _ = envs.reset(seed=int(random.integers(1 << 31)))
    returns = np.zeros(episodes)
    running = np.ones(episodes, dtype=np.bool_)
    while running.any():
        rows = spaces.rows(observations)
        uniforms = random.random(episodes, dtype=np.float32)
        actions = actor.best(rows) if deterministic else actor.sample(rows, uniforms)
        observations, rewards, terminated, truncated, _ = envs.step(actions + spaces.first_action)
        returns += np.where(running, rewards, 0.0)
        running &= ~(terminated | truncated)
    envs.close()
    return returns
