"""Reward processes of the bandit benchmark; one file each, named by this registry."""

from stau_rl.envs.arms.arms import Arms
from stau_rl.envs.arms.bernoulli import BernoulliArms
from stau_rl.envs.arms.empirical import EmpiricalArms
from stau_rl.envs.arms.gaussian import GaussianArms
from stau_rl.envs.arms.table_arms import TableArms
from stau_rl.spec.registry import Registry

ARMS: Registry[Arms] = Registry("set of arms", BernoulliArms, GaussianArms, EmpiricalArms, TableArms)


def parse_arms(text: str) -> Arms:
    """Read arms from text such as `bernoulli(k=10)`.

    Args:
        text: a name from the registry `ARMS`, and its parameters.

    Returns:
        The arms, a frozen dataclass; its text parses back to it.

    Raises:
        SpecError: a ValueError that says which part is wrong and what would be accepted.

    Examples:
        >>> import stau_rl
        >>> arms = stau_rl.parse_arms("bernoulli(means=[0.9, 0.8])")
        >>> arms.size, arms.fixed_means.tolist()
        (2, [0.9, 0.8])
    """
    return ARMS.parse(text)


__all__ = ["ARMS", "Arms", "BernoulliArms", "EmpiricalArms", "GaussianArms", "TableArms", "parse_arms"]
