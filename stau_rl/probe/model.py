"""The models of a probe: every normaliser with every seed, asked the items of a task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from stau_rl.agents.attention.attention import Attended
from stau_rl.agents.attention.attention_model import AttentionModels, ModelSettings
from stau_rl.agents.attention.attention_spec import AttentionSpec
from stau_rl.envs.tasks.task import Batch, Task

TWIN = 0.9
"""Correlation at the start between the embedding of a token and that of its twin."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a probe chooses of its models' shape; the rest follows from the task.

    Attributes:
        width: D.
        layers: attention layers.
        positions: `learned` embeddings, `rotary` queries and keys, or `none`: without positions one causal layer sees
            no order but that of smoothed or convolved keys.
        heads: attention heads per layer, each of width D / heads.

    Raises:
        ValueError: a number is out of its range, or the width is no multiple of the heads.
    """

    width: int = 64
    layers: int = 1
    positions: str = "learned"
    heads: int = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("width", "layers", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got width={self.width}, heads={self.heads}")

    def settings(self, task: Task) -> ModelSettings:
        """The whole shape of models for a task."""
        return ModelSettings(
            vocabulary=task.vocabulary,
            length=task.length,
            dim=self.width,
            heads=self.heads,
            layers=self.layers,
            positions=self.positions,
            own_key=task.attends_itself,
        )


class ProbeModels:
    """Models of some normalisers and seeds; a model's start depends on its seed alone.

    Args:
        task: the task.
        specs: G normalisers.
        seeds: S of them; there are G x S models, seeds running fastest.
        shape: what is chosen of the architecture.
        device: where the parameters live.

    Attributes:
        models: the G x S models.
        seed_column: the seeds, int64 [S, 1], on the device.
    """

    def __init__(
        self, task: Task, specs: Sequence[AttentionSpec], seeds: Sequence[int], shape: Shape, device: torch.device
    ) -> None:
        self.task, self.specs, self.seeds, self.device = task, tuple(specs), tuple(seeds), device
        each = [spec for spec in specs for _ in seeds]
        self.models = AttentionModels(shape.settings(task), each, [*seeds] * len(specs))
        if task.twins:
            _start_near(self.models.weights["embedding"], *task.twins)
        self.models.to(device)
        self.seed_column = torch.tensor(seeds, device=device)[:, None]

    def trained(self) -> list[Tensor]:
        """Every trained tensor."""
        return [part for part in self.models.parameters() if part.requires_grad]

    def learned_texts(self) -> list[str]:
        """What every model's normalisers hold that is not in their text, such as `threshold=0.05`: one per model.

        Of several heads every value is there, blanks between them, layer after layer.
        """
        texts = [""] * len(self.models.specs)
        for layer in range(self.models.settings.layers):
            for group, here in self.models.groups(layer):
                for name, values in group.values().items():
                    for model, row in enumerate(values.tolist(), here.start):
                        shown = " ".join(f"{value:.4g}" for value in row)
                        texts[model] += f"{', ' if texts[model] else ''}{name}={shown}"
        return texts

    def forward(self, batch: Batch) -> tuple[Tensor, Attended]:
        """Logits of every query, and what the last layer's attention did, in the mean over its heads.

        The last layer is the one that writes the answer; a row of a layer of several heads is the mean of their rows,
        its mass the mean of their masses. Whether the answer is right (`decoded`) depends on no such choice.

        Args:
            batch: items [S, B, ...].

        Returns:
            Logits [G S, B, q, vocabulary], and attention: tensors [G S, B, q, ...].
        """
        # A task's tokens are inside its vocabulary.
        logits, layers = self.models(*self._asked(batch), checked=False)
        last = layers[-1]
        if self.models.settings.heads == 1:
            return logits, Attended(*(getattr(last, part.name)[:, :, 0] for part in fields(last)))
        # No loss is a function of these means.
        output, weights, mass, scores = (
            part.detach().mean(2) for part in (last.output, last.weights, last.mass, last.scores)
        )
        return logits, Attended(output, weights, mass, scores, last.mask[:, :, 0])

    def calibrate(self, batch: Batch) -> None:
        """Set what the specs say the first batch sets, by items [S, B, ...]."""
        self.models.calibrate(*self._asked(batch))

    def _asked(self, batch: Batch) -> list[Tensor]:
        """Tokens, queries, presence and loudness, each [G S, B, ...]: all normalisers of a seed get the same."""
        parts = (batch.tokens, batch.query, batch.present, batch.loudness)
        return [part.repeat(len(self.specs), 1, 1) for part in parts]


@torch.no_grad()
def _start_near(table: Tensor, twins: range, originals: range) -> None:
    """Move the embeddings [models, vocabulary, D] of twins towards those of their originals."""
    moved, kept = (slice(part.start, part.stop) for part in (twins, originals))
    table[:, moved] = TWIN * table[:, kept] + math.sqrt(1 - TWIN**2) * table[:, moved]
