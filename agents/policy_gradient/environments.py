"""Gymnasium environments as an agent sees them: vectors of copies, and observations as rows of numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from stau_rl.agents.policy_gradient.finite import require_finite

Floats = NDArray[np.float32]
BOX2D = 'Box2D is not installed; pip install -e ".[rl]" -c constraints.txt'
OWN = 'an environment of your own is "module:id", where importing the module registers the id'
FLATTEN = "wrap it in gymnasium.wrappers.FlattenObservation"
IMAGES = (
    "these agents take rows of numbers: wrap it in gymnasium's GrayscaleObservation, ResizeObservation and "
    "FlattenObservation, scaled to [0, 1], or put a head into Stable-Baselines3's CnnPolicy (stau_rl.integrations)"
)


@dataclass(frozen=True, slots=True)
class Spaces:
    """Sizes of an environment's spaces.

    Attributes:
        inputs: length of an observation as a row of numbers.
        actions: number of actions.
        first_action: the environment's name of action 0.
        one_hot: observations are numbers of states, and become one-hot rows.
        first_state: number of the first state, with `one_hot`.
        shape: of an observation as the environment gives it.
    """

    inputs: int
    actions: int
    first_action: int
    one_hot: bool
    first_state: int = 0
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, envs: VectorEnv, name: str) -> "Spaces":
        """Sizes of the spaces of a vector environment.

        Raises:
            ValueError: the actions are not discrete, or observations neither a box of numbers nor discrete, or they are
                images.
        """
        action, observation = envs.single_action_space, envs.single_observation_space
        if not isinstance(action, gym.spaces.Discrete):
            raise ValueError(f"env {name!r} must have discrete actions, its action space is {action}")
        actions, first = int(action.n), int(action.start)
        if isinstance(observation, gym.spaces.Discrete):
            return cls(int(observation.n), actions, first, True, int(observation.start))
        if isinstance(observation, gym.spaces.Box):
            if observation.dtype == np.uint8 and len(observation.shape) > 1:
                raise ValueError(f"env {name!r} gives images, uint8 of shape {observation.shape}; {IMAGES}")
            return cls(int(np.prod(observation.shape)), actions, first, False, shape=observation.shape)
        raise ValueError(f"env {name!r} must have Box or Discrete observations, its space is {observation}; {FLATTEN}")

    def rows(self, observations: Any) -> Floats:
        """A batch of observations as float32 [N, inputs].

        Raises:
            NonFiniteError: a number of an observation is not finite in float32.
        """
        found = np.asarray(observations)
        if self.one_hot:
            return np.eye(self.inputs, dtype=np.float32)[found - self.first_state]
        require_finite("observation", found)
        return found.astype(np.float32, copy=False).reshape(len(found), self.inputs)


def make_envs(name: str, count: int, args: Mapping[str, Any] | None = None) -> VectorEnv:
    """A vector environment of `count` copies: the id's own vector class if it has one, else one process in turns.

    Args:
        name: Gymnasium id; `module:id` imports a module first.
        count: how many copies.
        args: the environment's arguments by name.

    Raises:
        ValueError: the id is unknown or cannot be made, or has no such argument.
    """
    module, _, rest = name.rpartition(":")
    try:
        if module:
            import_module(module)
        own = gym.spec(rest).vector_entry_point is not None
        mode = "vector_entry_point" if own else "sync"
        envs = gym.make_vec(name, count, vectorization_mode=mode, **(args or {}))
    except gym.error.DependencyNotInstalled as error:
        # Gymnasium's own advice knows nothing of the pinned versions.
        fix = BOX2D if "box2d" in str(error).lower() else str(error)
        raise ValueError(f"cannot make env {name!r}: {fix}") from None
    except gym.error.UnregisteredEnv as error:
        hint = f"importing {module} did not register {rest!r}" if module else OWN
        raise ValueError(f"cannot make env {name!r}: {error} ({hint})") from None
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"cannot make env {name!r}: {error}") from None
    if reset_mode(envs) is AutoresetMode.DISABLED:
        raise ValueError(f"env {name!r} does not reset its copies by itself (its autoreset mode is DISABLED)")
    return envs


def env_text(name: str, args: Mapping[str, Any]) -> str:
    """An environment in words: `FrozenLake-v1(map_name=8x8)`."""
    return name + (f"({', '.join(f'{arg}={value}' for arg, value in args.items())})" if args else "")


def reset_mode(envs: VectorEnv) -> AutoresetMode:
    """When a vector environment resets a copy whose episode has ended; NEXT_STEP if it does not say."""
    return AutoresetMode(envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
