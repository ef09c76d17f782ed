"""A result with known arrays, for the tests of tables, files and plots."""

import numpy as np
from numpy.testing import assert_array_equal

from stau_rl.kernels.contract import Block
from stau_rl.regret.result import RegretResult

POLICIES = ["ucb | argmax", "centred_ucb(c=1) | softmax(beta=1)", "centred_ucb(c=1) | s_tau(tau=5)"]
STEPS = [1, 10, 100]


def make_spec(instances: int, policies: list[str] = POLICIES, **more) -> dict:
    spec = {"policies": policies, "checkpoints": STEPS, "horizon": 1000, "instances": instances, "seed": 7}
    return spec | {"arms": "bernoulli(0.9, 0.8)", "baseline": policies[0]} | more


def make_block(seed: int, instances: int, arms: int = 4) -> Block:
    generator = np.random.Generator(np.random.PCG64(seed))
    return Block(
        regret=generator.gamma(2.0, 1.0, (3, instances)) * np.array(STEPS)[:, None],
        optimal=generator.random((3, instances)) < 0.6,
        late_optimal=generator.integers(0, 100, instances),
        pulls=generator.integers(0, 300, (arms, instances)),
        reward_sums=np.zeros((arms, instances)),
    )


def make_result(instances: int = 60, policies: list[str] = POLICIES, **more) -> RegretResult:
    result = RegretResult.allocate(make_spec(instances, policies, **more), np.full(instances, 0.9), 4, 2.25)
    for p, policy in enumerate(policies):
        result.put(policy, 0, make_block(p, instances))
    return result


def assert_equal(a: RegretResult, b: RegretResult) -> None:
    for name in ("regret", "optimal", "late_optimal", "pulls", "best_mean"):
        assert_array_equal(getattr(a, name), getattr(b, name), strict=True)
    assert (a.spec, a.lai_robbins, a.timing) == (b.spec, b.lai_robbins, b.timing)
