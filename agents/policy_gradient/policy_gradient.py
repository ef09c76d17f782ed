"""What the policy-gradient agents share: the course of a run, its checkpoints and its learning curve."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.evaluation import evaluate
from stau_rl.agents.policy_gradient.learned_sharpness import Remedies
from stau_rl.agents.policy_gradient.networks import ActorCritic, NumpyActor
from stau_rl.agents.policy_gradient.optimiser import FlatAdam
from stau_rl.agents.policy_gradient.rollout import Player, Rollout, Spaces, make_envs
from stau_rl.heads import parse_head

# Purposes of the Philox keys of a run: (seed, purpose, number).
WEIGHTS, TRAINING, CURVE, FINAL = range(4)


class Agent:
    """A learner with one method of its own, `update`; everything random in it follows from its seed.

    A run is `settings.points` segments of equal length. At the start of each, the environments are made anew and the
    random numbers are those of (seed, segment): so the state between two segments is the networks and the optimiser
    alone, and a run that is resumed there goes on bit by bit as if it had not stopped, on any environment that
    follows from its reset's seed. Episodes under way at the end of a segment are cut off and bootstrap.

    Args:
        settings: of the class `Settings`.
        seed: in [0, 2^64).

    Raises:
        ValueError: the environment cannot be made, or its spaces do not fit.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[AgentSettings]]

    def __init__(self, settings: Any, seed: int) -> None:
        self.settings, self.seed = settings, seed
        probe = make_envs(settings.env, 1)
        self.spaces = Spaces.of(probe, settings.env)
        probe.close()
        generator = torch.Generator().manual_seed(int(self.random(WEIGHTS, 0).integers(1 << 62)))
        self.network = ActorCritic(
            self.spaces.inputs,
            self.spaces.actions,
            settings.hidden,
            parse_head(settings.head),
            settings.learn,
            settings.score_offset,
            generator,
        )
        apart = list(self.network.module.parameters())
        networks = self.network.actor.parameters(), self.network.critic.parameters()
        self.optimiser = FlatAdam(networks, settings.adam_eps, apart, settings.head_rate)
        self.remedies = Remedies(self.network, settings)
        self.actor = NumpyActor(self.network)
        self.segment, self.step = 0, 0
        self.curve: list[dict[str, float]] = []

    def update(self, player: Player, random: np.random.Generator) -> tuple[int, list[float]]:
        """Play and learn once.

        Returns:
            The steps that were learned from, and the returns of the episodes that ended.
        """
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        """Every segment has been played."""
        return self.segment >= self.settings.points

    @property
    def left(self) -> float:
        """Share of the steps still to come, in [0, 1]."""
        return max(0.0, 1.0 - self.step / self.settings.steps)

    @property
    def learning_rate(self) -> float:
        """Learning rate now."""
        return float(self.settings.learning_rate * (self.left if self.settings.anneal else 1.0))

    def play_segment(self, report: Callable[[int], None] | None = None) -> dict[str, float]:
        """Play one segment and add its row to the learning curve.

        Args:
            report: called with the steps done so far, after every update; what it raises ends the run there.

        Returns:
            The row: step, episodes that ended in the segment, their mean return (nan without any) and that of the
            sampled evaluation (nan if the settings leave it out). Where the head learns, also `Remedies.learned`.
        """
        settings = self.settings
        random = self.random(TRAINING, self.segment)
        envs = make_envs(settings.env, settings.envs)
        player = Player(envs, self.spaces, int(random.integers(1 << 31)))
        until = settings.steps * (self.segment + 1) / settings.points
        returns: list[float] = []
        self.remedies.begin()
        while self.step < until:
            steps, ended = self.update(player, random)
            self.step += steps
            returns += ended
            if report is not None:
                report(self.step)
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
        """Returns of whole episodes, float64 [episodes]; the same for the same arguments and weights."""
        random = self.random(purpose, number)
        return evaluate(self.actor, self.settings.env, episodes, random, deterministic=deterministic)

    def state(self) -> dict[str, Any]:
        """Everything that `load` needs, between two segments."""
        return {
            "optimiser": self.optimiser.state(),
            "segment": self.segment,
            "step": self.step,
            "curve": [dict(row) for row in self.curve],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a `state` of a run of the same settings and seed."""
        self.optimiser.load(state["optimiser"])
        self.segment, self.step = state["segment"], state["step"]
        self.remedies.resume(self.step)
        self.curve = [dict(row) for row in state["curve"]]

    def random(self, purpose: int, number: int) -> np.random.Generator:
        """The generator of one purpose."""
        return np.random.Generator(np.random.Philox(key=np.array([self.seed, purpose << 32 | number], dtype=np.uint64)))

    def values(self, rollout: Rollout) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """V(s_t) and V of what followed before any reset, float32 [T, N] each."""
        shape = rollout.observations.shape
        rows = np.concatenate([rollout.observations.reshape(-1, shape[-1]), rollout.finals])
        with torch.inference_mode():
            values = self.network.values(torch.from_numpy(rows)).numpy()
        within = values[: shape[0] * shape[1]].reshape(shape[:2])
        return within[:-1], rollout.next_values(within, values[shape[0] * shape[1] :])


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
