"""Looking at the values of a tensor from Python, where that is possible."""

import torch
from torch import Tensor


def everywhere(condition: Tensor) -> bool:
    """Whether a boolean tensor is True throughout, also for what `torch.func` wraps: then for all that it maps over.

    Not for use inside `torch.compile`, where looking would break the graph.
    """
    return bool(torch.func.debug_unwrap(condition).all())


def seen_finite(values: Tensor) -> bool:
    """Whether all values are seen to be finite; False too where looking costs: on a device, inside `torch.compile`.

    The numbers must not depend on the answer: only the way to them may be shorter.
    """
    if values.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    # One call; a sum of finite values that overflows only takes the longer way.
    return bool(torch.func.debug_unwrap(values).sum().isfinite())


def share_of(condition: Tensor) -> float:
    """The share of True in a boolean tensor, also for what `torch.func` wraps: then of all that it maps over."""
    return float(torch.func.debug_unwrap(condition).double().mean())
