"""The categorical distribution of a head's weights, as a `torch.distributions.Distribution`.

>>> import torch
>>> from stau_rl import HeadCategorical
>>> mask = torch.tensor([True, False, True, True])
>>> policy = HeadCategorical(torch.tensor([0.3, 9.0, 2.0, 0.0]), "s_tau(tau=5)", mask=mask)
>>> policy.probs.round(decimals=4)
tensor([0.0103, 0.0000, 0.9861, 0.0036])
>>> policy.mode, policy.entropy().round(decimals=4)
(tensor(2), tensor(0.0814))
"""

import math
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Categorical, Distribution, constraints, register_kl

from stau_rl.heads import Head, parse_head
from stau_rl.heads.look import everywhere, share_of
from stau_rl.heads.normalise import check_scores
from stau_rl.kernels.gpu.fused_head import head_log_weights
from stau_rl.nn.learned import LearnedHead


class HeadCategorical(Distribution):
    """Distribution over the entries of the last axis, with the weights of a head.

    P(k) = w_k. Where the head's mass may be below 1 there is one more outcome, index K, abstaining, with
    P(K) = 1 - sum_k w_k, or 0 where that is within rounding of 0 (8 eps of the dtype, 1e-6 in float32). Entries of
    weight 0, masked or not, are never drawn, have log-probability -inf and give no gradient but finite ones.
    Everything is computed in float32 or more: half-precision scores give float32 results.

    Draws come from torch's global generator, one float64 uniform each: the first k with cdf_k > u total.

    Args:
        scores: floating-point, [..., K], K >= 1.
        head: text such as `s_tau(tau=2)`, a head, or a `HeadModule` (with its learned parameters and offset). Text
            is not read inside `torch.compile`; give a head there.
        mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.
        validate_args: check scores, masks and values; None is torch's current default. Never inside `torch.compile`.
            Where nothing is checked, a row without an unmasked entry draws K.

    Attributes:
        logits: log-probabilities [..., outcomes].
        abstain: index of the outcome "abstain", or None for a head of mass 1.

    Raises:
        ValueError: no entries, a head of free mass, a head that changes with t; where validated: bad scores (with the
            share of bad rows) or a row without an unmasked entry.

    Examples:
        >>> import torch
        >>> from stau_rl import HeadCategorical
        >>> mask = torch.tensor([True, False, True, True])
        >>> policy = HeadCategorical(torch.tensor([0.3, 9.0, 2.0, 0.0]), "s_tau(tau=5)", mask=mask)
        >>> policy.probs.round(decimals=4), policy.mode
        (tensor([0.0103, 0.0000, 0.9861, 0.0036]), tensor(2))
    """

    arg_constraints = {"scores": constraints.independent(constraints.real, 1)}  # noqa: RUF012 (torch's own form)
    has_enumerate_support = True

    def __init__(
        self,
        scores: Tensor,
        head: str | Head | LearnedHead = "softmax",
        mask: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.head = parse_head(head) if isinstance(head, str) else head
        rule = self.head.head if isinstance(self.head, LearnedHead) else self.head
        validate = (self._validate_args if validate_args is None else validate_args) and not (
            torch.compiler.is_compiling()
        )
        _check_form(scores, rule)
        if validate:
            _check_rows(scores, mask, rule.finite_only)
        self.scores, self.mask = scores, mask
        if isinstance(self.head, LearnedHead):
            log_weights = self.head.unchecked(scores, mask)
        else:
            log_weights = head_log_weights(rule, scores, mask)
        entries = log_weights.shape[-1]
        self.abstain = entries if rule.mass_kind == "sub" else None
        self.logits = log_weights if self.abstain is None else _with_abstention(log_weights)
        # The checks above replace torch's, which know no masks.
        super().__init__(self.logits.shape[:-1], validate_args=False)
        self._validate_args = validate

    def expand(self, batch_shape: Any, _instance: Any = None) -> "HeadCategorical":
        """The same rows in a larger batch, without copies."""
        new = self._get_checked_instance(HeadCategorical, _instance)
        batch_shape = Size(batch_shape)
        new.head, new.abstain = self.head, self.abstain
        entries = self.logits.shape[-1] if self.abstain is None else self.abstain
        new.scores = self.scores.expand((*batch_shape, entries))
        new.mask = None if self.mask is None else self.mask.expand(new.scores.shape)
        new.logits = self.logits.expand(batch_shape + self.logits.shape[-1:])
        super(HeadCategorical, new).__init__(batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """Whole numbers 0, ..., outcomes - 1."""
        return constraints.integer_interval(0, self.logits.shape[-1] - 1)

    @property
    def param_shape(self) -> Size:
        """Shape of `logits` and `probs`."""
        return self.logits.shape

    @property
    def probs(self) -> Tensor:
        """Probabilities [..., outcomes]."""
        return self.logits.exp()

    @property
    def mode(self) -> Tensor:
        """The most probable outcome [...], the first of several; abstaining is one."""
        return self.logits.argmax(-1)

    @property
    def deterministic_sample(self) -> Tensor:
        """The mode, under the name that TorchRL looks for."""
        return self.mode

    @property
    def mean(self) -> Tensor:
        """NaN, as for torch's `Categorical`: an index has no mean."""
        return self.logits.new_full(self.batch_shape, math.nan)

    @property
    def variance(self) -> Tensor:
        """NaN, as `mean`."""
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Independent draws, int64 [*sample_shape, ...]."""
        shape = Size(sample_shape)
        weights = self.logits.detach().exp().double()
        # An entry of weight 0 repeats the cdf before it (a parallel sum may round it up by itself), or is below every
        # u total where nothing comes before; so no uniform falls on it. u < 1 keeps u total below the last cdf.
        cdf = torch.where(weights > 0, weights.cumsum(-1), -1.0).cummax(-1).values
        uniforms = torch.rand(*self.batch_shape, shape.numel(), dtype=torch.float64, device=cdf.device)
        found = torch.searchsorted(cdf, uniforms * cdf[..., -1:], right=True)
        return found.movedim(-1, 0).reshape(shape + self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability of outcomes; float32 or float64, differentiable in the scores and the head's parameters.

        Args:
            value: whole numbers that broadcast against the batch.

        Raises:
            ValueError: where validated, a value is no outcome.
        """
        if self._validate_args:
            self._validate_sample(value)
        value, logits = torch.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum p log p over the outcomes, in nats; 0 log 0 = 0, with finite gradients."""
        return -(self.probs * _finite(self.logits)).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All outcomes [outcomes, ...], impossible ones included."""
        values = torch.arange(self.logits.shape[-1], device=self.logits.device)
        values = values.view(-1, *(1,) * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values


def _check_form(scores: Tensor, rule: Head) -> None:
    if not isinstance(scores, Tensor) or scores.ndim == 0 or scores.shape[-1] == 0:
        shown = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"scores must be a tensor [..., K] with K >= 1, got {shown}")
    if rule.mass_kind == "free":
        raise ValueError(f"{rule.name}: its weights have no fixed mass, so they are no distribution")


def _check_rows(scores: Tensor, mask: Tensor | None, finite: bool) -> None:
    """One clear line, with the share of bad rows, for scores that are no numbers and for rows without an entry."""
    try:
        check_scores(scores, mask, finite=finite)
    except ValueError as error:
        if not str(error).startswith("scores must not be"):
            raise
        bad = ~torch.isfinite(scores) if finite else torch.isnan(scores) | torch.isposinf(scores)
        refused = "NaN or infinite" if finite else "NaN or +inf"
        share = share_of((bad if mask is None else bad & mask).any(-1))
        raise ValueError(f"scores must not be {refused} where unmasked: {share:.3g} of the rows hold some") from None
    if mask is not None:
        alive = mask.expand(torch.broadcast_shapes(mask.shape, scores.shape)).any(-1)
        if not everywhere(alive):
            raise ValueError(f"mask must leave every row an entry: {share_of(~alive):.3g} of the rows have none")


def _with_abstention(log_weights: Tensor) -> Tensor:
    """Log-weights with log(1 - mass) as one more entry, -inf (and without gradient) where nothing is left.

    A mass of exactly 1 comes out up to 5 eps off, so a rest that small is rounding: it must not be drawn.
    """
    rest = 1.0 - log_weights.exp().sum(-1, keepdim=True)
    left = rest > 8 * torch.finfo(rest.dtype).eps
    return torch.cat([log_weights, torch.where(left, torch.where(left, rest, 1.0).log(), -torch.inf)], -1)


def _finite(logits: Tensor) -> Tensor:
    """The logits with 0 for -inf, for products with a probability of 0."""
    return torch.where(logits.isneginf(), 0.0, logits)


def _divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Sum of p (log p - log q): 0 where p = 0, inf where q alone is 0; gradients are finite everywhere.

    A p too small for a number is 0, as for torch's `Categorical`, which may hold -1e8 for what a mask excludes.
    """
    if log_p.shape[-1] != log_q.shape[-1]:
        raise ValueError(f"KL needs the same outcomes on both sides, got {log_p.shape[-1]} and {log_q.shape[-1]}")
    log_p, log_q = torch.broadcast_tensors(log_p, log_q)
    p = log_p.exp()
    terms = p * (_finite(log_p) - _finite(log_q))
    return torch.where(log_q.isneginf() & (p > 0), torch.inf, torch.where(p > 0, terms, 0.0)).sum(-1)


def _categorical_logits(distribution: Categorical) -> Tensor:
    """Log-probabilities of a `Categorical`, -inf for a given probability of 0.

    Its logit of that is log eps. A probability that is 0 because it was too small for a number has one far below.
    """
    logits = distribution.logits
    given = logits > 1.5 * math.log(torch.finfo(logits.dtype).eps)
    return torch.where((distribution.probs == 0) & given, -torch.inf, logits)


@register_kl(HeadCategorical, HeadCategorical)
def _kl_head_head(p: HeadCategorical, q: HeadCategorical) -> Tensor:
    return _divergence(p.logits, q.logits)


@register_kl(HeadCategorical, Categorical)
def _kl_head_categorical(p: HeadCategorical, q: Categorical) -> Tensor:
    return _divergence(p.logits, _categorical_logits(q))


@register_kl(Categorical, HeadCategorical)
def _kl_categorical_head(p: Categorical, q: HeadCategorical) -> Tensor:
    return _divergence(_categorical_logits(p), q.logits)
