"""Device functions of plug-in heads: compiled, and compared with the head on the device that is to run them."""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from stau_rl.kernels.gpu.variant import Variant
from stau_rl.kernels.gpu.weights import call_head
from stau_rl.kernels.plugin_check import GRID, check_agreement


@cache
def compiled(function: Callable[..., Any]) -> Any:
    """A plug-in's function as a device function."""
    return function if hasattr(function, "fn") else triton.jit(function)


@triton.jit
def _sweep(p_score, p_value, p, q, HEAD: tl.constexpr, V: tl.constexpr):
    """What the engine takes from the device function at V.block scores."""
    o_score = tl.arange(0, V.block)[:, None]
    score = tl.load(p_score + o_score)
    tl.store(p_value + o_score, call_head(score, tl.zeros_like(score), p, q, HEAD, V))


@lru_cache(maxsize=256)
def check_plugin(head: Any, function: Callable[..., Any], inputs: int, horizon: int, device: torch.device) -> None:
    """Compare a plug-in's device function with the head at its parameters; once for each.

    Args:
        head: the head.
        function: its device function, compiled or not.
        inputs: how many parameters the function takes.
        horizon: number of steps; schedules are looked at where they start and end.
        device: where the function is run.

    Raises:
        ValueError: they differ; see `plugin_check.check_agreement`.
    """
    size = triton.next_power_of_2(GRID.size)
    scores = torch.as_tensor(np.resize(GRID, size), device=device)
    variant = Variant(1, block=size, inputs=inputs)

    def log2_weight(p: float, q: float) -> NDArray[np.float32]:
        values = torch.empty_like(scores)
        _sweep[(1,)](scores, values, p, q, HEAD=compiled(function), V=variant)
        answer: NDArray[np.float32] = values[: GRID.size].cpu().numpy()
        return answer

    if device.type == "cuda":
        with torch.cuda.device(device):
            check_agreement(head, horizon, "triton", log2_weight)
    else:
        check_agreement(head, horizon, "triton", log2_weight)
