"""What REINFORCE, A2C and PPO share: the course of a run, and from a rollout to a loss.

A run is a number of segments. In a segment the agent's `update` is called again and again: it collects a rollout, makes
a batch of it (advantages A by generalised advantage estimation, value targets G = A + V), and descends a loss

    policy part + value (V(s) - G)^2 - entropy H(pi(.|s)), averaged over the batch.

The policy part is each agent's own; `ppo`, `a2c` and `reinforce` have it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.environments import Floats, Spaces, make_envs
from stau_rl.agents.policy_gradient.finite import NonFiniteError
from stau_rl.agents.policy_gradient.networks import ActorCritic, NumpyActor, entropies
from stau_rl.agents.policy_gradient.optimiser import FlatAdam, Remedies
from stau_rl.agents.policy_gradient.reward_scale import RewardScale
from stau_rl.agents.policy_gradient.rollout import Rollout, RolloutWorker, evaluate, generalised_advantages
from stau_rl.agents.policy_gradient.run_keys import CURVE, FINAL, TRAINING, WEIGHTS, keyed_random
from stau_rl.heads import parse_head
from stau_rl.machine.report import Report


class Batch(NamedTuple):
    """The B steps of a rollout that count.

    Attributes:
        observations: float32 [B, inputs].
        actions: int64 [B].
        advantages: A, float32 [B]; no gradient flows through them.
        targets: of the value, G = A + V, float32 [B].
    """

    observations: Tensor
    actions: Tensor
    advantages: Tensor
    targets: Tensor


class Agent:
    """A learner with one method of its own, `update`; everything random in it follows from its seed.

    A run is `settings.points` segments of equal length. At the start of each, the environments are made anew and the
    random numbers are those of (seed, segment): so the state between two segments is the networks, the optimiser and
    the statistics of `RewardScale` alone, and a run that is resumed there goes on bit by bit as if it had not stopped,
    on any environment that follows from its reset's seed. Episodes under way at the end of a segment are cut off and
    bootstrap.

    Args:
        settings: of the class `Settings`.
        seed: in [0, 2^64).
        device: of the networks while they learn; environments and actions stay on the CPU.

    Raises:
        ValueError: the environment cannot be made, or its spaces do not fit.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[AgentSettings]]

    def __init__(self, settings: Any, seed: int, device: str = "cpu") -> None:
        self.settings, self.seed, self.device = settings, seed, torch.device(device)
        probe = make_envs(settings.env, 1, settings.env_args)
        self.spaces = Spaces.of(probe, settings.env)
        probe.close()
        self.network = ActorCritic(
            self.spaces.inputs,
            self.spaces.actions,
            settings.hidden,
            parse_head(settings.head),
            settings.learn,
            settings.score_offset,
            torch.Generator().manual_seed(int(self.random(WEIGHTS, 0).integers(1 << 62))),
        )
        self.network.to(self.device)
        apart = list(self.network.module.parameters())
        networks = self.network.actor.parameters(), self.network.critic.parameters()
        self.optimiser = FlatAdam(networks, settings.adam_eps, apart, settings.head_rate)
        self.remedies = Remedies(self.network, settings)
        self.actor = NumpyActor(self.network)
        self.scale = RewardScale(settings.reward_scale, settings.gamma)
        self.segment, self.step = 0, 0
        self.curve: list[dict[str, float]] = []

    def update(self, worker: RolloutWorker, random: np.random.Generator) -> tuple[int, list[float]]:
        """Collect a rollout and learn from it.

        Args:
            worker: steps the environments.
            random: gives the action uniforms, and the order of minibatches where there are any.

        Returns:
            The steps that were learned from, and the returns of the episodes that ended.
        """
        raise NotImplementedError

    def batch(self, rollout: Rollout, lam: float, *, baseline: bool = True) -> Batch:
        """The steps of a rollout that count, with rewards as `reward_scale` has them.

        Args:
            rollout: T steps of N environments; each is to be given once.
            lam: lambda of the advantages, in [0, 1]; with 1 they are the return that followed, less the value.
            baseline: whether values are those of the critic; else they are 0.
        """
        values, following = self.values(rollout) if baseline else (np.zeros_like(rollout.rewards),) * 2
        done = rollout.terminated | rollout.truncated
        rewards = self.scale.rewards(rollout)
        gamma = self.settings.gamma
        advantages = generalised_advantages(rewards, values, following, rollout.terminated, done, gamma, lam)
        keep = np.flatnonzero(rollout.valid)
        return Batch(
            self.tensor(rollout.observations[:-1].reshape(rollout.valid.size, -1)[keep]),
            self.tensor(rollout.actions.ravel()[keep]),
            self.tensor(advantages.ravel()[keep]),
            self.tensor((advantages + values).ravel()[keep]),
        )

    def tensor(self, values: NDArray[Any]) -> Tensor:
        """An array as a tensor where the networks are."""
        return torch.from_numpy(values).to(self.device)

    def values(self, rollout: Rollout) -> tuple[Floats, Floats]:
        """V(s_t) and V of what followed before any reset, float32 [T, N] each."""
        shape = rollout.observations.shape
        rows = np.concatenate([rollout.observations.reshape(-1, shape[-1]), rollout.finals])
        with torch.inference_mode():
            values = self.network.values(self.tensor(rows)).cpu().numpy()
        within = values[: shape[0] * shape[1]].reshape(shape[:2])
        return within[:-1], rollout.next_values(within, values[shape[0] * shape[1] :])

    def score_loss(self, batch: Batch, *, fit_value: bool = True) -> Tensor:
        """The loss of an agent that learns once from what it collected: -mean A log pi(a|s) and the shared parts."""
        log_policy = self.network.log_policy(batch.observations)
        loss = -(log_taken(log_policy, batch.actions) * self.weighed(batch.advantages)).mean()
        return self.with_shared_parts(loss, log_policy, batch, fit_value=fit_value)

    def weighed(self, advantages: Tensor) -> Tensor:
        """Advantages brought to mean 0 and standard deviation 1, where the settings say so and there are two."""
        if self.settings.normalise and len(advantages) > 1:
            return (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return advantages

    def with_shared_parts(self, loss: Tensor, log_policy: Tensor, batch: Batch, *, fit_value: bool = True) -> Tensor:
        """A policy part + value mean (V - G)^2 - entropy mean H.

        Args:
            loss: the policy part, a scalar.
            log_policy: log-probabilities of the actions, [B, actions].
            batch: has the observations, and G.
            fit_value: whether the value has a part; without it the critic stays as it is.
        """
        settings = self.settings
        if fit_value:
            loss = loss + settings.value * (self.network.values(batch.observations) - batch.targets).square().mean()
        if settings.entropy:
            loss = loss - settings.entropy * entropies(log_policy).mean()
        return loss

    def descend(self, loss: Tensor) -> None:
        """One step of the optimiser on a scalar loss.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        if not math.isfinite(value := loss.item()):
            raise NonFiniteError("loss", value)
        self.optimiser.step(loss, self.learning_rate, self.settings.max_grad_norm)

    @property
    def finished(self) -> bool:
        """Every segment has been played."""
        return self.segment >= self.settings.points

    @property
    def learning_rate(self) -> float:
        """Learning rate now: with `anneal` it falls linearly to 0 at the last step."""
        left = max(0.0, 1.0 - self.step / self.settings.steps)
        return float(self.settings.learning_rate * (left if self.settings.anneal else 1.0))

    def play_segment(self, report: Report | None = None) -> dict[str, float]:
        """Play one segment and add its row to the learning curve.

        Args:
            report: called after every update; what it raises ends the run there.

        Returns:
            The row: step, episodes that ended in the segment, their mean return (nan without any) and that of the
            sampled evaluation (nan if the settings leave it out). Where the head learns, also `Remedies.learned`.

        Raises:
            NonFiniteError: an observation, reward, action probability, loss or parameter is not finite in float32. The
                segment is not added.
        """
        settings = self.settings
        random = self.random(TRAINING, self.segment)
        envs = make_envs(settings.env, settings.envs, settings.env_args)
        until = settings.steps * (self.segment + 1) / settings.points
        returns: list[float] = []
        self.remedies.begin()
        self.scale.begin()
        with self._told("training"):
            worker = RolloutWorker(envs, self.spaces, int(random.integers(1 << 31)))
        while self.step < until:
            with self._told("training", worker):
                steps, ended = self.update(worker, random)
                self._require_finite_parameters()
            self.actor.follow()
            self.step += steps
            returns += ended
            if report is not None:
                report(f"{self.name} on {settings.env}", min(self.step, settings.steps), settings.steps)
        envs.close()
        row = {"step": self.step, "train_episodes": len(returns), "train_return": _mean(returns)}
        row["sampled_return"] = math.nan
        if settings.curve_episodes:
            row["sampled_return"] = _mean(self.evaluate(settings.curve_episodes, CURVE, self.segment))
        row |= self.remedies.learned()
        self.curve.append(row)
        self.segment += 1
        return self.curve[-1]

    def evaluate(
        self, episodes: int, purpose: int = FINAL, number: int = 0, *, deterministic: bool = False
    ) -> NDArray[np.float64]:
        """Returns of whole episodes, float64 [episodes]; the same for the same arguments and weights.

        Raises:
            NonFiniteError: an observation, reward or action probability is not finite in float32.
        """
        random = self.random(purpose, number)
        with self._told("evaluation"):
            env, args = self.settings.env, self.settings.env_args
            return evaluate(self.actor, env, episodes, random, deterministic=deterministic, env_args=args)

    def state(self) -> dict[str, Any]:
        """Everything that `load` needs, between two segments."""
        return {
            "optimiser": self.optimiser.state(),
            "reward_scale": self.scale.state(),
            "segment": self.segment,
            "step": self.step,
            "curve": [dict(row) for row in self.curve],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a `state` of a run of the same settings and seed."""
        self.optimiser.load(state["optimiser"])
        # A state from before there were statistics is one of a fixed scale.
        if "reward_scale" in state:
            self.scale.load(state["reward_scale"])
        self.actor.follow()
        self.segment, self.step = state["segment"], state["step"]
        self.remedies.resume(self.step)
        self.curve = [dict(row) for row in state["curve"]]

    def random(self, purpose: int, number: int) -> np.random.Generator:
        """The generator of one purpose."""
        return keyed_random(self.seed, purpose, number)

    @contextmanager
    def _told(self, phase: str, worker: RolloutWorker | None = None) -> Iterator[None]:
        """Complete a NonFiniteError with what is known here: environment, step, run."""
        try:
            yield
        except NonFiniteError as error:
            step = self.step + (worker.steps if worker else 0)
            raise error.at(self.settings.env, step, f"{self.name}, seed {self.seed}", phase) from None

    def _require_finite_parameters(self) -> None:
        if self.optimiser.finite():
            return
        for name, parameter in self.network.named_parameters():
            bad = parameter.detach()[~torch.isfinite(parameter)]
            if len(bad):
                raise NonFiniteError(f"parameter {name}", bad[0].item())


def log_taken(log_policy: Tensor, actions: Tensor) -> Tensor:
    """log pi(a|s) of the actions that were taken: [B, actions] and int64 [B] to [B]."""
    return log_policy.gather(1, actions[:, None]).squeeze(1)


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
