"""Arms as the numbers that engines take."""

from typing import Any

import numpy as np

from stau_rl.envs.arms import Arms
from stau_rl.kernels.contract import LEVELS, ArmTable
from stau_rl.kernels.philox import ARM_MEAN, open_uniform, words


def arm_table(arms: Arms, seed: int, first_instance: int, instances: int, device: str = "cpu") -> ArmTable:
    """The arms of instances first_instance, first_instance + 1, ... as numbers; drawn means come from stream 1.

    A device other than `cpu` makes the random words there; the means are the same.
    """
    fixed = arms.fixed_means
    if fixed is not None:
        means = fixed[:, None]
    else:
        numbers: Any = first_instance + np.arange(instances, dtype=np.int64)
        index: Any = np.arange(arms.size, dtype=np.int64)[:, None]
        if device != "cpu":
            import torch

            numbers, index = torch.as_tensor(numbers, device=device), torch.as_tensor(index, device=device)
        uniforms = open_uniform(words(seed, numbers, index, ARM_MEAN)[0])
        means = arms.mean_quantile(uniforms if isinstance(uniforms, np.ndarray) else uniforms.cpu().numpy())
    return ArmTable(
        kind=arms.reward_kind,
        means=means,
        sigma=arms.noise,
        values=arms.values,
        offsets=arms.offsets,
        binary=arms.binary,
        instances=instances,
        mean_levels=None if fixed is not None else tuple(arms.mean_quantile(np.array(LEVELS)).tolist()),
    )
