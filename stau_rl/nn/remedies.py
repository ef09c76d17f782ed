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

from stau_rl.nn.head_module import HeadModule
from stau_rl.nn.learned import LearnedHead


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

    Examples:
        >>> import torch
        >>> from stau_rl import STauHead, parameter_groups
        >>> policy = torch.nn.Sequential(torch.nn.Linear(4, 3), STauHead(tau=2.0))
        >>> [(len(group["params"]), group["lr"]) for group in parameter_groups(policy, lr=1e-3, head_lr=1e-4)]
        [(2, 0.001), (1, 0.0001)]
    """
    for name, rate in (("lr", lr), ("head_lr", head_lr)):
        check_rate(name, rate)
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
    """Freezes the heads' learned parameters for the first updates, then frees them, once.

    Call `step()` after each update of the optimizer. A frozen parameter has no gradient, so the optimizer skips it and
    gathers no moments for it. The last step frees what learned before, except what a `TargetEntropy` of the same head
    has taken meanwhile; after it the warm-up touches nothing any more.

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
        self._heads = [part for part in module.modules() if isinstance(part, LearnedHead)]
        self.parameters = head_parameters(module)
        if not self.parameters:
            raise ValueError(f"{type(module).__name__} has no head with learned parameters to warm up")
        self.steps = steps
        self.done = 0
        self._held: list[nn.Parameter] = []
        if self.frozen:
            self._hold()

    @property
    def frozen(self) -> bool:
        """Whether the parameters are still frozen."""
        return self.done < self.steps

    def step(self, count: int = 1) -> None:
        """Count one update, or as many as told; after the end of the warm-up nothing else happens."""
        self._count(self.done + count)

    def state_dict(self) -> dict[str, int]:
        """How many updates were counted."""
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a saved count, forwards or back."""
        self._count(int(state["done"]))

    def _count(self, done: int) -> None:
        was, self.done = self.frozen, done
        if was and not self.frozen:
            # What an entropy control has taken from the optimizer meanwhile stays with it.
            taken = {id(head.raw(name)) for head in self._heads for name in head.controlled}
            for parameter in self._held:
                parameter.requires_grad_(id(parameter) not in taken)
            self._held = []
        elif self.frozen and not was:
            self._hold()

    def _hold(self) -> None:
        self._held = [parameter for parameter in self.parameters if parameter.requires_grad]
        for parameter in self._held:
            parameter.requires_grad_(False)
            parameter.grad = None


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
        head.controlled.add(name)
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


class TargetEntropy(EntropyControl):
    """Sets a head's sharpness so that the policy's entropy meets a target, and keeps the policy gradient off it.

    As the temperature of soft actor-critic: raw += lr mean(H / log n - share), over the rows of a batch. More sharpness
    never raises the entropy of s^tau, softmax or escort (dH/dtau = -tau Var(log phi)), so a small step moves towards
    the target. The head's sharpness is frozen for the optimizer and moved by `update` alone.

    Args:
        head: a module that learns its head's sharpness (`Head.sharpness`).
        share: the target as a share of the largest entropy log n, n the unmasked entries of the row; in (0, 1).
        lr: step size on the unbounded parameter (`log_tau`), >= 0.

    Raises:
        ValueError: the head does not learn a sharpness, or an argument is out of range.

    Source: Haarnoja et al., "Soft actor-critic algorithms and applications", 2018, section 5; the target as a share of
    log n: Christodoulou, "Soft actor-critic for discrete action settings", 2019.

    Examples:
        >>> import torch
        >>> from stau_rl import STauHead, TargetEntropy
        >>> head = STauHead(tau=5.0)
        >>> control = TargetEntropy(head, share=0.5, lr=1.0)
        >>> control.update(torch.tensor([[0.3, -1.2, 2.0, 0.0]])) < 0.5    # too sharp, so tau falls
        True
        >>> bool(head.value("tau") < 5.0)
        True
    """

    def __init__(self, head: HeadModule, share: float, lr: float = 0.01) -> None:
        super().__init__(head, share, lr)
        self.head = head

    def update(self, scores: Tensor, mask: Tensor | None = None) -> float:
        """Move the sharpness by one step.

        Args:
            scores: the batch's scores [..., entries].
            mask: boolean, True where an entry counts, or None.

        Returns:
            The mean entropy of the rows before the step, as a share of log n; rows of one entry do not count, and a
            batch of only those changes nothing and gives nan.
        """
        with torch.no_grad():
            return self.move(self.head(scores, mask), mask)

    def entropy_share(self, scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Entropy over log n and the number n of unmasked entries, of each row [...]."""
        return entropy_share(self.head(scores, mask), mask)


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


__all__ = [
    "EntropyControl",
    "TargetEntropy",
    "TauWarmup",
    "check_rate",
    "entropy_share",
    "head_parameters",
    "parameter_groups",
]
