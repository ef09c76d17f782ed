"""PPO for discrete actions in one file, in the manner of CleanRL, with a head of choice: the lines marked (head).

`python notebooks/single_file_ppo.py [HEAD] [STEPS]` trains on CartPole-v1 and prints the mean return of late episodes.
Algorithm: Schulman et al., "Proximal policy optimization algorithms", 2017.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from stau_rl import HeadModule, parameter_groups  # (head)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run; those of CleanRL's `ppo.py`."""

    env: str = "CartPole-v1"
    head: str = "s_tau(tau=2)"  # (head)
    learn: tuple[str, ...] = ("tau",)  # (head) the head's parameters to learn
    head_lr: float = 2.5e-4  # (head) their learning rate
    steps: int = 100_000  # environment steps in all
    envs: int = 4
    rollout: int = 128  # steps per environment between updates
    epochs: int = 4
    minibatches: int = 4
    lr: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01  # weight of the entropy bonus
    value: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5
    seed: int = 0


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Linear layer with orthogonal weights and zero bias."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    """Actor and critic, two hidden layers of 64 each."""

    def __init__(self, observation: int, actions: int, settings: Settings) -> None:
        super().__init__()
        self.critic = nn.Sequential(layer(observation, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        self.scores = nn.Sequential(
            layer(observation, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, 0.01)
        )
        self.head = HeadModule(settings.head, settings.learn)  # (head)

    def policy(self, observation: torch.Tensor) -> torch.distributions.Distribution:
        """Distribution over the actions."""
        return self.head.distribution(
            self.scores(observation)
        )  # (head) was Categorical(logits=self.scores(observation))


def advantages(
    rewards: torch.Tensor,
    values: torch.Tensor,
    ended: torch.Tensor,
    last_value: torch.Tensor,
    gamma: float,
    gae_lambda: float,
) -> torch.Tensor:
    """Generalised advantage estimates [steps, envs]; `ended` marks steps after which the episode is over."""
    estimates, running = torch.zeros_like(rewards), torch.zeros_like(last_value)
    for t in reversed(range(len(rewards))):
        following = last_value if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + gamma * following * ~ended[t] - values[t]
        running = delta + gamma * gae_lambda * running * ~ended[t]
        estimates[t] = running
    return estimates


def train(settings: Settings) -> tuple[Agent, list[float]]:
    """Train; the agent and the returns of all finished episodes in order."""
    torch.manual_seed(settings.seed)
    envs = gym.make_vec(
        settings.env, settings.envs, vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
    )  # fmt: skip
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n), settings)
    optimizer = torch.optim.Adam(parameter_groups(agent, settings.lr, settings.head_lr), eps=1e-5)  # (head)
    rates = [group["lr"] for group in optimizer.param_groups]
    observation = torch.as_tensor(envs.reset(seed=settings.seed)[0])
    score, returns = np.zeros(settings.envs), []
    updates = settings.steps // (settings.envs * settings.rollout)
    for update in range(updates):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 - update / updates)
        stored = []
        with torch.no_grad():
            for _ in range(settings.rollout):
                policy = agent.policy(observation)
                action = policy.sample()
                value = agent.critic(observation)[:, 0]
                following, reward, terminated, truncated, info = envs.step(action.numpy())
                ended = terminated | truncated
                score += reward
                returns += score[ended].tolist()
                score[ended] = 0
                gained = torch.as_tensor(reward, dtype=torch.float32)
                if truncated.any():
                    # A time limit is no end of the task: what would have followed counts, by the critic.
                    final = torch.as_tensor(np.stack(info["final_obs"][truncated]))
                    gained[torch.as_tensor(truncated)] += settings.gamma * agent.critic(final)[:, 0]
                stored.append((observation, action, policy.log_prob(action), value, gained, torch.as_tensor(ended)))
                observation = torch.as_tensor(following)
            last_value = agent.critic(observation)[:, 0]
        observations, actions, old, values, rewards, ends = (torch.stack(part) for part in zip(*stored, strict=True))
        estimates = advantages(rewards, values, ends, last_value, settings.gamma, settings.gae_lambda)
        batch = [one.flatten(0, 1) for one in (observations, actions, old, estimates, estimates + values)]
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(batch[0])).chunk(settings.minibatches):
                seen, taken, before, gain, target = (one[rows] for one in batch)
                policy = agent.policy(seen)
                ratio = (policy.log_prob(taken) - before).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
                loss = -torch.minimum(gain * ratio, gain * clipped).mean() - settings.entropy * policy.entropy().mean()
                loss = loss + settings.value * (agent.critic(seen)[:, 0] - target).square().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
                optimizer.step()
    envs.close()
    return agent, returns


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "s_tau(tau=2)"
    settings = Settings(
        head=chosen,
        learn=("tau",) if chosen.startswith("s_tau") else (),
        steps=int(sys.argv[2]) if len(sys.argv) > 2 else 100_000,
    )
    trained, episodes = train(settings)
    print(f"{trained.head.head}: {len(episodes)} episodes, mean return of the last 20: {np.mean(episodes[-20:]):.1f}")
