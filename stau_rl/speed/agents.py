"""`python -m stau_rl.speed.agents`: steps per second of our PPO, of Stable-Baselines3's, and of the vector bandits.

Both learners get the same environment (8 copies of CartPole-v1), rollout, epochs, minibatch, networks, optimiser and
number of threads, and take turns in one process, so that whatever slows the machine down slows both. Compare the
ratio, not the numbers of two machines. Stable-Baselines3 is in the extra `integrations`; without it ours stands alone.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stau_rl.terminal.counts import whole_number

ROLLOUT, EPOCHS, MINIBATCH, ENVS, WIDTHS = 128, 4, 256, 8, (64, 64)
INSTANCES = 4_096


def our_ppo(steps: int, head: str = "softmax(beta=1)") -> float:
    """Steps per second of this package's PPO, learning included, evaluation not."""
    from stau_rl.agents.policy_gradient.ppo import PPO, PPOSettings

    settings = PPOSettings(
        head=head,
        steps=steps,
        envs=ENVS,
        reward_scale=1.0,
        hidden=WIDTHS,
        rollout=ROLLOUT,
        epochs=EPOCHS,
        minibatch=MINIBATCH,
        points=1,
        curve_episodes=0,
    )
    agent = PPO(settings, seed=0)
    begun = time.perf_counter()
    agent.play_segment()
    return agent.step / (time.perf_counter() - begun)


def their_ppo(steps: int) -> float:
    """Steps per second of Stable-Baselines3's PPO, with the same settings."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env("CartPole-v1", n_envs=ENVS, seed=0)
    model = PPO(
        "MlpPolicy",
        envs,
        learning_rate=1e-3,
        n_steps=ROLLOUT,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        policy_kwargs={"net_arch": list(WIDTHS)},
        seed=0,
        device="cpu",
    )
    begun = time.perf_counter()
    model.learn(steps)
    return model.num_timesteps / (time.perf_counter() - begun)


def bandit_steps(env: str, horizon: int, mode: str, steps: int) -> float:
    """Environment steps per second of a native vector bandit; a step that only resets counts as none."""
    import gymnasium as gym

    envs = gym.make_vec(env, INSTANCES, vectorization_mode="vector_entry_point", horizon=horizon, autoreset_mode=mode)
    envs.reset(seed=0)
    arms = np.random.default_rng(0).integers(envs.single_action_space.n, size=(64, INSTANCES))
    # The generators draw ahead in blocks of 1 024: a fair time covers some of them.
    played, ended = 0, False
    begun = time.perf_counter()
    for t in range(steps):
        _, _, terminated, _, _ = envs.step(arms[t % 64])
        played += not (ended and mode == "NextStep")
        ended = bool(terminated[0])
    return played * INSTANCES / (time.perf_counter() - begun)


def quantiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, 20 % and 80 % quantile."""
    middle, low, high = np.quantile(values, [0.5, 0.2, 0.8])
    return float(middle), float(low), float(high)


def compare(steps: int, repeats: int) -> dict[str, list[float]]:
    """Steps per second of every learner, in turns; the first turn of each warms up and does not count."""
    learners: dict[str, Callable[[int], float]] = {
        "stau-rl PPO, softmax": our_ppo,
        "stau-rl PPO, s_tau(tau=2)": lambda n: our_ppo(n, "s_tau(tau=2)"),
    }
    with contextlib.suppress(ImportError):
        import stable_baselines3

        learners[f"Stable-Baselines3 {stable_baselines3.__version__} PPO"] = their_ppo
    found: dict[str, list[float]] = {name: [] for name in learners}
    for turn in range(repeats + 1):
        for name, play in learners.items():
            speed = play(steps)
            if turn:
                found[name].append(speed)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments, measure, and print."""
    import torch

    from stau_rl.machine.stamp import device_name

    parser = argparse.ArgumentParser(prog="python -m stau_rl.speed.agents", description=__doc__)
    parser.add_argument("--steps", type=whole_number, default=51_200, help="environment steps per turn")
    parser.add_argument("--repeats", type=whole_number, default=5)
    parser.add_argument("--threads", type=whole_number, default=1, help="torch threads, for both")
    parser.add_argument("--bandits", action="store_true", help="only the vector bandits")
    given: Any = parser.parse_args(arguments)
    print(f"{device_name()}, {os.cpu_count()} cores, torch {torch.__version__}, {given.threads} threads")
    if not given.bandits:
        before = torch.get_num_threads()
        torch.set_num_threads(given.threads)
        try:
            found = compare(given.steps, given.repeats)
        finally:
            torch.set_num_threads(before)
        base = quantiles(list(found.values())[-1])[0]
        print(f"CartPole-v1, {ENVS} environments, rollout {ROLLOUT}, {EPOCHS} epochs, minibatch {MINIBATCH}: steps/s")
        for name, speeds in found.items():
            middle, low, high = quantiles(speeds)
            print(f"  {name:34} {middle:8,.0f} ({low:,.0f}, {high:,.0f})  {middle / base:.2f} x the last")
    print(f"Native vector bandits, {INSTANCES} instances, million environment steps/s:")
    from stau_rl.envs.gym.registration import IDS

    for env in IDS:
        for horizon in (1, 100):
            for mode in ("NextStep", "SameStep"):
                speeds = [bandit_steps(env, horizon, mode, 600) / 1e6 for _ in range(given.repeats)]
                middle, low, high = quantiles(speeds)
                print(f"  {env:30} horizon {horizon:<4} {mode:9} {middle:7.3g} ({low:.3g}, {high:.3g})")


if __name__ == "__main__":
    main()
