"""The normalisers of several models at once: which numbers are learned, given per model, or set by the first batch."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from stau_rl.agents.attention.attention import Attended, attend
from stau_rl.agents.attention.attention_spec import AttentionSpec, parameters_of
from stau_rl.agents.attention.key_smoothing import convolve_keys, half_gaussian_taps
from stau_rl.heads import Head, PowerNorm
from stau_rl.heads.log_softplus import log_phi
from stau_rl.nn.parameter_map import to_legal, to_raw

LOW = 0.1
CALIBRATED = {"threshold": "threshold", "tau_star": "tau"}


def shape_of(spec: AttentionSpec) -> tuple[Any, ...]:
    """What specs share to be computed as one: everything but the numbers of the normaliser and of the filter."""
    filters = spec.fir_taps > 0, spec.conv_taps
    return _shape(spec.head), filters, spec.learn, spec.scores, spec.output, spec.calibrate


def _shape(head: Head, own: frozenset[str] = frozenset()) -> tuple[Any, ...]:
    # An inner parameter of the name of an outer one is out of reach of `bind`, and so is the floor eps.
    free = frozenset(head._ranges()) - own - {"eps"}
    rest = [getattr(head, member.name) for member in fields(head) if member.name not in free]  # type: ignore[arg-type]
    return type(head), *(_shape(part, free | own) if isinstance(part, Head) else part for part in rest)


class NormaliserGroup(nn.Module):
    """The normalisers and filters of models of one shape.

    Args:
        specs: one per model.
        heads: attention heads of each model; each has its own learned values.
        width: channels of a head's keys, each of which has a filter of its own where the keys are convolved.

    Attributes:
        conv: the learned filters [models, heads, taps, width]; None where there are none.

    Raises:
        ValueError: a learned parameter starts on its bound.
    """

    taps: Tensor
    conv: nn.Parameter | None

    def __init__(self, specs: Sequence[AttentionSpec], heads: int, width: int = 1) -> None:
        super().__init__()
        self.spec, self.models = specs[0], len(specs)
        self.limits = {name: limits for name, (_, limits) in parameters_of(self.spec.head).items()}
        self.learned, self.given = nn.ParameterDict(), nn.ParameterDict()
        for name, limits in self.limits.items():
            numbers = [float(parameters_of(spec.head)[name][0]) for spec in specs]
            if name in self.spec.learn:
                raw = torch.tensor([to_raw(self.spec.head.name, name, number, limits) for number in numbers])
                self.learned[name] = nn.Parameter(raw[:, None].repeat(1, heads))
            elif name == CALIBRATED.get(self.spec.calibrate) or len(set(numbers)) > 1:
                values = torch.tensor(numbers)[:, None].repeat(1, heads)
                self.given[name] = nn.Parameter(values, requires_grad=False)
        taps = torch.zeros(len(specs), max(1, *(spec.fir_taps for spec in specs)))
        for row, spec in zip(taps, specs, strict=True):
            row[: spec.fir_taps] = half_gaussian_taps(max(1, spec.fir_taps), spec.fir_sigma, spec.fir_norm)[
                : spec.fir_taps
            ]
        self.register_buffer("taps", taps)
        identity = torch.eye(self.spec.conv_taps, 1)
        conv = nn.Parameter(identity.repeat(len(specs), heads, 1, width)) if self.spec.conv_taps else None
        self.register_parameter("conv", conv)

    def values(self) -> dict[str, Tensor]:
        """The parameters that are tensors, by name, [models, heads] each."""
        learned = {name: to_legal(raw, self.limits[name]) for name, raw in self.learned.items()}
        return learned | dict(self.given.items())

    def convolved(self, keys: Tensor) -> Tensor:
        """Keys [models, batch, heads, length, width] after the learned convolution, where the spec has one."""
        return keys if self.conv is None else convolve_keys(keys, self.conv[:, None])

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Attended:
        """Attend; queries, keys and values are [models, batch, heads, length, dim]."""
        fir, head, spec = self.taps[:, None, None, :] if self.spec.fir_taps else None, self.bound_head(), self.spec
        return attend(queries, keys, values, head, mask, fir=fir, scores=spec.scores, output=spec.output)

    def bound_head(self) -> Head:
        """The normaliser; its tensors broadcast against scores [models, batch, heads, queries, keys]."""
        bound = {name: value[:, None, :, None, None] for name, value in self.values().items()}
        return self.spec.head.bind(**bound) if bound else self.spec.head

    @torch.no_grad()
    def calibrate(self, attended: Attended) -> None:
        """Set what the spec says that the first batch's scores set; nothing for most specs."""
        name = CALIBRATED.get(self.spec.calibrate)
        if name is None:
            return
        scores, mask = attended.scores, attended.mask.expand(attended.scores.shape)
        if name == "threshold":
            found = low_peak(self.spec.head, scores, mask) - 1.0
        else:
            found = pooled_tau(scores, mask, float(getattr(self.spec.head, "eps", 0.0)))
        # Flat rows, or none, say nothing: what was there stays.
        found = torch.where(found.isfinite(), found, self.values()[name])
        if name in self.given:
            self.given[name].copy_(found)
            return
        owner, limits = self.spec.head.name, self.limits[name]
        # What is learned must start above its bound.
        least = -torch.inf if limits.lower is None else limits.lower + 1e-3
        raws = [[to_raw(owner, name, max(value, least), limits) for value in row] for row in found.tolist()]
        self.learned[name].copy_(torch.tensor(raws))


def low_peak(head: Head, scores: Tensor, mask: Tensor) -> Tensor:
    """The value that all but `LOW` of the rows with a key exceed by their largest score, as `head` sees the scores.

    A row that starts below the gate's middle has little gradient, and its key may stay unlearned for good: so few do.

    Returns:
        [models, heads].
    """
    if isinstance(head, PowerNorm):
        scores = head.centred(torch.where(mask, scores, 0.0), -1, mask)
    peaks = torch.where(mask, scores, -torch.inf).amax(-1)
    peaks = torch.where(mask.any(-1), peaks, torch.nan)
    return peaks.transpose(1, 2).flatten(2).nanquantile(LOW, dim=-1)


def pooled_tau(scores: Tensor, mask: Tensor, eps: float) -> Tensor:
    """Closed form of tau*, Cov(s, log phi) / Var(log phi) within rows, pooled over the rows of a head; [models, heads].

    Covariance and variance add up over the rows; the answer is at least 1 but for rounding, which is clamped.
    """
    n = mask.sum(-1, keepdim=True).clamp(min=1)
    scores = torch.where(mask, scores, 0.0).double()
    parts = [scores, torch.where(mask, log_phi(scores, eps), 0.0)]
    s, phi = (torch.where(mask, part - part.sum(-1, keepdim=True) / n, 0.0) for part in parts)
    axes = (1, 3, 4)
    return ((s * phi).sum(axes) / (phi * phi).sum(axes)).clamp(min=1.0).to(torch.float32)
