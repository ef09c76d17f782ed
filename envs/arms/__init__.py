"""Reward processes of the bandit benchmark; one file each, named by this registry."""

from stau_rl.envs.arms.arms import Arms
from stau_rl.envs.arms.bernoulli import BernoulliArms
from stau_rl.envs.arms.empirical import EmpiricalArms
from stau_rl.envs.arms.gaussian import GaussianArms
from stau_rl.envs.arms.table_arms import TableArms
from stau_rl.spec.grammar import Registry

ARMS: Registry[Arms] = Registry("set of arms", BernoulliArms, GaussianArms, EmpiricalArms, TableArms)


def parse_arms(text: str) -> Arms:
    """Read arms from text such as `bernoulli(k=10)`; a SpecError says what is wrong."""
    return ARMS.parse(text)


__all__ = ["ARMS", "Arms", "BernoulliArms", "EmpiricalArms", "GaussianArms", "TableArms", "parse_arms"]
