"""Heads as modules: scores in, logits out, with learnable parameters of their own."""

import math

import torch
from torch import Tensor

from stau_rl.heads import Head
from stau_rl.heads.look import everywhere, share_of
from stau_rl.heads.normalise import check_scores
from stau_rl.heads.s_tau import EPS
from stau_rl.nn.categorical import HeadCategorical
from stau_rl.nn.learned import LearnedHead


class HeadModule(LearnedHead):
    """Any head as a module: logits are the log-weights of `scores + score_offset` along the last axis.

    Learned parameters are as in `stau_rl.nn.learned.LearnedHead`. Since the logits contain them, whatever stores
    logits (or log-probabilities) stores their effect.

    Args:
        head: text such as `s_tau(tau=2)`, or a head; plug-in heads included. A learned parameter starts at its value.
        learn: names of the parameters to learn.
        shape: shape of each learned parameter; it broadcasts against the scores without their last axis, so that
            `(heads,)` gives one value per head to scores [..., heads, entries].
        score_offset: constant added to the scores, finite; it moves heads that are not shift-invariant.
        validate: refuse NaN and +inf scores outside the mask, which waits for the device; never inside `torch.compile`.

    Raises:
        ValueError: an unknown head or parameter, a starting value on its bound, a schedule, a `shape` with nothing to
            learn, or an offset that is not finite.

    Examples:
        >>> import torch
        >>> from stau_rl import HeadModule
        >>> head = HeadModule("escort(p=2)", learn=("p",))
        >>> head(torch.tensor([1.0, 2.0])).exp().detach().round(decimals=4)
        tensor([0.2000, 0.8000])
        >>> sorted(head.state_dict())
        ['log_p']
    """

    def __init__(
        self,
        head: str | Head,
        learn: tuple[str, ...] = (),
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        validate: bool = True,
    ) -> None:
        super().__init__(head, learn, shape)
        self.score_offset = float(score_offset)
        self.validate = validate
        if not math.isfinite(self.score_offset):
            raise ValueError(f"score_offset must be finite, got {score_offset!r}")

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of the scores: log-weights along the last axis.

        Args:
            scores: floating-point, [..., entries].
            mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.

        Returns:
            Log-weights [..., entries], -inf under the mask; float64 for float64 scores, else float32, as
            half-precision logits would move probabilities by a percent.

        Raises:
            ValueError: bad scores, or an offset that takes them beyond their dtype, where `validate`.
        """
        if self.validate:
            check_scores(scores, mask, finite=self.head.finite_only)
            self._check_offset(scores, mask)
        return self.unchecked(scores, mask)

    def _check_offset(self, scores: Tensor, mask: Tensor | None) -> None:
        if not self.score_offset or torch.compiler.is_compiling():
            return
        shifted = self.shifted(scores)
        good = shifted.isfinite() | ~scores.isfinite()
        if not everywhere(good if mask is None else good | ~mask):
            raise ValueError(
                f"score_offset={self.score_offset:g} takes {share_of(~good):.3g} of the scores beyond {shifted.dtype}"
            )

    def unchecked(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """`forward` without looking at the values."""
        return super().unchecked(self.shifted(scores), mask)

    def shifted(self, scores: Tensor) -> Tensor:
        """The scores with the offset added, then float32 or float64."""
        if not self.score_offset:
            return scores
        return (scores if scores.dtype == torch.float64 else scores.float()) + self.score_offset

    def distribution(self, scores: Tensor, mask: Tensor | None = None) -> HeadCategorical:
        """The distribution over the entries; for a head of mass below 1, abstaining is its last outcome."""
        return HeadCategorical(scores, self, mask)

    def extra_repr(self) -> str:
        """The head, what is learned, the offset."""
        parts = [str(self.head)]
        parts += [f"learn={self.learn}"] if self.learn else []
        parts += [f"shape={self.shape}"] if self.shape else []
        parts += [f"score_offset={self.score_offset:g}"] if self.score_offset else []
        return ", ".join(parts)


class STauHead(HeadModule):
    """s^tau as a module, tau = 1 + softplus(log_tau): logits tau log(softplus(s + score_offset) + eps) - log sum.

    A tau learned by the policy gradient alone tends to sharpen onto whatever is likely now; `stau_rl.nn.remedies` has a
    learning rate of its own, a warm-up and an entropy target for it.

    Args:
        tau: exponent, or where it starts; >= 1, and > 1 if learned.
        learnable: learn it.
        shape: shape of the learned tau, as in `HeadModule`.
        score_offset: constant added to the scores; above 0 it moves small scores to the power-law side.
        eps: floor of the map, >= 0.
        validate: as in `HeadModule`.

    Raises:
        ValueError: an argument is out of range; the message names it.

    Examples:
        >>> import torch
        >>> from stau_rl import STauHead
        >>> head = STauHead(tau=5.0)
        >>> logits = head(torch.tensor([[0.3, -1.2, 2.0, 0.0]]))
        >>> torch.distributions.Categorical(logits=logits).probs.detach().round(decimals=4)
        tensor([[0.0103, 0.0000, 0.9860, 0.0036]])
        >>> sorted(head.state_dict())
        ['log_tau']
    """

    def __init__(
        self,
        tau: float = 2.0,
        learnable: bool = True,
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        eps: float = EPS,
        validate: bool = True,
    ) -> None:
        from stau_rl.heads import STau

        super().__init__(STau(tau, eps), ("tau",) if learnable else (), shape, score_offset, validate)


class SoftmaxHead(HeadModule):
    """Softmax as a module, beta = softplus(log_beta) if learned: logits beta s - log sum.

    Args:
        beta: inverse temperature, or where it starts; >= 0, and > 0 if learned.
        learnable: learn it.
        shape: shape of the learned beta, as in `HeadModule`.
        score_offset: constant added to the scores, which changes nothing here: softmax is shift-invariant.
        validate: as in `HeadModule`.

    Raises:
        ValueError: an argument is out of range; the message names it.

    Examples:
        >>> import torch
        >>> from stau_rl import SoftmaxHead
        >>> SoftmaxHead(beta=2.0)(torch.tensor([0.0, 1.0])).exp().round(decimals=4)
        tensor([0.1192, 0.8808])
    """

    def __init__(
        self,
        beta: float = 1.0,
        learnable: bool = False,
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        validate: bool = True,
    ) -> None:
        from stau_rl.heads import Softmax

        super().__init__(Softmax(beta), ("beta",) if learnable else (), shape, score_offset, validate)


class EscortHead(HeadModule):
    """Escort as a module, p = softplus(log_p) if learned: logits p log|s + score_offset| - log sum.

    Args:
        p: exponent, or where it starts; > 0.
        learnable: learn it.
        shape: shape of the learned p, as in `HeadModule`.
        score_offset: constant added to the scores.
        validate: as in `HeadModule`.

    Raises:
        ValueError: an argument is out of range; the message names it.

    Source: Mei et al., "Escaping the gravitational pull of softmax", NeurIPS 2020.

    Examples:
        >>> import torch
        >>> from stau_rl import EscortHead
        >>> EscortHead(p=2.0)(torch.tensor([1.0, 2.0])).exp().round(decimals=4)
        tensor([0.2000, 0.8000])
    """

    def __init__(
        self,
        p: float = 2.0,
        learnable: bool = False,
        shape: tuple[int, ...] = (),
        score_offset: float = 0.0,
        validate: bool = True,
    ) -> None:
        from stau_rl.heads import Escort

        super().__init__(Escort(p), ("p",) if learnable else (), shape, score_offset, validate)
