"""The compiled step loop on CPU cores: instances in vector lanes, blocks of them spread over threads.

`simulate` follows `stau_rl.kernels.contract`. The policy becomes a specialisation (`cpu.plan`), its
source is written from templates (`cpu.steps`, `cpu.codegen`) and compiled once; this module allocates
the state, calls the compiled loop for a part of a second at a time, and collects the results.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from stau_rl.kernels.contract import ArmTable, Block, EngineError, Progress, late_start
from stau_rl.kernels.cpu.cache import seal
from stau_rl.kernels.cpu.codegen import ROWS, load_loop
from stau_rl.kernels.cpu.plan import Plan, make_plan
from stau_rl.kernels.float32 import require_float32
from stau_rl.kernels.philox import MAX_ARMS, split_seed

# Arm-steps of one call: about a tenth of a second, so that progress shows and Ctrl-C works.
WORK = 1e8
# Calls per thread and group of blocks, so that a slow thread does not hold up the others.
PIECES = 8
# Bytes of state held at once.
STATE_BYTES = 96 * 2**20
# Steps of one call where parameters change with t, as their values are held in memory.
SCHEDULED_STEPS = 1 << 16
CACHE_LINE = 64


def simulate(
    policy: Any,
    arms: ArmTable,
    *,
    seed: int,
    first_instance: int,
    horizon: int,
    checkpoints: NDArray[np.int64],
    dtype: str = "float32",
    device: str = "cpu",
    record: bool = False,
    progress: Progress | None = None,
) -> Block:
    """Play `policy` on every instance of `arms` for `horizon` steps, on the CPU.

    Args:
        policy: a policy of `stau_rl.agents`; see `cpu.plan` for those that have a compiled form.
        arms: the arms, with at most 1024 arms.
        seed: 64-bit seed.
        first_instance: global number of the block's first instance.
        horizon: number of steps T.
        checkpoints: increasing numbers of plays in [1, T] at which regret is read off.
        dtype: `float32`, the precision of weights. Scores are float64 for policies that take the largest, and where
            `kernels.float32` finds that float32 does not hold them.
        device: `cpu`.
        record: also return every action and reward.
        progress: called with the instance-steps finished since its last call, several times a second.

    Returns:
        The block's results; see `Block`.

    Raises:
        EngineError: this engine cannot run what was asked.
    """
    require_float32("numba", dtype)
    if device != "cpu":
        raise EngineError(f"the numba engine runs on device='cpu', got {device!r}; engine='torch' runs on others")
    if arms.arms > MAX_ARMS:
        raise EngineError(f"at most {MAX_ARMS} arms have random streams, got {arms.arms}")
    plan = make_plan(policy.lowered() if hasattr(policy, "lowered") else policy, arms, horizon)
    play = load_loop(plan.spec)
    checkpoints = np.ascontiguousarray(checkpoints, dtype=np.int64)
    result = _empty_block(arms, horizon, checkpoints.size, record)
    keys = [np.uint64(word) for word in split_seed(seed)]
    parameters = tuple(np.float64(value) for value in plan.parameters)
    lanes, late = plan.spec.lanes, late_start(horizon)
    table = (np.ascontiguousarray(arms.values, np.float64), np.ascontiguousarray(arms.offsets, np.int64))
    threads = numba.config.NUMBA_NUM_THREADS
    group = _blocks_per_group(plan, horizon, checkpoints.size, record, threads) * lanes
    # Compiled code holds no lock, so plain threads run it side by side and share pieces as they get free.
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, arms.instances, group):
            stop = min(start + group, arms.instances)
            state = _initial_state(plan, arms, start, stop, horizon, checkpoints.size, record)
            first = np.uint64((first_instance + start) % (1 << 64))
            blocks, rows = len(state["count"]), [state[name] for name in ROWS]
            piece = max(1, blocks // (PIECES * threads))
            steps = max(2, int(WORK / (plan.cost * arms.arms * piece * lanes)))
            if plan.changes:
                steps = min(steps, SCHEDULED_STEPS)
            for begin in range(0, horizon, steps):
                end = min(begin + steps, horizon)
                due = int(np.searchsorted(checkpoints, begin, "right"))
                shared = (
                    begin,
                    end,
                    *keys,
                    first,
                    late,
                    checkpoints,
                    due,
                    parameters,
                    *table,
                    plan.table(begin, end),
                )
                pieces = [(low, min(low + piece, blocks)) for low in range(0, blocks, piece)]
                calls = [pool.submit(play, bounds, *shared, *rows) for bounds in pieces]
                try:
                    for (low, high), call in zip(pieces, calls, strict=True):
                        call.result()
                        if progress is not None:
                            done = min(high * lanes, stop - start) - low * lanes
                            progress(done * (end - begin))
                finally:
                    for call in calls:
                        call.cancel()
            _collect(result, state, arms.arms, lanes, start, stop)
    seal(play)
    return result


def load(policy: Any, arms: ArmTable, *, horizon: int, dtype: str = "float32", device: str = "cpu") -> None:
    """Compile, or load from the disk, what a run of `horizon` steps needs; arguments and errors as in `simulate`."""
    once = np.ones(1, dtype=np.int64)
    simulate(policy, arms, seed=0, first_instance=0, horizon=1, checkpoints=once, dtype=dtype, device=device)


def _blocks_per_group(plan: Plan, horizon: int, checkpoints: int, record: bool, threads: int) -> int:
    """Blocks whose state is held at once: enough work for all threads, little enough memory."""
    spec = plan.spec
    lane_bytes = 52 * spec.arms + 16 * checkpoints + (10 * horizon if record else 0)
    by_work = threads * PIECES * WORK / (plan.cost * spec.arms * spec.lanes * horizon)
    by_memory = STATE_BYTES / (lane_bytes * spec.lanes)
    return max(1, round(min(by_work, by_memory) / threads)) * threads


def _empty_block(arms: ArmTable, horizon: int, checkpoints: int, record: bool) -> Block:
    n = arms.instances
    return Block(
        regret=np.empty((checkpoints, n)),
        optimal=np.empty((checkpoints, n), dtype=np.bool_),
        late_optimal=np.empty(n, dtype=np.int64),
        pulls=np.empty((arms.arms, n), dtype=np.int64),
        reward_sums=np.empty((arms.arms, n)),
        actions=np.empty((horizon, n), dtype=np.int16) if record else None,
        rewards=np.empty((horizon, n)) if record else None,
    )


def _aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An uninitialised array that starts on a cache line, so that no vector straddles one line more than it must."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = np.empty(size + CACHE_LINE, dtype=np.uint8)
    start = -buffer.ctypes.data % CACHE_LINE
    return buffer[start : start + size].view(dtype).reshape(shape)


def _initial_state(
    plan: Plan, arms: ArmTable, start: int, stop: int, horizon: int, checkpoints: int, record: bool
) -> dict[str, NDArray[Any]]:
    """State and output arrays of a group of blocks, blocks first; padded lanes repeat the last instance."""
    spec, flags = plan.spec, plan.spec.flags
    blocks = -(-(stop - start) // spec.lanes)
    size = spec.arms * spec.lanes

    def full(value: float, dtype: str, columns: int = size, needed: bool = True) -> NDArray[Any]:
        array = _aligned((blocks, columns if needed else 0), dtype)
        array[:] = value
        return array

    def blocked(values: NDArray[Any], needed: bool = True) -> NDArray[Any]:
        array = _aligned((blocks, size if needed else 0), values.dtype)
        if needed:
            lanes = np.minimum(np.arange(start, start + blocks * spec.lanes), stop - 1)
            wide = values[:, lanes if values.shape[1] > 1 else np.zeros_like(lanes)]
            wide = wide.reshape(spec.arms, blocks, spec.lanes).swapaxes(0, 1)
            array.reshape(blocks, spec.arms, spec.lanes)[:] = wide
        return array

    recorded = (blocks, horizon, spec.lanes) if record else (blocks, 0, 0)
    bernoulli = "BERNOULLI" in flags
    thresholds = arms.bernoulli_bounds() if bernoulli else np.empty((0, 0), np.int32)
    return {
        "count": full(0, spec.count),
        "gain": full(0, spec.gain),
        "bound": blocked(thresholds, bernoulli),
        "mu": blocked(arms.means, "GAUSSIAN" in flags),
        "mean": full(plan.mean, spec.real, needed="HAS_MEAN" in flags),
        "root": full(plan.root, spec.real, needed="HAS_ROOT" in flags),
        "preference": full(plan.preference, "float32", needed="PREFERENCES" in flags),
        "gap": blocked(arms.gaps()),
        "reward_sum": full(0, "float64", spec.lanes),
        "words": full(0, "int32", 4 * spec.lanes),
        "snapshot": full(0, "int64", spec.lanes),
        "regret": np.empty((blocks, checkpoints, spec.lanes)),
        "optimal": np.empty((blocks, checkpoints, spec.lanes), dtype=np.int64),
        "late_optimal": np.zeros((blocks, spec.lanes), dtype=np.int64),
        "actions": np.empty(recorded, dtype=np.int16),
        "rewards": np.empty(recorded),
    }


def _collect(result: Block, state: dict[str, NDArray[Any]], arms: int, lanes: int, start: int, stop: int) -> None:
    """Copy a finished group's lanes to their instances."""

    def rows(values: NDArray[Any], count: int) -> NDArray[Any]:
        return values.reshape(-1, count, lanes).swapaxes(0, 1).reshape(count, -1)[:, : stop - start]

    columns = slice(start, stop)
    checkpoints = result.regret.shape[0]
    result.regret[:, columns] = rows(state["regret"], checkpoints)
    result.optimal[:, columns] = rows(state["optimal"], checkpoints) > 0
    result.pulls[:, columns] = rows(state["count"], arms)
    result.reward_sums[:, columns] = rows(state["gain"], arms)
    optimal = (rows(state["gap"], arms) == 0.0) * result.pulls[:, columns]
    result.late_optimal[columns] = optimal.sum(axis=0) + rows(state["late_optimal"], 1)[0]
    if result.actions is not None and result.rewards is not None:
        result.actions[:, columns] = rows(state["actions"], result.actions.shape[0])
        result.rewards[:, columns] = rows(state["rewards"], result.actions.shape[0])
