"""What the reference engine refuses: float32 scores that do not hold what a policy computes with."""

from typing import Any

from stau_rl.kernels.contract import ArmTable
from stau_rl.kernels.float32 import Float32Error, misfit


def check(policy: Any, arms: ArmTable, horizon: int, dtype: str = "float64") -> None:
    """Raise a Float32Error where float32 is asked for and does not hold the scores; float64 runs every policy."""
    if dtype == "float32" and (why := misfit(policy.lowered(), arms, horizon)):
        raise Float32Error(why, "dtype='float64'")
