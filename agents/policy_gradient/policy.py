"""A trained policy on its own: what it takes to act, and nothing of the training."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.agents.policy_gradient.environments import Floats, Spaces, env_text
from stau_rl.agents.policy_gradient.finite import NonFiniteError
from stau_rl.agents.policy_gradient.networks import ActorCritic, NumpyActor
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.agents.policy_gradient.rollout import evaluate
from stau_rl.agents.policy_gradient.run_keys import FINAL, keyed_random
from stau_rl.heads import parse_head

Weights = dict[str, Tensor]
"""Parameters by name, float32."""


def policy_spec(agent: Agent) -> dict[str, Any]:
    """What `Policy` needs to know of an agent beside its weights, JSON-able."""
    settings = agent.settings
    return {
        "agent": agent.name,
        "env": settings.env,
        "env_args": dict(settings.env_args),
        "head": settings.head,
        "learn": list(settings.learn),
        "hidden": list(settings.hidden),
        "spaces": {**asdict(agent.spaces), "shape": list(agent.spaces.shape)},
    }


def policy_weights(agent: Agent) -> Weights:
    """A copy of an agent's weights: actor, critic, and what the head has learned."""
    return {name: tensor.detach().cpu().clone() for name, tensor in agent.network.state_dict().items()}


class Policy:
    """A policy that was trained, and acts.

    Args:
        about: JSON-able, of `policy_spec`: environment, spaces, head and shape of the network.
        weights: of the network.
        seed: of the training; episodes of `evaluate` are those of that seed.

    Attributes:
        env: Gymnasium id.
        env_args: the environment's arguments by name.
        spaces: its sizes.

    Raises:
        ValueError: `about` has not what it takes, or the weights are those of another network.
    """

    def __init__(self, about: Mapping[str, Any], weights: Weights, seed: int = 0) -> None:
        self.about, self.seed = dict(about), seed
        try:
            self.spaces = Spaces(**{**about["spaces"], "shape": tuple(about["spaces"]["shape"])})
            self.env, self.env_args = str(about["env"]), dict(about["env_args"])
            hidden, head, learn = tuple(about["hidden"]), parse_head(about["head"]), tuple(about["learn"])
            sizes = self.spaces.inputs, self.spaces.actions
            self._network = ActorCritic(*sizes, hidden, head, learn, 0.0, torch.Generator().manual_seed(0))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no policy's description ({type(error).__name__}: {error})") from None
        shapes = {name: tuple(tensor.shape) for name, tensor in self._network.state_dict().items()}
        if {name: tuple(getattr(tensor, "shape", ())) for name, tensor in weights.items()} != shapes:
            raise ValueError(f"these weights are not those of a network with hidden={list(hidden)}")
        self._network.load_state_dict(weights)
        self._actor = NumpyActor(self._network)
        self._random = np.random.default_rng(seed)

    def __repr__(self) -> str:
        """What acts, and where."""
        return f"Policy({self.title}, seed {self.seed})"

    @property
    def title(self) -> str:
        """Agent, environment and head."""
        return f"{self.about['agent']} on {env_text(self.env, self.env_args)}, {self.head}"

    @property
    def head(self) -> str:
        """The head, and the values that were learned."""
        module = self._network.module
        with torch.no_grad():
            learned = [f"{name}={float(module.value(name)):.4g}" for name in module.learn]
        return " ".join([self.about["head"], *(["with learned", ", ".join(learned)] if learned else [])])

    def probabilities(self, observation: Any) -> NDArray[np.float64]:
        """Probability of every action.

        Args:
            observation: of the environment's space, or a batch of N.

        Returns:
            float64 [actions], or [N, actions].

        Raises:
            ValueError: the observation has another shape, or a number that is not finite.
        """
        rows, single = self._rows(observation)
        weights = self._actor.weights(rows).astype(np.float64)
        found = weights / weights.sum(1, keepdims=True)
        return found[0] if single else found

    def act(self, observation: Any, *, greedy: bool = False, random: np.random.Generator | None = None) -> Any:
        """An action, for the environment's `step`.

        Args:
            observation: of the environment's space, or a batch of N.
            greedy: take the likeliest action, the first of equals, instead of a sample.
            random: gives the samples; the policy's own generator by default, which begins anew with each policy.

        Returns:
            An int, or int64 [N].

        Raises:
            ValueError: as `probabilities`.
        """
        rows, single = self._rows(observation)
        if greedy:
            chosen = self._actor.best(rows)
        else:
            uniforms = (self._random if random is None else random).random(len(rows), dtype=np.float32)
            chosen = self._actor.sample(rows, uniforms)
        chosen = chosen + self.spaces.first_action
        return int(chosen[0]) if single else chosen

    def evaluate(self, episodes: int = 100, *, greedy: bool = False, number: int = 0) -> NDArray[np.float64]:
        """Undiscounted returns of whole episodes.

        Args:
            episodes: how many.
            greedy: take the likeliest action instead of a sample.
            number: of the evaluation; 0 has the environments' seeds and samples of the training's last evaluation.

        Returns:
            float64 [episodes].

        Raises:
            ValueError: the environment cannot be made, or `episodes` is less than 1.
            NonFiniteError: an observation, a reward or the weight of an action is not finite.
        """
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes!r}")
        random = keyed_random(self.seed, FINAL, number)
        try:
            return evaluate(self._actor, self.env, episodes, random, deterministic=greedy, env_args=self.env_args)
        except NonFiniteError as error:
            raise error.at(self.env, 0, f"{self.about['agent']}, seed {self.seed}", "evaluation") from None

    def _rows(self, observation: Any) -> tuple[Floats, bool]:
        """Observations as rows, and whether it is one alone."""
        shape, found = self.spaces.shape, np.asarray(observation)
        single = found.shape == shape
        if not single and found.shape[1:] != shape:
            raise ValueError(
                f"observation must have the shape {shape}, or [N, ...] of it, got {found.shape} for {self.env}"
            )
        batch = found[None] if single else found
        try:
            if self.spaces.one_hot and not np.isin(batch - self.spaces.first_state, range(self.spaces.inputs)).all():
                first, count = self.spaces.first_state, self.spaces.inputs
                raise ValueError(f"observation must be a state in {first}..{first + count - 1}, got {observation}")
            return self.spaces.rows(batch), single
        except NonFiniteError as error:
            raise ValueError(f"observation has the number {error.value:g}, which is not finite in float32") from None
