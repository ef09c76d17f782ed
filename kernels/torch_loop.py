"""The reference engine: one step at a time on torch tensors of layout [arms, instances], on any device.

It runs every policy, in float64 or float32, and is what the compiled engines are compared with. Cost: some tens of
tensor operations of K n elements per step.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stau_rl.kernels.contract import ArmTable, Block, Progress, late_start
from stau_rl.kernels.philox import ACTION_REWARD, PRIVATE, SECOND, closed_uniform, open_uniform, words

# Random words are made for this many instance-steps at once, which amortises the cost of small tensor operations.
_WORDS_AT_ONCE = 1 << 18


class Draws:
    """The random draws of some instances, by the word table of `philox`.

    Args:
        seed: in [0, 2^64).
        instances: their global numbers, int64 [n]; the draws live on the device of this tensor.
        arms: number of arms K.
    """

    def __init__(self, seed: int, instances: Tensor, arms: int) -> None:
        self._seed = seed
        self._instances = instances
        self._streams = PRIVATE + torch.arange(arms, dtype=torch.int64, device=instances.device)[:, None]
        self._pairs = max(1, _WORDS_AT_ONCE // (2 * max(1, len(instances))))
        self._first_pair = -self._pairs
        self._words: tuple[Tensor, ...] = ()

    def _pair_words(self, step: int) -> tuple[Tensor, ...]:
        pair = step >> 1
        if not self._first_pair <= pair < self._first_pair + self._pairs:
            self._first_pair = pair
            index = pair + torch.arange(self._pairs, dtype=torch.int64, device=self._instances.device)[:, None]
            self._words = words(self._seed, self._instances, index, ACTION_REWARD)
        return tuple(word[pair - self._first_pair] for word in self._words)

    def action(self, step: int) -> Tensor:
        """The action uniform, float64 [instances] in [0, 1)."""
        return closed_uniform(self._pair_words(step)[2 * (step & 1)])

    def reward_word(self, step: int) -> Tensor:
        """The word of the reward uniform, int64 [instances]."""
        return self._pair_words(step)[2 * (step & 1) + 1]

    def second(self, step: int) -> tuple[Tensor, ...]:
        """The four words of a policy's second uniforms, int64 [instances] each."""
        return words(self._seed, self._instances, step, SECOND)

    def private(self, step: int, attempt: int = 0, where: Tensor | None = None) -> tuple[Tensor, ...]:
        """The four words of a policy's private draws.

        Args:
            step: t.
            attempt: j, for draws by rejection.
            where: flat positions in [arms, instances], int64 [m]; None for all.

        Returns:
            Four int64 tensors [arms, instances], or [m].
        """
        if where is None:
            return words(self._seed, self._instances, step, self._streams + 1024 * attempt)
        arm, column = where // len(self._instances), where % len(self._instances)
        return words(self._seed, self._instances[column], step, PRIVATE + arm + 1024 * attempt)


@dataclass(slots=True)
class State:
    """What the pulls so far have shown.

    Attributes:
        table: the arms.
        dtype: the engine's floating-point type.
        step: t, the number of steps so far.
        counts: pulls per arm, int64 [arms, instances].
        sums: reward sums per arm, float64 [arms, instances].
        total: sum of all rewards, float64 [instances].
        own: the policy's own tensors.
        horizon: T, the number of steps of the run.
    """

    table: ArmTable
    dtype: torch.dtype
    counts: Tensor
    sums: Tensor
    total: Tensor
    step: int = 0
    own: dict[str, Tensor] = field(default_factory=dict)
    horizon: int = 1

    @property
    def arms(self) -> int:
        """Number of arms K."""
        return self.table.arms

    def means(self, dtype: torch.dtype) -> Tensor:
        """Empirical means S/n, [arms, instances]; 0 for an arm never pulled."""
        return (self.sums / self.counts.clamp(min=1)).to(dtype)


class Rewards:
    """Rewards as quantiles of the step's reward uniform.

    Args:
        table: the arms.
        device: where the tensors live.
    """

    def __init__(self, table: ArmTable, device: torch.device) -> None:
        self._kind, self._sigma = table.kind, table.sigma
        means = table.means if table.kind != "bernoulli" else np.ceil(table.means * 2.0**24)
        self._means = torch.as_tensor(means, device=device).expand(table.arms, table.instances)
        self._values = torch.as_tensor(table.values, device=device)
        self._starts = torch.as_tensor(table.offsets[:-1], device=device)
        self._sizes = torch.as_tensor(np.diff(table.offsets), device=device)

    def draw(self, arms: Tensor, word: Tensor) -> Tensor:
        """The rewards, float64 [instances], of pulling `arms` when the reward word is `word`."""
        if self._kind == "table":
            return self._values[self._starts[arms] + (((2 * (word >> 8) + 1) * self._sizes[arms]) >> 25)]
        mean = self._means.gather(0, arms[None])[0]
        if self._kind == "bernoulli":
            return ((word >> 8) < mean).double()
        return mean + self._sigma * torch.special.ndtri(open_uniform(word))


def simulate(
    policy: Any,
    arms: ArmTable,
    *,
    seed: int,
    first_instance: int,
    horizon: int,
    checkpoints: np.ndarray,
    dtype: str = "float64",
    device: str = "cpu",
    record: bool = False,
    progress: Progress | None = None,
) -> Block:
    """Play a policy on one block of instances; arguments and result as in `stau_rl.kernels.contract`."""
    place = torch.device(device)
    policy = policy.lowered()
    n, k = arms.instances, arms.arms
    numbers = first_instance + torch.arange(n, dtype=torch.int64, device=place)
    draws, rewards = Draws(seed, numbers, k), Rewards(arms, place)
    state = State(
        table=arms,
        dtype={"float64": torch.float64, "float32": torch.float32}[dtype],
        counts=torch.zeros(k, n, dtype=torch.int64, device=place),
        sums=torch.zeros(k, n, dtype=torch.float64, device=place),
        total=torch.zeros(n, dtype=torch.float64, device=place),
        horizon=horizon,
    )
    gaps = torch.as_tensor(arms.gaps(abstain=policy.may_abstain), device=place).expand(-1, n)
    idle = torch.zeros(n, dtype=torch.int64, device=place)
    late_optimal = torch.zeros(n, dtype=torch.int64, device=place)
    first_late = late_start(horizon)
    rows = {int(step) - 1: row for row, step in enumerate(checkpoints)}
    regret = np.zeros((len(rows), n))
    optimal = np.zeros((len(rows), n), dtype=bool)
    actions = np.zeros((horizon, n), dtype=np.int16) if record else None
    reward_log = np.zeros((horizon, n)) if record else None
    policy.start(state)
    report_every = max(1, horizon // 100)
    for step in range(horizon):
        state.step = step
        if policy.forces_pulls and step < k:
            arm = torch.full((n,), step, dtype=torch.int64, device=place)
        else:
            arm = policy.choose(state, draws)
        option, pulled = arm, arm < k
        arm = arm.clamp(max=k - 1)
        reward = rewards.draw(arm, draws.reward_word(step))
        if policy.may_abstain:
            reward = torch.where(pulled, reward, 0.0)
            idle += ~pulled
        state.counts.scatter_add_(0, arm[None], pulled.to(torch.int64)[None])
        state.sums.scatter_add_(0, arm[None], reward[None])
        state.total += reward
        policy.learn(state, arm, reward)
        if step >= first_late or step in rows:
            is_optimal = gaps.gather(0, option[None])[0] == 0
            if step >= first_late:
                late_optimal += is_optimal
            if step in rows:
                cost = (state.counts * gaps[:k]).sum(0)
                regret[rows[step]] = (cost + idle * gaps[-1] if policy.may_abstain else cost).cpu().numpy()
                optimal[rows[step]] = is_optimal.cpu().numpy()
        if actions is not None and reward_log is not None:
            actions[step] = torch.where(pulled, arm, -1).cpu().numpy()
            reward_log[step] = reward.cpu().numpy()
        if progress is not None and (step + 1) % report_every == 0:
            progress(n * report_every)
    if progress is not None:
        progress(n * (horizon % report_every))
    return Block(
        regret=regret,
        optimal=optimal,
        late_optimal=late_optimal.cpu().numpy(),
        pulls=state.counts.cpu().numpy(),
        reward_sums=state.sums.cpu().numpy(),
        actions=actions,
        rewards=reward_log,
    )


def load(policy: Any, arms: ArmTable, *, horizon: int, dtype: str = "float64", device: str = "cpu") -> None:
    """Play one step, so that torch and the device are awake; arguments as in `simulate`."""
    once = np.ones(1, dtype=np.int64)
    simulate(policy, arms, seed=0, first_instance=0, horizon=1, checkpoints=once, dtype=dtype, device=device)
