"""Small attention models, many at once: embedding, one or more attention layers, unembedding.

The defaults are those of a one-head, one-layer recall probe without an MLP. Every parameter has a leading axis of
models, so one forward and one backward pass train all seeds and normalisers side by side; model m depends on its own
seed, spec and batch alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu

from stau_rl.agents.attention.attention import Attended
from stau_rl.agents.attention.attention_normalisers import NormaliserGroup, shape_of
from stau_rl.agents.attention.attention_spec import AttentionSpec

NORM_EPS = 1e-6
POSITIONS = ("learned", "none", "rotary")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The shape of a model and how it starts.

    Attributes:
        vocabulary: number of tokens.
        length: positions that have an embedding, where they are learned.
        dim: width D of the residual stream.
        heads: attention heads per layer, each of width D / heads.
        layers: attention layers.
        mlp: width of the MLP after each attention layer, as a multiple of D; 0 for none.
        positions: `learned` embeddings, `none`, or `rotary` queries and keys.
        own_key: a query may look at its own position.
        embedding_std: standard deviation of the token embeddings at the start.
        position_std: that of the position embeddings.
        output_scale: factor of the output projection's start.
    """

    vocabulary: int
    length: int
    dim: int = 64
    heads: int = 1
    layers: int = 1
    mlp: int = 0
    positions: str = "learned"
    own_key: bool = True
    embedding_std: float = 0.5
    position_std: float = 0.02
    output_scale: float = 0.5

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("vocabulary", "length", "dim", "heads", "layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"model: {name} must be at least 1, got {getattr(self, name)}")
        if self.dim % self.heads:
            raise ValueError(f"model: dim must be a multiple of heads, got dim={self.dim}, heads={self.heads}")
        if self.mlp < 0:
            raise ValueError(f"model: mlp must be at least 0, got {self.mlp}")
        if self.positions not in POSITIONS:
            raise ValueError(f"model: positions must be one of {', '.join(POSITIONS)}, got {self.positions!r}")
        if self.positions == "rotary" and self.dim // self.heads % 2:
            raise ValueError(f"model: rotary positions need an even width per head, got {self.dim // self.heads}")


class AttentionModels(nn.Module):
    """M models of one shape, each with its own seed and attention spec.

    To train them, minimise the sum of their losses: each model's gradient is then that of its own loss.

    Args:
        settings: their shape.
        specs: one per model; neighbours that differ in numbers alone are computed together.
        seeds: one per model. Models of equal seed start from equal weights, whatever their specs and company.

    Raises:
        ValueError: specs and seeds do not match in number, or there are none.
    """

    def __init__(self, settings: ModelSettings, specs: Sequence[AttentionSpec], seeds: Sequence[int]) -> None:
        super().__init__()
        if not specs or len(specs) != len(seeds):
            raise ValueError(f"models need as many specs as seeds, at least one; got {len(specs)} and {len(seeds)}")
        self.settings, self.specs, self.seeds = settings, tuple(specs), tuple(seeds)
        starts = [_start(settings, seed) for seed in seeds]
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.stack([start[name] for start in starts])) for name in starts[0]}
        )
        groups = [list(group) for _, group in groupby(specs, key=shape_of)]
        self.normalisers = nn.ModuleList(
            nn.ModuleList(NormaliserGroup(group, settings.heads) for group in groups) for _ in range(settings.layers)
        )

    def forward(
        self, tokens: Tensor, queries: Tensor | None = None, padding: Tensor | None = None, calibrate: bool = False
    ) -> tuple[Tensor, list[Attended]]:
        """Logits of some positions, and what each layer's attention did.

        Args:
            tokens: int64 [batch, length], the same for all models, or [models, batch, length].
            queries: positions whose logits are wanted, int64 [queries]; None for all.
            padding: boolean, True where a token counts, in the shape of `tokens`; or None.
            calibrate: let this batch set what the specs say it sets, before it is used.

        Returns:
            Logits [models, batch, queries, vocabulary], and a list with an `Attended` per layer, of tensors [models,
            batch, heads, queries, keys]. The last layer sees the queries wanted, the others all positions.

        Raises:
            ValueError: a token is outside the vocabulary, or there are more tokens than learned positions.
        """
        models, length = len(self.specs), tokens.shape[-1]
        # Beyond the vocabulary lie the embeddings of the next model.
        if not torch.compiler.is_compiling() and bool(((tokens < 0) | (tokens >= self.settings.vocabulary)).any()):
            raise ValueError(
                f"tokens must lie in [0, {self.settings.vocabulary}), got {int(tokens.min())} to {int(tokens.max())}"
            )
        w, each = self.weights, tokens.expand(models, *tokens.shape[-2:])
        offsets = self.settings.vocabulary * torch.arange(models, device=tokens.device)[:, None, None]
        x = embedding(each + offsets, w["embedding"].flatten(0, 1))
        if self.settings.positions == "learned":
            if length > self.settings.length:
                raise ValueError(f"{length} tokens, but learned positions reach {self.settings.length}")
            x = x + w["position"][:, None, :length]
        places = torch.arange(length, device=tokens.device)
        if padding is not None:
            padding = padding.expand(models, *tokens.shape[-2:]) if padding.ndim == 3 else padding[None]
        layers = []
        for layer in range(self.settings.layers):
            last = queries is not None and layer == self.settings.layers - 1
            wanted = queries if last and queries is not None else places
            attended = self._attend(x, layer, wanted, padding, calibrate)
            layers.append(attended)
            mixed = attended.output.transpose(2, 3).flatten(3)
            x = x[:, :, wanted] + _project(mixed, w[f"output_{layer}"])
            if self.settings.mlp:
                hidden = gelu(_project(rms_norm(x, w[f"mlp_gain_{layer}"]), w[f"mlp_in_{layer}"]))
                x = x + _project(hidden, w[f"mlp_out_{layer}"])
        return _project(rms_norm(x, w["final_gain"]), w["unembedding"]), layers

    def _attend(self, x: Tensor, layer: int, wanted: Tensor, padding: Tensor | None, calibrate: bool) -> Attended:
        w, heads = self.weights, self.settings.heads
        places = torch.arange(x.shape[2], device=x.device)
        normed = rms_norm(x, w[f"gain_{layer}"])

        def split(part: Tensor, name: str) -> Tensor:
            return _project(part, w[f"{name}_{layer}"]).unflatten(-1, (heads, -1)).transpose(2, 3)

        query, key, value = split(normed[:, :, wanted], "query"), split(normed, "key"), split(normed, "value")
        if self.settings.positions == "rotary":
            query, key = rotate(query, wanted), rotate(key, places)
        mask = places <= wanted[:, None] if self.settings.own_key else places < wanted[:, None]
        mask = mask[None, None, None]
        if padding is not None:
            mask = mask & padding[:, :, None, None, :]
        parts, first = [], 0
        for group in self._groups(layer):
            here = slice(first, first + group.models)
            seen = mask if mask.shape[0] == 1 else mask[here]
            part = group(query[here], key[here], value[here], seen)
            if calibrate:
                group.calibrate(part)
                part = group(query[here], key[here], value[here], seen)
            parts.append(part)
            first += group.models
        if len(parts) == 1:
            return parts[0]
        return Attended(
            torch.cat([part.output for part in parts]),
            torch.cat([part.weights for part in parts]),
            torch.cat([part.mass for part in parts]),
            torch.cat([part.scores for part in parts]),
            mask,
        )

    def _groups(self, layer: int) -> list[NormaliserGroup]:
        return [group for group in self.normalisers[layer].children() if isinstance(group, NormaliserGroup)]

    @torch.no_grad()
    def calibrate(self, tokens: Tensor, queries: Tensor | None = None, padding: Tensor | None = None) -> None:
        """Let a batch set what the specs say the first batch sets; arguments as in `forward`."""
        self.forward(tokens, queries, padding, calibrate=True)

    def learned(self) -> list[dict[str, Tensor]]:
        """Values of the normalisers' tensors by layer: `threshold` and the like, [models, heads], NaN for others."""
        answer = []
        for layer in range(self.settings.layers):
            values: dict[str, Tensor] = {}
            first = 0
            for group in self._groups(layer):
                for name, value in group.values().items():
                    rows = values.setdefault(name, value.new_full((len(self.specs), self.settings.heads), torch.nan))
                    rows[first : first + group.models] = value.detach()
                first += group.models
            answer.append(values)
        return answer


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean x^2 + eps) times a gain [models, dim]."""
    return x * (x.square().mean(-1, keepdim=True) + NORM_EPS).rsqrt() * gain[:, None, None]


def rotate(x: Tensor, places: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary positions: pairs (i, i + d/2) of [..., length, d] turned by place / base^(2 i / d)."""
    half = x.shape[-1] // 2
    rates = base ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = places[:, None].to(x.dtype) * rates
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


def _project(x: Tensor, weight: Tensor) -> Tensor:
    """[models, batch, length, in] times [models, in, out]: one product per model."""
    return (x.flatten(1, 2) @ weight).unflatten(1, x.shape[1:3])


def _start(settings: ModelSettings, seed: int) -> dict[str, Tensor]:
    """The first weights of one model, drawn in a fixed order from its own generator."""
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, std: float) -> Tensor:
        return std * torch.randn(rows, columns, generator=generator)

    dim, inner = settings.dim, settings.mlp * settings.dim
    start = {"embedding": normal(settings.vocabulary, dim, settings.embedding_std)}
    if settings.positions == "learned":
        start["position"] = normal(settings.length, dim, settings.position_std)
    for layer in range(settings.layers):
        start[f"gain_{layer}"] = torch.ones(dim)
        for name in ("query", "key", "value", "output"):
            scale = settings.output_scale if name == "output" else 1.0
            start[f"{name}_{layer}"] = normal(dim, dim, scale * dim**-0.5)
        if inner:
            start[f"mlp_gain_{layer}"] = torch.ones(dim)
            start[f"mlp_in_{layer}"] = normal(dim, inner, dim**-0.5)
            start[f"mlp_out_{layer}"] = normal(inner, dim, settings.output_scale * inner**-0.5)
    start["final_gain"] = torch.ones(dim)
    start["unembedding"] = normal(dim, settings.vocabulary, dim**-0.5)
    return start
