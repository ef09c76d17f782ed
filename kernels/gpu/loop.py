"""The compiled step loop on a GPU: every step of every instance inside one Triton kernel.

`simulate` follows `stau_rl.kernels.contract`. The policy becomes a variant (`gpu.plan`) of one kernel
(`gpu.kernel`); this module keeps the state on the device, launches the kernel for a part of the steps at a time, and
collects the results. Memory: 8 bytes (Bernoulli) or 12 per arm and instance of state, 16 for means and gaps and 4 for
bounds where instances have their own, and 13 per checkpoint and instance; nothing per step and instance, unless
`record`.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stau_rl.kernels.contract import ArmTable, Block, EngineError, Progress, gaps_below_best, late_start
from stau_rl.kernels.float32 import require_float32
from stau_rl.kernels.gpu import heads as triton_heads
from stau_rl.kernels.gpu import indices as triton_indices
from stau_rl.kernels.gpu import policies as triton_policies
from stau_rl.kernels.gpu import rewards as triton_rewards
from stau_rl.kernels.gpu.bind import BoundHead
from stau_rl.kernels.gpu.kernel import play_kernel
from stau_rl.kernels.gpu.math import INTERPRETED
from stau_rl.kernels.gpu.plan import Plan, make_plan
from stau_rl.kernels.gpu.plugin import check_plugin, compiled
from stau_rl.kernels.philox import split_seed

THREADS = 128
# Steps of which tables of a number per step are held at once.
TABLE = 1 << 20
# Arm-steps of one launch when somebody watches: about a quarter of a second of the fastest policies.
WATCHED_WORK = 2.5e11
_NEVER = (1 << 31) - 1


def simulate(
    policy: Any,
    arms: ArmTable,
    *,
    seed: int,
    first_instance: int,
    horizon: int,
    checkpoints: NDArray[np.int64],
    dtype: str = "float32",
    device: str = "cuda",
    record: bool = False,
    progress: Progress | None = None,
) -> Block:
    """Play `policy` on every instance of `arms` for `horizon` steps, on a GPU.

    Args:
        policy: a policy of `stau_rl.agents`; see `gpu.plan` for those that have device functions.
        arms: the arms, at most 1024.
        seed: in [0, 2^64).
        first_instance: global number of the block's first instance.
        horizon: number of steps T, below 2^31.
        checkpoints: increasing numbers of plays in [1, T] at which regret is read off.
        dtype: `float32`, the precision of weights. Scores are float64 for policies that take the largest, and where
            `kernels.float32` finds that float32 does not hold them.
        device: `cuda` or `cuda:N`; `cpu` under TRITON_INTERPRET=1.
        record: also return every action and reward, which takes memory in proportion to T.
        progress: called with the instance-steps finished since its last call, a few times a second.

    Returns:
        The block's results; see `Block`.

    Raises:
        EngineError: this engine cannot run what was asked.
        ValueError: the device function of a plug-in head contradicts the head.
    """
    require_float32("triton", dtype)
    place = _check_device(device)
    plan = make_plan(policy.lowered(), arms, horizon)
    if plan.head is not None and not isinstance(plan.head.device, str):
        check_plugin(policy.lowered().head, plan.head.device, plan.head.inputs, horizon, place)
    return Run(plan, arms, place, seed, first_instance, horizon, np.asarray(checkpoints), record).play(progress)


def load(policy: Any, arms: ArmTable, *, horizon: int, dtype: str = "float32", device: str = "cuda") -> None:
    """Compile, or load from the disk, every kernel that a run of `horizon` steps launches.

    Args:
        policy: the policy.
        arms: any block of the arms of the run; one instance will do.
        horizon: number of steps of the run.
        dtype: as in `simulate`.
        device: as in `simulate`.

    Raises:
        EngineError: this engine cannot run what was asked.
    """
    require_float32("triton", dtype)
    plan = make_plan(policy.lowered(), arms, horizon)
    run = Run(plan, arms, _check_device(device), 0, 0, horizon, np.ones(1, dtype=np.int64), False)
    # The forced pulls, a pair of steps, and a single last step where the number of steps is odd.
    forced = arms.arms + arms.arms % 2 if plan.variant.forced else 0
    run.run(until=min(horizon, forced + 2 + horizon % 2))
    # The conversions of the results are kernels as well.
    run.collect()


def _check_device(device: str) -> torch.device:
    if INTERPRETED:
        return torch.device("cpu")
    if not device.startswith("cuda"):
        raise EngineError(f"the triton engine runs on device='cuda', got {device!r}; engine='numba' runs there")
    if not torch.cuda.is_available():
        raise EngineError("the triton engine needs a CUDA device and torch sees none; engine='numba' runs on a CPU")
    return torch.device(device)


class Run:
    """State of one block on the device."""

    def __init__(
        self,
        plan: Plan,
        arms: ArmTable,
        device: torch.device,
        seed: int,
        first_instance: int,
        horizon: int,
        checkpoints: NDArray[np.int64],
        record: bool,
    ) -> None:
        k, n = arms.arms, arms.instances
        self.plan, self.arms, self.device, self.horizon = plan, arms, device, horizon
        # The pulls of optimal arms are needed at two more steps, which become checkpoints of our own.
        extra = [step for step in (late_start(horizon), horizon) if step > 0]
        self.steps = np.union1d(checkpoints.astype(np.int64), extra)
        self.rows = np.searchsorted(self.steps, checkpoints)
        means = torch.as_tensor(arms.means, device=device)
        bernoulli = arms.kind == "bernoulli"
        # As in `ArmTable.bernoulli_bounds`, which takes longer than many a kernel: a power of 2 and ceil are exact.
        self.arm = (means * 2.0**24).ceil().to(torch.int32) if bernoulli else means
        self.gap = gaps_below_best(means, arms.tie_scale)
        values = [arms.sigma] if plan.exact_rewards else arms.values
        self.value = torch.as_tensor(values, dtype=torch.float64, device=device)
        self.offset = torch.as_tensor(arms.offsets, device=device)
        self.count = torch.zeros(k, n, dtype=torch.int32, device=device)
        self.gain = torch.zeros(k, n, dtype=torch.int32 if bernoulli else torch.float64, device=device)
        gradient = plan.variant.choose == "preference"
        self.preference = torch.full((k, n if gradient else 1), plan.preference, dtype=torch.float32, device=device)
        summed = gradient or plan.variant.past
        self.total = torch.zeros(n if summed else 1, dtype=torch.float64, device=device)
        self.checkpoint = torch.as_tensor(np.append(self.steps, _NEVER).astype(np.int32), device=device)
        self.regret = torch.empty(len(self.steps), n, dtype=torch.float64, device=device)
        self.optimal = torch.empty(len(self.steps), n, dtype=torch.int8, device=device)
        self.best = torch.empty(len(self.steps), n, dtype=torch.int32, device=device)
        shape = (horizon, n) if record else (1, 1)
        self.action = torch.empty(shape, dtype=torch.int16, device=device)
        self.reward = torch.empty(shape, dtype=torch.float64, device=device)
        self._make_tables(0)
        self.record = record
        self.threads, self.options = _shape(plan)
        self.keys = [_signed(word) for word in split_seed(seed)]
        self.first = [_signed(first_instance & 0xFFFFFFFF), _signed(first_instance >> 32 & 0xFFFFFFFF)]

    def play(self, progress: Progress | None) -> Block:
        """All steps, then the results on the host."""
        self.run(progress)
        return self.collect()

    def run(self, progress: Progress | None = None, until: int | None = None) -> None:
        """All steps, or those before step `until`."""
        last = self.horizon if until is None else until
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):
                self._run(progress, last)
        else:
            self._run(progress, last)

    def _run(self, progress: Progress | None, last: int) -> None:
        step = 0
        while step < last:
            stop, paired = self._next(step, last, progress is not None)
            self.launch(step, stop, paired)
            if progress is not None:
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                progress((stop - step) * self.arms.instances)
            step = stop

    def collect(self) -> Block:
        """The results on the host."""
        start = late_start(self.horizon)
        late_optimal = self.best[-1].long()
        if start > 0:
            late_optimal -= self.best[int(np.searchsorted(self.steps, start))]
        rows = torch.as_tensor(self.rows, device=self.device)
        # To the CPU without blocking means into page-locked memory, several times as fast as other memory; torch hands
        # the same pages out again once a block is let go.
        arrays = [
            tensor.to("cpu", non_blocking=True)
            for tensor in (
                self.regret[rows],
                self.optimal[rows].bool(),
                late_optimal,
                self.count.long(),
                self.gain.double(),
            )
        ]
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        regret, optimal, late, pulls, sums = (array.numpy() for array in arrays)
        return Block(
            regret=regret,
            optimal=optimal,
            late_optimal=late,
            pulls=pulls,
            reward_sums=sums,
            actions=self.action.cpu().numpy() if self.record else None,
            rewards=self.reward.cpu().numpy() if self.record else None,
        )

    def _next(self, step: int, last: int, watched: bool) -> tuple[int, bool]:
        """Where the launch that starts at `step` stops, at `last` at most, and whether it runs in pairs of steps."""
        k, left = self.arms.arms, last - step
        if self.plan.variant.forced and step < k:
            return min(k + k % 2, last), False
        if step % 2 or left == 1:
            return step + 1, False
        size = min(left, self.plan.variant.steps_per_launch)
        if watched:
            size = min(size, max(64, int(WATCHED_WORK / (k * self.arms.instances))))
        return step + size // 2 * 2, True

    def launch(self, start: int, stop: int, paired: bool) -> Any:
        """Queue steps [start, stop); returns the compiled kernel, which knows its registers and code."""
        plan, n = self.plan, self.arms.instances
        if not self.table_start <= start < stop <= self.table_start + TABLE:
            self._make_tables(start)
        block = self.threads // plan.variant.lanes
        shared, gap_shared = self.arm.shape[1] == 1, self.gap.shape[1] == 1
        variant = replace(
            plan.variant,
            block=block,
            forced=plan.variant.forced and start < self.arms.arms,
            long=plan.variant.packed and self.horizon > plan.variant.steps_per_launch,
            steps=2 if paired else 1,
            record=self.record,
        )
        return play_kernel[(-(-n // block),)](
            self.count,
            self.gain,
            self.preference,
            self.total,
            self.arm,
            self.gap,
            self.width,
            self.schedule,
            self.value,
            self.offset,
            self.checkpoint,
            self.regret,
            self.optimal,
            self.best,
            self.action,
            self.reward,
            start,
            stop,
            self.table_start,
            int(np.searchsorted(self.steps, start, "right")),
            n,
            *self.first,
            *self.keys,
            1 if shared else n,
            0 if shared else 1,
            1 if gap_shared else n,
            0 if gap_shared else 1,
            # Float32, so what float32 cannot hold is in a table.
            0.0 if plan.exact_rewards else float(self.arms.sigma),
            plan.p,
            plan.q,
            plan.unit,
            plan.offset,
            plan.c if plan.variant.choose == "preference" else 0.0,
            REFRESH=getattr(triton_policies, f"refresh_{plan.refresh}"),
            SCORE=_score_function(plan),
            HEAD=_device_function(plan.head),
            SLOPE=getattr(triton_heads, plan.head.slope if plan.head and plan.head.slope else "softmax_slope"),
            REWARD=getattr(triton_rewards, "gaussian_exact" if plan.exact_rewards else self.arms.kind),
            V=variant,
            **self.options,
        )

    def _make_tables(self, start: int) -> None:
        """The numbers per step that the policy needs, from step `start` on, computed in float64."""
        plan = self.plan
        self.table_start = start
        stop = min(start + TABLE, self.horizon)
        steps = torch.arange(start, stop if plan.variant.width else start + 1, dtype=torch.float64, device=self.device)
        if plan.width == "bonus":
            steps = steps.clamp_(min=1.0).log_().mul_(2.0).sqrt_().mul_(plan.c)
            if plan.changing is not None:
                steps *= torch.as_tensor(plan.changing.steps(start + 1, stop), device=self.device)
        elif plan.widths is not None:
            numbers = plan.widths(np.arange(start, start + len(steps), dtype=np.float64))
            steps = torch.as_tensor(numbers, dtype=torch.float64, device=self.device)
        elif plan.width == "past":
            steps = 1.0 / (steps + 1.0)
        elif plan.width == "before":
            steps = torch.where(steps > 0, 1.0 / steps.clamp(min=1.0), 0.0)
        if plan.posterior is not None:
            steps = torch.tensor(plan.posterior, dtype=torch.float64, device=self.device)
        self.width = steps.to(torch.float64 if plan.float64_widths else torch.float32)
        self.schedule = torch.zeros(1, 2, dtype=torch.float32, device=self.device)
        if plan.head is not None and plan.variant.scheduled:
            parameters = plan.head.parameters.steps(start, stop).T * plan.head.units
            table = np.ascontiguousarray(parameters, dtype=np.float32)
            self.schedule = torch.as_tensor(table, device=self.device)


def _score_function(plan: Plan) -> Any:
    """The device function of a score or of an index."""
    if plan.variant.index != "none":
        return getattr(triton_indices, plan.score)
    return getattr(triton_policies, f"score_{plan.score}")


def _device_function(head: BoundHead | None) -> Any:
    """The device function of a head; any where there is no head."""
    if head is None:
        return triton_heads.softmax_direct
    return getattr(triton_heads, head.device) if isinstance(head.device, str) else compiled(head.device)


def _shape(plan: Plan) -> tuple[int, dict[str, int]]:
    """Threads of a program and compiler options, the fastest of those measured on an H200.

    The compiler takes a third more registers than the loop needs, for code that hardly runs; a cap makes room for
    more warps. Draws by rejection go on until the last thread of a program is done, so a program is one warp there.
    """
    variant = plan.variant
    if variant.choose == "beta":
        return 32, {"num_warps": 1}
    shape: dict[str, int] = {"num_warps": THREADS // 32}
    if variant.choose == "weight" and variant.packed and not variant.double:
        if variant.slots <= 10:
            shape["maxnreg"] = 64
        elif variant.lanes > 1:
            shape["maxnreg"] = 168
    return THREADS, shape


def _signed(word: int) -> int:
    """A 32-bit word as the int32 with the same bits, so that kernel arguments keep one type."""
    return word - (1 << 32) if word >= 1 << 31 else word
