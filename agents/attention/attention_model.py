"""Small attention models, many at once: embedding, one or more attention layers, unembedding.

These are the models that `stau-rl probe` trains. Every parameter has a leading axis of models, so one forward and one
backward pass train all seeds and normalisers side by side; model m depends on its own seed, spec and batch alone.

A model of width D: x = RMSNorm(token embedding + position embedding), then for each layer x = x + attention(x), and, if
asked for, x = x + MLP(RMSNorm(x)). RMSNorm stands between the layers and before the unembedding, each with a gain.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu

from stau_rl.agents.attention.attention import Attended, root_mean_square_one
from stau_rl.agents.attention.attention_normalisers import NormaliserGroup, shape_of
from stau_rl.agents.attention.attention_spec import AttentionSpec
from stau_rl.agents.attention.key_smoothing import smooth_keys

POSITIONS = ("learned", "none", "rotary")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The shape of a model and how it starts; the defaults are those of the probe: one layer, one head, no MLP.

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

    Raises:
        ValueError: a number is out of its range, or they do not fit together.
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
        for name in ("embedding_std", "position_std", "output_scale"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"model: {name} must be finite and >= 0, got {getattr(self, name)}")
        if self.positions not in POSITIONS:
            raise ValueError(f"model: positions must be one of {', '.join(POSITIONS)}, got {self.positions!r}")
        if self.positions == "rotary" and self.dim // self.heads % 2:
            raise ValueError(f"model: rotary positions need an even width per head, got {self.dim // self.heads}")


class AttentionModels(nn.Module):
    """M models of one shape, each with its own seed and attention spec.

    To train them, minimise the sum of their losses: each model's gradient is then that of its own loss.

    >>> import torch
    >>> from stau_rl.agents.attention.attention_model import AttentionModels, ModelSettings
    >>> from stau_rl.agents.attention.attention_spec import parse_attention
    >>> specs = [parse_attention("softmax"), parse_attention("pn_fir_tau")]
    >>> models = AttentionModels(ModelSettings(vocabulary=64, length=17), specs, seeds=[0, 0])
    >>> logits, (layer,) = models(torch.zeros(5, 17, dtype=torch.int64), queries=torch.tensor([16]))
    >>> logits.shape, layer.weights.shape
    (torch.Size([2, 5, 1, 64]), torch.Size([2, 5, 1, 1, 17]))

    Args:
        settings: their shape.
        specs: one per model; neighbours that differ in numbers alone are computed together.
        seeds: one per model. Models of equal seed start from equal weights, whatever their specs and company.

    Attributes:
        weights: the trained tensors by name, float32 [models, ...].

    Raises:
        ValueError: specs and seeds do not match in number, or there are none.
    """

    def __init__(self, settings: ModelSettings, specs: Sequence[AttentionSpec], seeds: Sequence[int]) -> None:
        super().__init__()
        if not specs or len(specs) != len(seeds):
            raise ValueError(f"models need as many specs as seeds, at least one; got {len(specs)} and {len(seeds)}")
        self.settings, self.specs, self.seeds = settings, tuple(specs), tuple(seeds)
        starts = {seed: _start(settings, seed) for seed in seeds}
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.stack([starts[seed][name] for seed in seeds])) for name in starts[seeds[0]]}
        )
        groups = [list(group) for _, group in groupby(specs, key=shape_of)]
        self._normalisers = nn.ModuleList(
            nn.ModuleList(NormaliserGroup(group, settings.heads, settings.dim // settings.heads) for group in groups)
            for _ in range(settings.layers)
        )

    def forward(
        self,
        tokens: Tensor,
        queries: Tensor | None = None,
        present: Tensor | None = None,
        loudness: Tensor | None = None,
        *,
        calibrate: bool = False,
        checked: bool = True,
    ) -> tuple[Tensor, list[Attended]]:
        """Logits of some positions, and what each layer's attention did.

        Args:
            tokens: int64 [batch, length], the same for all models, or [models, batch, length].
            queries: positions whose logits are wanted, int64 [queries] or, for each item its own, [models, batch,
                queries]; None for all.
            present: boolean, False where a token is padding, in the shape of `tokens`; None where all count.
            loudness: float32, a factor on what attention reads at each position, in the shape of `tokens`; or None.
            calibrate: let this batch set what the specs say the first batch sets, layer by layer, before it is used.
            checked: look for tokens outside the vocabulary, for which a GPU has to be waited for. Where they are not
                looked for they must be inside: outside lie the embeddings of the next model.

        Returns:
            Logits [models, batch, queries, vocabulary], and a list with an `Attended` per layer, of tensors [models,
            batch, heads, queries, keys]. The last layer sees the queries wanted, the others all positions.

        Raises:
            ValueError: a token is outside the vocabulary, or there are more tokens than learned positions.
        """
        w, models = self.weights, len(self.specs)
        if checked and not torch.compiler.is_compiling():
            self._check(tokens)
        each = tokens.expand(models, *tokens.shape[-2:])
        x = rms_norm(self._embed(each), w["gain_0"])
        # Padding is a zero to the smoothing of keys.
        factor = present if loudness is None else loudness if present is None else loudness * present
        place = torch.arange(tokens.shape[-1], device=x.device)
        layers = []
        for layer in range(self.settings.layers):
            # The first layer's input is normalised already.
            inputs = rms_norm(x, w[f"gain_{layer}"]) if layer else x
            if factor is not None:
                inputs = inputs * factor[..., None]
            asking, wanted = inputs, place
            if queries is not None and layer == self.settings.layers - 1:
                rows = queries.expand(*each.shape[:2], -1)[..., None].expand(-1, -1, -1, x.shape[-1])
                asking, x, wanted = inputs.gather(2, rows), x.gather(2, rows), queries
            attended = self._attend(layer, asking, inputs, wanted, present, calibrate)
            layers.append(attended)
            x = x + project(attended.output.transpose(2, 3).flatten(3), w[f"output_{layer}"])
            if self.settings.mlp:
                hidden = gelu(project(rms_norm(x, w[f"mlp_gain_{layer}"]), w[f"mlp_in_{layer}"]))
                x = x + project(hidden, w[f"mlp_out_{layer}"])
        return project(rms_norm(x, w["final_gain"]), w["unembedding"]), layers

    def _check(self, tokens: Tensor) -> None:
        if bool(((tokens < 0) | (tokens >= self.settings.vocabulary)).any()):
            raise ValueError(
                f"tokens must lie in [0, {self.settings.vocabulary}), got {int(tokens.min())} to {int(tokens.max())}"
            )

    def _embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of tokens and positions, [models, batch, length, dim]."""
        length = tokens.shape[-1]
        first = self.settings.vocabulary * torch.arange(len(tokens), device=tokens.device)
        x = embedding(tokens + first[:, None, None], self.weights["embedding"].flatten(0, 1))
        if self.settings.positions != "learned":
            return x
        if length > self.settings.length:
            raise ValueError(f"{length} tokens, but learned positions reach {self.settings.length}")
        return x + self.weights["positions"][:, None, :length]

    def _attend(
        self, layer: int, asking: Tensor, inputs: Tensor, wanted: Tensor, present: Tensor | None, calibrate: bool
    ) -> Attended:
        """Attention of `asking` [models, batch, queries, dim] over `inputs` [models, batch, length, dim]."""
        place = torch.arange(inputs.shape[2], device=inputs.device)
        limit = wanted[..., None] if self.settings.own_key else wanted[..., None] - 1
        mask = place <= limit
        if present is not None:
            mask = present[..., None, :] & mask
        # The axes of models, batch and heads, where they are missing.
        mask = mask.unsqueeze(-3)[(None,) * (4 - mask.ndim)]
        maps = {name: self.weights[f"{name}_{layer}"] for name in ("query", "key", "value")}
        asked = project(asking, maps["query"])
        parts = []
        for group, here in self.groups(layer):
            own = {name: part[here] for name, part in maps.items()}
            seen = mask if mask.shape[0] == 1 else mask[here]
            places = wanted if wanted.ndim == 1 else wanted[here, :, None]
            part = self._step(group, asked[here], inputs[here], seen, places, own)
            if calibrate:
                group.calibrate(part)
                part = self._step(group, asked[here], inputs[here], seen, places, own)
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return Attended(
            torch.cat([part.output for part in parts]),
            torch.cat([part.weights for part in parts]),
            torch.cat([part.mass for part in parts]),
            torch.cat([part.scores for part in parts]),
            mask,
        )

    def _step(
        self,
        group: NormaliserGroup,
        asked: Tensor,
        inputs: Tensor,
        mask: Tensor,
        places: Tensor,
        maps: dict[str, Tensor],
    ) -> Attended:
        """One group's attention of projected queries [models, batch, queries, dim]."""
        heads, rotary = self.settings.heads, self.settings.positions == "rotary"
        plain = group.conv is None and (group.spec.scores, group.spec.output) == ("dot", "plain")
        if heads == 1 and not rotary and plain:
            return _without_projected_keys(group, asked, inputs, mask, maps)
        query, key, value = (
            part.unflatten(-1, (heads, -1)).transpose(2, 3)
            for part in (asked, project(inputs, maps["key"]), project(inputs, maps["value"]))
        )
        key = group.convolved(key)
        if rotary:
            query, key = rotate(query, places), rotate(key, torch.arange(key.shape[-2], device=key.device))
        return group(query, key, value, mask)

    def groups(self, layer: int) -> Iterator[tuple[NormaliserGroup, slice]]:
        """The normalisers of a layer: groups of neighbouring models, and which models they are."""
        first = 0
        for group in self._normalisers[layer].children():
            assert isinstance(group, NormaliserGroup)
            yield group, slice(first, first + group.models)
            first += group.models

    @torch.no_grad()
    def calibrate(
        self,
        tokens: Tensor,
        queries: Tensor | None = None,
        present: Tensor | None = None,
        loudness: Tensor | None = None,
    ) -> None:
        """Let a batch set what the specs say the first batch sets; arguments as in `forward`."""
        if any(spec.calibrate != "none" for spec in self.specs):
            self.forward(tokens, queries, present, loudness, calibrate=True)

    def learned(self) -> list[dict[str, Tensor]]:
        """Values of the normalisers' tensors by layer: `threshold` and the like, [models, heads], NaN for others."""
        answer = []
        for layer in range(self.settings.layers):
            values: dict[str, Tensor] = {}
            for group, here in self.groups(layer):
                for name, value in group.values().items():
                    rows = values.setdefault(name, value.new_full((len(self.specs), self.settings.heads), torch.nan))
                    rows[here] = value.detach()
            answer.append(values)
        return answer


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x [models, batch, length, dim] at root mean square 1 over its last axis, times a gain [models, dim]."""
    return root_mean_square_one(x) * gain[:, None, None]


def rotate(x: Tensor, places: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotary positions: pairs (i, i + d/2) of [..., length, d] turned by place / base^(2 i / d).

    Args:
        x: queries or keys, [..., length, d].
        places: positions, [..., length] with axes that broadcast against those of `x`.
        base: of the slowest turn.

    Source: Su et al., "RoFormer: Enhanced transformer with rotary position embedding", 2021.
    """
    half = x.shape[-1] // 2
    rates = base ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
    angles = places[..., None].to(x.dtype) * rates
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


def project(x: Tensor, maps: Tensor) -> Tensor:
    """x [models, batch, length, in] times one matrix per model [models, in, out]."""
    return torch.bmm(x.flatten(1, 2), maps).unflatten(1, x.shape[1:3])


def _without_projected_keys(
    group: NormaliserGroup, asked: Tensor, inputs: Tensor, mask: Tensor, maps: dict[str, Tensor]
) -> Attended:
    """Attention of one head with plain scores and outputs, without projecting keys and values.

    q W_k^T is multiplied with the inputs, W_v is applied to the mixed inputs, and the scores are smoothed in place of
    the keys: the same numbers, as all of it is linear, at a fraction of the work where one place asks.
    """
    scores = (project(asked, maps["key"].mT) @ inputs.mT / math.sqrt(asked.shape[-1]))[:, :, None]
    if group.spec.fir_taps:
        scores = smooth_keys(scores.mT, group.taps[:, None, None]).mT
    weights = group.bound_head().unchecked_log_weights(scores, -1, mask).exp()
    mixed = project(weights[:, :, 0] @ inputs, maps["value"])[:, :, None]
    return Attended(mixed, weights, weights.sum(-1), scores, mask)


def _start(settings: ModelSettings, seed: int) -> dict[str, Tensor]:
    """The first weights of one model, drawn in a fixed order from its own generator."""
    generator = torch.Generator().manual_seed(seed)

    def normal(rows: int, columns: int, std: float) -> Tensor:
        return std * torch.randn(rows, columns, generator=generator)

    dim, inner = settings.dim, settings.mlp * settings.dim
    start = {"embedding": normal(settings.vocabulary, dim, settings.embedding_std)}
    if settings.positions == "learned":
        start["positions"] = normal(settings.length, dim, settings.position_std)
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
