"""Arguments of the bandit environments, single and vector, checked and made into models."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stau_rl.envs.arms.bernoulli import BernoulliArms
from stau_rl.envs.arms.gaussian import GaussianArms
from stau_rl.envs.arms.table_arms import TableArms
from stau_rl.envs.gym.bandit_models import ArmsModel, BanditModel


def bernoulli_model(k: int, means: Sequence[float] | None) -> BanditModel:
    """Bernoulli arms; a ValueError names a bad argument."""
    return ArmsModel(BernoulliArms(k=k) if means is None else BernoulliArms(means=tuple(map(float, means))))


def gaussian_model(k: int, means: Sequence[float] | None, loc: float, scale: float, sigma: float) -> BanditModel:
    """Gaussian arms; a ValueError names a bad argument."""
    if means is None:
        return ArmsModel(GaussianArms(k=k, loc=loc, scale=scale, sigma=sigma))
    return ArmsModel(GaussianArms(means=tuple(map(float, means)), loc=loc, scale=scale, sigma=sigma))


def empirical_model(
    observations: Mapping[str, Sequence[float]] | TableArms | None,
    file: str | None,
    arm: str | None,
    reward: str | None,
) -> BanditModel:
    """Empirical arms; a ValueError names a bad argument."""
    from stau_rl.envs.arms.empirical import EmpiricalArms

    if file is None:
        if arm is not None or reward is not None:
            raise ValueError("arm and reward name columns of a file; give the file too")
        return ArmsModel(observations if isinstance(observations, TableArms) else TableArms.of(observations))
    if observations is not None or arm is None or reward is None:
        raise ValueError("file needs the columns arm and reward, and no observations")
    return ArmsModel(EmpiricalArms(file, arm, reward))


def check_horizon(horizon: Any, name: str = "horizon") -> int:
    """A whole horizon, or other length of an episode, of at least 1; else a ValueError."""
    if not (horizon >= 1 and horizon % 1 == 0):
        raise ValueError(f"{name} must be a whole number of at least 1, got {horizon!r}")
    return int(horizon)


def check_actions(actions: Any, arms: int) -> Any:
    """Actions that name arms, int64; else a ValueError with the first bad one."""
    if actions.dtype.kind not in "iu":
        raise ValueError(f"actions must be whole numbers, got {actions.dtype}")
    if actions.size and (actions.min() < 0 or actions.max() >= arms):
        bad = actions[(actions < 0) | (actions >= arms)][0]
        raise ValueError(f"actions must be arms 0 to {arms - 1}, got {int(bad)}")
    return actions.astype(np.int64, copy=False)


def read_options(model: BanditModel, options: Mapping[str, Any] | None, instances: int) -> Any:
    """The means that a reset's options give, or None; other options are a ValueError."""
    unknown = [name for name in options or () if name != "means"]
    if unknown:
        raise ValueError(f"options may have 'means', got {unknown[0]!r}")
    if not options or options["means"] is None:
        return None
    return model.read_means(options["means"], instances)
