"""Many small attention models at once: one set of parameters per seed and normaliser, one pass for all of them.

The architecture of every model, D wide: x = RMSNorm(embedding + learned positions, if any), then layers of
x + attention(x) with one head, RMSNorm between the layers and before an unembedding of its own. No multi-layer
perceptron.

Where plain scores are asked for, q W_k^T is multiplied with the inputs instead of projecting every key, W_v is applied
to the mixed inputs, and the scores are smoothed in place of the keys: the same numbers, as all of it is linear, at a
fraction of the work where one place asks.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import embedding

from stau_rl.agents.attention.attention import Attended
from stau_rl.agents.attention.attention_normalisers import NormaliserGroup, shape_of
from stau_rl.agents.attention.attention_spec import AttentionSpec
from stau_rl.agents.attention.key_smoothing import smooth_keys
from stau_rl.envs.tasks.task import Batch, Task

EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Shape:
    """The architecture.

    Attributes:
        width: D.
        layers: attention layers.
        positions: learned positions; without them a causal head sees no order but that of smoothed keys.
    """

    width: int = 64
    layers: int = 1
    positions: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """What the last layer's attention did: scores, weights and mask [models, items, queries, places]; mass of rows."""

    scores: Tensor
    weights: Tensor
    mass: Tensor
    mask: Tensor


class ProbeModels:
    """Models of some normalisers and seeds; a model's start depends on its seed alone.

    Args:
        task: the task.
        specs: G normalisers.
        seeds: S of them; there are G x S models, seeds running fastest.
        shape: the architecture.
        device: where the parameters live.

    Attributes:
        parameters: tensors by name, each [G S, ...].
        seed_column: the seeds, int64 [S, 1], on the device.
        groups: of every layer, the normalisers of consecutive models of one form.
    """

    def __init__(
        self, task: Task, specs: Sequence[AttentionSpec], seeds: Sequence[int], shape: Shape, device: torch.device
    ) -> None:
        self.task, self.specs, self.seeds, self.shape, self.device = task, specs, seeds, shape, device
        starts = [_start(task, seed, shape) for seed in seeds]
        self.parameters: dict[str, Tensor] = {}
        for name, first in starts[0].items():
            stacked = torch.stack([start[name] for start in starts]).repeat(len(specs), *[1] * first.dim())
            self.parameters[name] = stacked.to(device).requires_grad_()
        each = [spec for spec in specs for _ in seeds]
        self.groups = [
            [NormaliserGroup(list(same), 1).to(device) for _, same in groupby(each, shape_of)]
            for _ in range(shape.layers)
        ]
        self.seed_column = torch.tensor(seeds, device=device)[:, None]
        self._first = torch.arange(len(each), device=device) * task.vocabulary

    def trained(self) -> list[Tensor]:
        """Every trained tensor."""
        normalisers = [value for layer in self.groups for group in layer for value in group.learned.values()]
        return [*self.parameters.values(), *normalisers]

    def learned_texts(self) -> list[str]:
        """What every model's normalisers hold that is not in their text, such as `threshold=0.05`: one per model."""
        texts = [""] * (len(self.specs) * len(self.seeds))
        for layer in self.groups:
            start = 0
            for group in layer:
                for name, values in group.values().items():
                    for model, value in enumerate(values.flatten().tolist(), start):
                        texts[model] += f"{', ' if texts[model] else ''}{name}={value:.4g}"
                start += group.models
        return texts

    def forward(self, batch: Batch) -> tuple[Tensor, Seen]:
        """Logits of every query, and what the last layer's attention did.

        Args:
            batch: items [S, B, ...].

        Returns:
            Logits [G S, B, q, vocabulary], and the attention.
        """
        weights = self.parameters
        tokens, present, query, loud = (
            part.repeat(len(self.specs), 1, 1) for part in (batch.tokens, batch.present, batch.query, batch.loudness)
        )
        x = embedding(tokens + self._first[:, None, None], weights["embedding"].flatten(0, 1))
        if self.shape.positions:
            x = x + weights["positions"][:, None, : tokens.shape[-1]]
        x = _rms_norm(x, weights["gain_0"])
        place = torch.arange(tokens.shape[-1], device=x.device)
        for layer in range(self.shape.layers):
            # The first layer's input is normalised already, and so is what its output is added to.
            # Padding is a zero to the smoothing of keys.
            inputs = (_rms_norm(x, weights[f"gain_{layer}"]) if layer else x) * (loud * present)[..., None]
            asking, places = inputs, place.expand_as(tokens)
            if layer == self.shape.layers - 1:
                rows = query[..., None].expand(*query.shape, x.shape[-1])
                asking, x, places = inputs.gather(2, rows), x.gather(2, rows), query
            limit = places[..., None] if self.task.attends_itself else places[..., None] - 1
            added, seen = self._attend(layer, asking, inputs, present[..., None, :] & (place <= limit))
            x = x + added
        return _project(_rms_norm(x, weights["gain_out"]), weights["unembedding"]), seen

    def _attend(self, layer: int, asking: Tensor, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Seen]:
        """Attention of `asking` [M, B, q, D] over `inputs` [M, B, n, D]."""
        maps = {name: self.parameters[f"{name}_{layer}"] for name in ("query", "key", "value", "out")}
        queries = _project(asking, maps["query"])
        found, start = [], 0
        for group in self.groups[layer]:
            mine = slice(start, start + group.models)
            start += group.models
            part = {name: value[mine] for name, value in maps.items()}
            step = _plain_step if (group.spec.scores, group.spec.output) == ("dot", "plain") else _full_step
            found.append(step(group, queries[mine], inputs[mine], mask[mine], part))
        mixed, scores, weights, mass = (torch.cat(parts) for parts in zip(*found, strict=True))
        return _project(mixed, maps["out"]), Seen(scores, weights, mass, mask)


def _plain_step(
    group: NormaliserGroup, queries: Tensor, inputs: Tensor, mask: Tensor, maps: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    """Mixed values, scores, weights, mass of one group, without projecting keys and values."""
    scores = _project(queries, maps["key"].mT) @ inputs.mT / math.sqrt(queries.shape[-1])
    if group.spec.fir_taps:
        scores = smooth_keys(scores.mT, group.taps[:, None]).mT
    bound = {name: value[:, None, :, None] for name, value in group.values().items()}
    head = group.spec.head.bind(**bound) if bound else group.spec.head
    weights = head.unchecked_log_weights(scores, -1, mask).exp()
    return _project(weights @ inputs, maps["value"]), scores, weights, weights.sum(-1)


def _full_step(
    group: NormaliserGroup, queries: Tensor, inputs: Tensor, mask: Tensor, maps: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    """The same by the definition, for scores and outputs that are not linear in the keys and values."""
    keys, values = (_project(inputs, maps[name]) for name in ("key", "value"))
    done: Attended = group(*(part[:, :, None] for part in (queries, keys, values, mask)))
    return tuple(part[:, :, 0] for part in (done.output, done.scores, done.weights, done.mass))


def _start(task: Task, seed: int, shape: Shape) -> dict[str, Tensor]:
    """The parameters that a seed starts from."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int, deviation: float) -> Tensor:
        return torch.randn(*size, generator=generator) * deviation

    d = shape.width
    unit = d**-0.5
    start = {"embedding": normal(task.vocabulary, d, deviation=0.5)}
    if task.twins:
        # A twin starts near its original: correlation 0.9.
        twins, originals = (slice(part.start, part.stop) for part in task.twins)
        table = start["embedding"]
        table[twins] = 0.9 * table[originals] + math.sqrt(1 - 0.9**2) * table[twins]
    if shape.positions:
        start["positions"] = normal(task.length, d, deviation=0.02)
    for layer in range(shape.layers):
        for name in ("query", "key", "value"):
            start[f"{name}_{layer}"] = normal(d, d, deviation=unit)
        start[f"out_{layer}"] = normal(d, d, deviation=0.5 * unit)
        start[f"gain_{layer}"] = torch.ones(d)
    start["gain_out"] = torch.ones(d)
    start["unembedding"] = normal(d, task.vocabulary, deviation=unit)
    return start


def _project(x: Tensor, maps: Tensor) -> Tensor:
    """x [M, B, q, D] times one matrix per model [M, D, E]."""
    return torch.bmm(x.flatten(1, 2), maps).unflatten(1, x.shape[1:3])


def _rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean x^2) gain, one gain per model."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * gain[:, None, None]
