"""Remedies for a learned sharpness: a learning rate of its own, a warm-up, a target for the entropy.

The policy gradient of tau is Cov(advantage, log phi): while a suboptimal action holds most of the mass, it sharpens
onto that action, which then is hard to leave. Each remedy takes tau out of that loop in its own way.

>>> import torch
>>> from stau_rl import STauHead, parameter_groups
>>> policy = torch.nn.Sequential(torch.nn.Linear(4, 3), STauHead(tau=2.0))
>>> [(len(group["params"]), group["lr"]) for group in parameter_groups(policy, lr=1e-3, head_lr=1e-4)]
[(2, 0.001), (1, 0.0001)]
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from stau_rl.heads.learned import LearnedHead
from stau_rl.modules import HeadModule


def head_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The learned parameters of every `LearnedHead` (as is a `HeadModule`) in a module, frozen ones too, each once."""
    heads = [part for part in module.modules() if isinstance(part, LearnedHead)]
    return list(dict.fromkeys(parameter for head in heads for parameter in head.parameters()))


def parameter_groups(module: nn.Module, lr: float, head_lr: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer, with a learning rate of their own for the heads.

    Args:
        module: the policy.
        lr: learning rate of everything else, >= 0.
        head_lr: learning rate of the heads' parameters, >= 0.

    Returns:
        The groups that are not empty: the rest, then the heads', which have no weight decay, as that would pull them
        to an arbitrary value.

    Raises:
        ValueError: a learning rate is negative or not finite.
    """
    for name, rate in (("lr", lr), ("head_lr", head_lr)):
        _check_rate(name, rate)
    own = head_parameters(module)
    # By identity: comparing tensors compares their entries.
    known = set(map(id, own))
    rest = [parameter for parameter in module.parameters() if id(parameter) not in known]
    groups: list[dict[str, Any]] = [
        {"params": rest, "lr": lr},
        {"params": own, "lr": head_lr, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class TauWarmup:
    """Freezes the heads' learned parameters for the first updates, then lets them learn.

    Call `step()` after each update of the optimizer. A frozen parameter has no gradient, so the optimizer skips it and
    gathers no moments for it.

    Args:
        module: the policy, or a head.
        steps: number of updates to freeze, >= 0.

    Raises:
        ValueError: `steps` is negative, or the module learns no head parameter.
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

    def step(self) -> None:
        """Count one update."""
        self.done += 1
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


class TargetEntropy:
    """Sets a head's sharpness so that the policy's entropy meets a target, and keeps the policy gradient off it.

    As the temperature of soft actor-critic: raw += lr mean(H / log n - share), over the rows of a batch. More sharpness
    never raises the entropy of s^tau, softmax or escort (dH/dtau = -tau Var(log phi)), so a small step moves towards
    the target. The head's sharpness is frozen for the optimizer and moved by `update` alone.

    Args:
        head: a module that learns its head's sharpness (`Head.sharpness`).
        share: the target as a share of the largest entropy log n, n the unmasked entries of the row; in (0, 1).
        lr: step size on the unbounded parameter (`log_tau`), > 0.

    Raises:
        ValueError: the head does not learn a sharpness, or an argument is out of range.

    Source: Haarnoja et al., "Soft actor-critic algorithms and applications", 2018, section 5; the target as a share of
    log n: Christodoulou, "Soft actor-critic for discrete action settings", 2019.
    """

    def __init__(self, head: HeadModule, share: float, lr: float = 0.01) -> None:
        name = head.head.sharpness
        if name is None or name not in head.learn:
            raise ValueError(f"{head} does not learn a sharpness ({name or 'the head has none'}), which is to be moved")
        if not 0 < share < 1:
            raise ValueError(f"share must lie in (0, 1), got {share!r}")
        _check_rate("lr", lr)
        self.head, self.share, self.lr = head, share, lr
        self.parameter = head.raw(name)
        self.parameter.requires_grad_(False)

    @torch.no_grad()
    def update(self, scores: Tensor, mask: Tensor | None = None) -> float:
        """Move the sharpness by one step.

        Args:
            scores: the batch's scores [..., entries].
            mask: boolean, True where an entry counts, or None.

        Returns:
            The mean entropy of the rows before the step, as a share of log n; rows of one entry do not count, and a
            batch of only those changes nothing and gives nan.
        """
        share, counts = self.entropy_share(scores, mask)
        used = counts > 1
        if not bool(used.any()):
            return math.nan
        gap = torch.where(used, share - self.share, 0.0)
        shape = self.parameter.shape
        rows = used.to(gap.dtype).sum_to_size(shape).clamp(min=1.0)
        self.parameter.add_((self.lr * gap.sum_to_size(shape) / rows).to(self.parameter.dtype))
        return float(share[used].mean())

    def entropy_share(self, scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Entropy over log n and the number n of unmasked entries, of each row [...]."""
        logits = self.head(scores, mask)
        counts = (
            torch.full(logits.shape[:-1], logits.shape[-1], device=logits.device)
            if mask is None
            else mask.expand(logits.shape).sum(-1)
        )
        entropy = torch.special.entr(logits.exp()).sum(-1)
        return entropy / counts.clamp(min=2).to(logits.dtype).log(), counts


def _check_rate(name: str, rate: float) -> None:
    if not (rate >= 0 and math.isfinite(rate)):
        raise ValueError(f"{name} must be finite and >= 0, got {rate!r}")


__all__ = ["TargetEntropy", "TauWarmup", "head_parameters", "parameter_groups"]
