"""Which engine plays which policy, found by asking each engine about 0/1 and Gaussian rewards."""

from contextlib import suppress
from typing import Any

import numpy as np

from stau_rl.kernels.contract import ArmTable, EngineError, RewardKind
from stau_rl.kernels.engines import ENGINES


def support(policy: Any) -> dict[str, str]:
    """By engine, the devices that it plays a policy on: `CPU`, `CPU, CUDA`, `CUDA (0/1 rewards)`, or `no`."""
    return {name: _on(engine, policy) for name, engine in ENGINES.items()}


def _on(engine: Any, policy: Any) -> str:
    able = []
    for binary, words in ((True, "0/1 rewards"), (False, "Gaussian rewards")):
        kind: RewardKind = "bernoulli" if binary else "gaussian"
        table = ArmTable(kind, np.full((2, 1), 0.5), 0.5, np.empty(0), np.empty(0, np.int64), binary, 1)
        with suppress(EngineError):
            engine.check(policy, table, 100)
            able.append(words)
    if not able:
        return "no"
    devices = ", ".join(name for name, there in (("CPU", engine.cpu), ("CUDA", engine.cuda)) if there)
    return devices if len(able) == 2 else f"{devices} ({able[0]})"
