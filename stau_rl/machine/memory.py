"""How much memory this process has taken."""

import resource
import sys
from collections.abc import Iterable


def peak_memory_mib() -> float:
    """Largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024.0 * 1024.0) if sys.platform == "darwin" else peak / 1024.0


def peak_gpu_memory_mib(devices: Iterable[str]) -> float:
    """Most memory that torch has held on some GPUs at once, in MiB; the driver's own is not in it."""
    used = set(devices) - {"cpu"}
    if not used:
        return 0.0
    import torch

    return sum(torch.cuda.max_memory_allocated(device) for device in used) / 2.0**20
