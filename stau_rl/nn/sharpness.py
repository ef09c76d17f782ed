"""What keeps a learned sharpness off the policy gradient, on probabilities alone: a warm-up, control of the entropy.

The public face, with a control that takes scores, is `stau_rl.nn.remedies`.
"""

import math

import torch
from torch import Tensor, nn

from stau_rl.nn.learned import LearnedHead


def head_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The learned parameters of every `LearnedHead` (as is a `HeadModule`) in a module, frozen ones too, each once."""
    heads = [part for part in module.modules() if isinstance(part, LearnedHead)]
    return list(dict.fromkeys(parameter for head in heads for parameter in head.parameters()))


class TauWarmup:
    """Freezes the heads' learned parameters for the first updates, then lets them learn.

    Call `step()` after each update of the optimizer. A frozen parameter has no gradient, so the optimizer skips it and
    gathers no moments for it. The last step frees every parameter: make a `TargetEntropy` of the same head after it.

    Args:
        module: the policy, or a head.
        steps: number of updates to freeze, >= 0.

    Raises:
        ValueError: `steps` is negative, or the module learns no head parameter.

    Examples:
        >>> from stau_rl import STauHead, TauWarmup
        >>> head = STauHead(tau=2.0)
        >>> warm_up = TauWarmup(head, steps=1)
        >>> head.log_tau.requires_grad
        False
        >>> warm_up.step()
        >>> head.log_tau.requires_grad
        True
    """

    def __init__(self, module: nn.Module, steps: int) -> None:
        if steps < 0:
            raise ValueError(f"steps must be >= 0, got {steps!r}")
        self.parameters = head_parameters(module)
        if not self.parameters:
            raise ValueError(f"{type(module).__name__} has no head with learned parameters to warm up")
        self.steps = steps
        self.done = 0
        self._apply()

    @property
    def frozen(self) -> bool:
        """Whether the parameters are still frozen."""
        return self.done < self.steps

    def step(self, count: int = 1) -> None:
        """Count one update, or as many as told."""
        self.done += count
        self._apply()

    def _apply(self) -> None:
        for parameter in self.parameters:
            if parameter.requires_grad is self.frozen:
                parameter.requires_grad_(not self.frozen)
                parameter.grad = None

    def state_dict(self) -> dict[str, int]:
        """How many updates were counted."""
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved count."""
        self.done = int(state["done"])
        self._apply()


class EntropyControl:
    """Moves a head's sharpness so that the entropy of given probabilities meets a target.

    raw += lr mean(H / log n - share), over the rows of a batch. The head's sharpness is frozen for the optimizer and
    moved by `move` alone. Its range bounds what can be reached.

    Args:
        head: a module that learns its head's sharpness (`Head.sharpness`).
        share: the target as a share of the largest entropy log n, n the unmasked entries of the row; in (0, 1).
        lr: step size on the unbounded parameter (`log_tau`), >= 0.

    Raises:
        ValueError: the head does not learn a sharpness, or an argument is out of range.
    """

    def __init__(self, head: LearnedHead, share: float, lr: float) -> None:
        name = head.head.sharpness
        if name is None or name not in head.learn:
            raise ValueError(f"{head} does not learn a sharpness ({name or 'the head has none'}), which is to be moved")
        if not 0 < share < 1:
            raise ValueError(f"share must lie in (0, 1), got {share!r}")
        check_rate("lr", lr)
        self.share, self.lr = share, lr
        self.parameter = head.raw(name)
        self.parameter.requires_grad_(False)

    @torch.no_grad()
    def move(self, log_weights: Tensor, mask: Tensor | None = None) -> float:
        """Move the sharpness by one step.

        Args:
            log_weights: log-probabilities of a batch under the head as it is, [..., entries].
            mask: boolean, True where an entry counts, or None.

        Returns:
            The mean entropy of the rows, as a share of log n; rows of one entry do not count, and a batch of only
            those changes nothing and gives nan.
        """
        share, counts = entropy_share(log_weights, mask)
        used = counts > 1
        if not bool(used.any()):
            return math.nan
        gap = torch.where(used, share - self.share, 0.0)
        shape = self.parameter.shape
        rows = used.to(gap.dtype).sum_to_size(shape).clamp(min=1.0)
        self.parameter.add_((self.lr * gap.sum_to_size(shape) / rows).to(self.parameter.dtype))
        return float(share[used].mean())


def entropy_share(log_weights: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Entropy over log n and the number n of unmasked entries, of each row [...] of log-probabilities."""
    counts = (
        torch.full(log_weights.shape[:-1], log_weights.shape[-1], device=log_weights.device)
        if mask is None
        else mask.expand(log_weights.shape).sum(-1)
    )
    entropy = torch.special.entr(log_weights.exp()).sum(-1)
    return entropy / counts.clamp(min=2).to(log_weights.dtype).log(), counts


def check_rate(name: str, rate: float) -> None:
    """Raise a ValueError unless a step size is finite and at least 0."""
    if not (rate >= 0 and math.isfinite(rate)):
        raise ValueError(f"{name} must be finite and >= 0, got {rate!r}")
