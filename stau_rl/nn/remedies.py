"""Remedies for a learned sharpness: a learning rate of its own, a warm-up, a target for the entropy.

The policy gradient of tau is Cov(advantage, log phi): while a suboptimal action holds most of the mass, it sharpens
onto that action, which then is hard to leave. Each remedy takes tau out of that loop in its own way.

>>> import torch
>>> from stau_rl import STauHead, parameter_groups
>>> policy = torch.nn.Sequential(torch.nn.Linear(4, 3), STauHead(tau=2.0))
>>> [(len(group["params"]), group["lr"]) for group in parameter_groups(policy, lr=1e-3, head_lr=1e-4)]
[(2, 0.001), (1, 0.0001)]
"""

from typing import Any

import torch
from torch import Tensor, nn

from stau_rl.nn.head_module import HeadModule
from stau_rl.nn.sharpness import EntropyControl, TauWarmup, check_rate, entropy_share, head_parameters


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


__all__ = ["TargetEntropy", "TauWarmup", "head_parameters", "parameter_groups"]
