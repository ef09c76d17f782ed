"""Actor and critic: two small tanh networks, and a head between the action scores and the policy."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stau_rl.agents.policy_gradient.finite import require_finite
from stau_rl.heads import Escort, Head, SigmoidNorm, Softmax, SoftplusNorm, STau
from stau_rl.heads.normalise import normalise_log
from stau_rl.nn.learned import LearnedHead

# log f is finite wherever the scores are, so that torch's own log_softmax of it gives the log-weights.
FINITE = (Softmax, STau, SoftplusNorm, SigmoidNorm)
FLOOR = -1e4


class ActorCritic(nn.Module):
    """Scores of the actions and the value of an observation, from separate networks.

    Weights start orthogonal (gain sqrt 2 in hidden layers, 0.01 for the scores, 1 for the value), drawn from the
    caller's generator.

    Args:
        inputs: size of an observation.
        actions: number of actions.
        hidden: widths of the tanh layers of each network.
        head: turns scores into probabilities; a head that may abstain is normalised over the actions, and where it
            gives none of them a weight they are equally likely.
        learn: names of the head's parameters that are learned.
        score_offset: initial bias of the scores.
        generator: gives the initial weights.
    """

    def __init__(
        self,
        inputs: int,
        actions: int,
        hidden: Sequence[int],
        head: Head,
        learn: tuple[str, ...],
        score_offset: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.actor = _mlp((inputs, *hidden, actions), 0.01, generator)
        self.critic = _mlp((inputs, *hidden, 1), 1.0, generator)
        with torch.no_grad():
            self.actor[-1].bias.fill_(score_offset)  # type: ignore[operator]
        self.module = LearnedHead(head, learn)

    @property
    def head(self) -> Head:
        """The head as it is now; learned parameters are tensors that gradients reach."""
        return self.module.bound_head()

    def log_policy(self, observations: Tensor) -> Tensor:
        """Log-probabilities of the actions: [B, inputs] to [B, actions]; -inf where a head gives weight 0."""
        return log_probabilities(self.head, self.actor(observations))

    def values(self, observations: Tensor) -> Tensor:
        """Values: [B, inputs] to [B]."""
        return self.critic(observations).squeeze(-1)


def log_probabilities(head: Head, scores: Tensor) -> Tensor:
    """Log-weights of a head, normalised over the last axis; a row whose weights are all 0 is uniform."""
    if isinstance(head, FINITE):
        return torch.log_softmax(head.log_f(scores), -1)
    log_weights = head.unchecked_log_weights(scores)
    return log_weights if head.mass_kind == "simplex" else normalise_log(log_weights)


def entropies(log_policy: Tensor) -> Tensor:
    """Entropy of each row of log-probabilities [B, actions], in nats; impossible actions count 0."""
    return -(log_policy.exp() * log_policy.clamp(min=FLOOR)).sum(-1)


class NumpyActor:
    """The actor on numpy arrays: on a rollout's few rows at a time torch's overhead costs more than the arithmetic.

    It sees the memory of a network on the CPU, so it follows every update without a copy; of one elsewhere it has one.

    Args:
        network: the actor-critic, in float32.
    """

    def __init__(self, network: ActorCritic) -> None:
        self._followed: ActorCritic | None = None
        if acts_on_a_copy(network):
            self._followed, network = network, deepcopy(network).cpu()
        self._network = network
        linear = [layer for layer in network.actor if isinstance(layer, nn.Linear)]
        self._layers = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in linear]
        # A learned head changes with every update, and is asked anew.
        self._weigh = (
            (lambda scores: _by_torch(network.head, scores)) if network.module.learn else numpy_weights(network.head)
        )

    def follow(self) -> None:
        """Act as the network is now."""
        if self._followed is not None:
            self._network.load_state_dict(self._followed.state_dict())

    @np.errstate(over="ignore", invalid="ignore")
    def weights(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """Unnormalised probabilities: [N, inputs] to [N, actions].

        Raises:
            NonFiniteError: one is not finite.
        """
        x = observations
        for weight, bias in self._layers[:-1]:
            x = x @ weight
            x += bias
            np.tanh(x, out=x)
        weight, bias = self._layers[-1]
        found = self._weigh(x @ weight + bias)
        require_finite("action probability", found)
        return found

    def sample(self, observations: NDArray[np.float32], uniforms: NDArray[np.float32]) -> NDArray[np.int64]:
        """Actions by inverse CDF: the first k with cdf_k > u total; never one of weight 0.

        Args:
            observations: [N, inputs].
            uniforms: [N] in [0, 1).
        """
        cdf = self.weights(observations).cumsum(1)
        total = cdf[:, -1]
        # u < 1, but u total may round up to total: then the last action with a weight is meant.
        target = np.minimum(uniforms * total, np.nextafter(total, np.float32(0)))
        return (cdf <= target[:, None]).sum(1)

    def best(self, observations: NDArray[np.float32]) -> NDArray[np.int64]:
        """The likeliest action of each row, the first of equals."""
        return self.weights(observations).argmax(1)


def acts_on_a_copy(network: nn.Module) -> bool:
    """Whether numpy cannot see a network's memory."""
    return any(parameter.device.type != "cpu" for parameter in network.parameters())


def numpy_weights(head: Head) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """A function from scores [N, actions] to weights, up to a factor per row; torch's where numpy has no form here."""
    if isinstance(head, Softmax):
        beta = np.float32(head.fixed(head.beta))
        return lambda scores: _exp(beta * scores)
    # Without the floor, softplus itself underflows below -103, where torch's logarithm of it does not.
    if isinstance(head, STau) and head.fixed(head.eps) >= np.finfo(np.float32).tiny:
        tau, eps = np.float32(head.fixed(head.tau)), np.float32(head.fixed(head.eps))
        return lambda scores: _exp(tau * np.log(np.logaddexp(np.float32(0), scores) + eps))
    if isinstance(head, Escort):
        p = float(head.fixed(head.p))
        return lambda scores: _power(np.abs(scores), p)
    return lambda scores: _by_torch(head, scores)


def _exp(log_f: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.exp(log_f - log_f.max(1, keepdims=True))


def _power(size: NDArray[np.float32], p: float) -> NDArray[np.float32]:
    top = size.max(1, keepdims=True)
    return np.where(top > 0, (size / np.where(top > 0, top, 1)) ** p, 1).astype(np.float32)


def _by_torch(head: Head, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    with torch.inference_mode():
        return log_probabilities(head, torch.from_numpy(scores)).exp().numpy()


def _mlp(sizes: Sequence[int], last_gain: float, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(sizes)):
        last = number == len(sizes) - 2
        # Left uninitialised at first: its own initialisation would draw from torch's global generator.
        layer: Any = nn.utils.skip_init(nn.Linear, before, after)
        nn.init.orthogonal_(layer.weight, last_gain if last else 2**0.5, generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, nn.Tanh()]
    return nn.Sequential(*layers)
