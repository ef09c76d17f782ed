"""One episode of a trained policy as a film: a GIF, or a file that Gymnasium's recorder writes into a folder."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from stau_rl.agents.policy_gradient.policy import Policy
from stau_rl.agents.policy_gradient.run_keys import FINAL, keyed_random
from stau_rl.files.whole import whole_file

FRAMES_PER_SECOND = 30
GIF = ".gif"


def record(policy: Policy, place: Path, *, greedy: bool = False, number: int = 0) -> float:
    """Play an episode and film it.

    Args:
        policy: who plays.
        place: a file that ends in `.gif`, or a folder for an MP4 file.
        greedy: take the likeliest action instead of a sample.
        number: of the episode.

    Returns:
        The episode's return.

    Raises:
        ValueError: the environment draws nothing, or a package that this takes is not installed.
    """
    try:
        return _gif(policy, place, greedy, number) if place.suffix == GIF else _recorder(policy, place, greedy, number)
    except gym.error.DependencyNotInstalled as error:
        raise ValueError(f"a video of {policy.env} needs a package: {error}") from None


def _gif(policy: Policy, file: Path, greedy: bool, number: int) -> float:
    from PIL import Image

    env = _drawn(policy)
    frames: list[NDArray[np.uint8]] = []
    total = _play(env, policy, greedy, number, frames)
    env.close()
    first, *others = [Image.fromarray(np.asarray(frame, dtype=np.uint8)) for frame in frames]
    milliseconds = round(1000 / env.metadata.get("render_fps", FRAMES_PER_SECOND))
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as temporary:
        first.save(temporary, "GIF", save_all=True, append_images=others, duration=milliseconds, loop=0)
    return total


def _recorder(policy: Policy, folder: Path, greedy: bool, number: int) -> float:
    if folder.suffix or folder.is_file():
        raise ValueError(f"video must be a file that ends in .gif, or a folder, got {folder}")
    env = _drawn(policy)
    with warnings.catch_warnings():
        # Of a folder that is there already.
        warnings.simplefilter("ignore")
        film = gym.wrappers.RecordVideo(
            env, str(folder), name_prefix=f"seed-{policy.seed}", episode_trigger=lambda _: True, disable_logger=True
        )
        total = _play(film, policy, greedy, number, None)
        film.close()
    return total


def _drawn(policy: Policy) -> gym.Env[Any, Any]:
    """The policy's environment, drawing frames."""
    try:
        with warnings.catch_warnings():
            # Of a mode that the environment does not list; whether it draws is seen below.
            warnings.simplefilter("ignore")
            env = gym.make(policy.env, render_mode="rgb_array", **policy.env_args)
    except gym.error.DependencyNotInstalled:
        raise
    except (gym.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"env {policy.env!r} cannot be made with render_mode='rgb_array': {error}") from None
    if env.render_mode != "rgb_array":
        raise ValueError(f"env {policy.env!r} draws no frames: it has no render_mode 'rgb_array'")
    return env


def _play(
    env: gym.Env[Any, Any], policy: Policy, greedy: bool, number: int, frames: list[NDArray[np.uint8]] | None
) -> float:
    """Play an episode, each of its frames added to `frames`; its return."""
    random = keyed_random(policy.seed, FINAL, number)
    observation, _ = env.reset(seed=int(random.integers(1 << 31)))
    total, over = 0.0, False
    while True:
        if frames is not None:
            frame: Any = env.render()
            if frame is None:
                raise ValueError(f"env {policy.env!r} draws no frames: its render() gives None")
            frames.append(frame)
        if over:
            return total
        action = policy.act(observation, greedy=greedy, random=random)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, over = total + float(reward), terminated or truncated
