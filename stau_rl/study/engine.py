"""Which engine plays a policy of a study, where several may be named in order of preference."""

from stau_rl.agents.bandit import Policy
from stau_rl.envs.arms import parse_arms
from stau_rl.kernels.contract import EngineError
from stau_rl.kernels.engines import choose_engine
from stau_rl.regret.arm_table import arm_table


def engine_for(policy: Policy, arms: str, horizon: int, engine: str = "auto", device: str = "auto") -> str:
    """The first of the engines named that runs a policy; every row of a study says which that was.

    Args:
        policy: the policy.
        arms: text of the arms.
        horizon: steps to play.
        engine: a name, `auto`, or several names such as `triton,numba`, the preferred one first.
        device: as in `stau_rl.regret.run.run_regret`.

    Raises:
        ValueError: an engine or device is unknown, or none of the engines runs the policy.
    """
    names = [name.strip() for name in engine.split(",")]
    if len(names) == 1:
        return names[0]
    sample = arm_table(parse_arms(arms), 0, 0, 1)
    reasons = []
    for name in names:
        try:
            choose_engine(policy, sample, horizon, name, device)
        except EngineError as error:
            reasons.append(str(error))
        else:
            return name
    raise EngineError("; ".join(reasons))
