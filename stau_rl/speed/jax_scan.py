"""The bandit loop as a JAX user would write it for speed: the peer of the project's own engines.

Centred UCB scores | s_tau or softmax on Bernoulli arms, `lax.scan` over steps, JAX's own random numbers, float32.
What made it fast on CPU, and why the code looks as it does:

- XLA fuses a chain of slices by computing its producers again for every slice, so `optimization_barrier` cuts
  the step into five passes: centre, weights, cumulative weights, arm, update.
- `log` and `exp` dominate; base-2 softplus in two short polynomials costs a quarter of `log1p(exp(s))`.
- XLA prefers 256-bit vectors on CPU unless told otherwise (`vector_width`).
- The batch runs in chunks whose state stays in L2, in one process per core with intra-op threads off
  (`NPROC=1`): splitting passes of some microseconds over threads costs more than it gains, and several host
  devices in one process (`--xla_force_host_platform_device_count`) still split their passes over threads.

JAX is an optional extra (`pip install "stau-rl[peers]"`); importing this module does not import it.
"""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stau_rl.speed.jax_math import running_sums, weights
from stau_rl.speed.jax_settings import PLAIN, Settings


def simulate(
    *,
    means: ArrayLike | int,
    c: float,
    tau: float | None = None,
    beta: float | None = None,
    seed: int,
    horizon: int,
    instances: int,
    settings: Settings = PLAIN,
    **changes: Any,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Play centred UCB scores | s_tau(tau) or softmax(beta) on Bernoulli arms.

    Arm t at step t < K; then ucb_k = mean_k + c sqrt(2 ln N / n_k), minus its mean over the arms; weights
    (softplus(s) + 1e-8)^tau or exp(beta s); arm = first k with cdf_k > u * total.

    Args:
        means: [arms] shared by all instances, or [arms, instances], or a number of arms whose means are drawn
            per instance, uniformly on [0, 1).
        c: exploration constant.
        tau: exponent of s_tau, at least 1; or
        beta: inverse temperature of softmax.
        seed: seed of JAX's key.
        horizon: steps T, below 2^24 (counts are float32).
        instances: independent replicates.
        settings: how the loop is written; see `Settings`.
        **changes: fields of `Settings` to replace, for example `layout="instances_first"`.

    Returns:
        Pseudo-regret after T plays, float64 [instances], and pulls, int64 [arms, instances].

    Raises:
        ValueError: an argument is out of range.
        ImportError: JAX is not installed.
    """
    settings = replace(settings, **changes)
    table, play = _prepare(means, c, tau, beta, seed, horizon, instances, settings)
    arms = int(means) if table is None else table  # type: ignore[arg-type]
    if settings.processes is None:
        return play(arms, instances, 0)()
    bounds = [instances * i // settings.processes for i in range(settings.processes + 1)]
    futures = []
    for share, (start, end) in enumerate(pairwise(bounds)):
        if start < end:
            own = arms[:, start:end] if isinstance(arms, np.ndarray) and arms.ndim == 2 else arms
            futures.append(_workers(settings.processes).submit(_play_whole, play, own, end - start, share))
    results = [future.result() for future in futures]
    return np.concatenate([r for r, _ in results]), np.concatenate([p for _, p in results], axis=1)


def start(
    *,
    means: ArrayLike | int,
    c: float,
    tau: float | None = None,
    beta: float | None = None,
    seed: int,
    horizon: int,
    instances: int,
    settings: Settings = PLAIN,
) -> Callable[[], tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Play as `simulate` does, in this process, and leave the counts on the device; what comes back fetches them."""
    table, play = _prepare(means, c, tau, beta, seed, horizon, instances, settings)
    return play(int(means) if table is None else table, instances, 0)  # type: ignore[arg-type]


def _prepare(
    means: ArrayLike | int,
    c: float,
    tau: float | None,
    beta: float | None,
    seed: int,
    horizon: int,
    instances: int,
    settings: Settings,
) -> tuple[NDArray[np.float32] | None, Any]:
    """Check the arguments; the table of means, if there is one, and `_start` without its last arguments."""
    if not 0 < horizon < 1 << 24:
        raise ValueError(f"horizon must be in [1, 2^24), got {horizon!r}")
    if instances < 1:
        raise ValueError(f"instances must be at least 1, got {instances!r}")
    if (tau is None) == (beta is None):
        raise ValueError(f"one of tau and beta must be given, got tau={tau!r} and beta={beta!r}")
    if tau is not None and not tau >= 1:
        raise ValueError(f"tau must be at least 1, got {tau!r}")
    table: NDArray[np.float32] | None = None
    if not isinstance(means, (int, np.integer)):
        table = np.asarray(means, dtype=np.float32)
        if table.ndim not in (1, 2) or (table.ndim == 2 and table.shape[1] != instances):
            raise ValueError(f"means must be [arms] or [arms, {instances}], got shape {table.shape}")
    return table, partial(_start, c=float(c), tau=tau, beta=beta, horizon=horizon, settings=settings, seed=seed)


_POOLS: list[ProcessPoolExecutor] = []


@lru_cache(maxsize=1)
def _workers(processes: int) -> ProcessPoolExecutor:
    """Worker processes that outlive the call, so that each compiles a loop once."""
    context = multiprocessing.get_context("spawn")
    _POOLS.append(ProcessPoolExecutor(processes, mp_context=context, initializer=_single_thread))
    return _POOLS[-1]


def stop_workers() -> None:
    """End the worker processes; a later call starts new ones."""
    _workers.cache_clear()
    while _POOLS:
        _POOLS.pop().shutdown()


def _single_thread() -> None:
    """Keep XLA of this process to one thread; must run before JAX starts."""
    os.environ["NPROC"] = "1"


def _play_whole(play: Any, *arguments: Any) -> Any:
    """What `_start` gives, fetched, so that it travels between processes."""
    return play(*arguments)()


def _start(
    means: int | NDArray[np.float32],
    instances: int,
    share: int,
    *,
    c: float,
    tau: float | None,
    beta: float | None,
    seed: int,
    horizon: int,
    settings: Settings,
) -> Callable[[], tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Play one process's share of the instances, its key `seed` folded with `share`; what comes back fetches it."""
    import jax

    devices = settings.devices
    if not 1 <= devices <= len(jax.devices()):
        raise ValueError(f"devices must be in [1, {len(jax.devices())}], got {devices!r}")
    chunk = min(settings.chunk or instances, -(-instances // devices))
    per_device = -(-instances // (chunk * devices))
    padded = chunk * per_device * devices
    table = means if isinstance(means, np.ndarray) else None
    arms = int(means) if table is None else int(table.shape[0])
    per_instance = table is not None and table.ndim == 2
    if table is not None and per_instance:
        table = np.pad(table, ((0, 0), (0, padded - instances)))
        table = table.reshape(arms, -1, chunk).transpose(1, 0, 2)  # [chunks, arms, chunk]

    run = _compiled(settings, arms, horizon, chunk, devices, c, tau, beta, table is None, per_instance)
    chunks = np.arange(padded // chunk, dtype=np.uint32)
    key = jax.random.key(seed, impl="threefry2x32" if settings.rng.startswith("threefry") else settings.rng)
    played, true_means = run(
        jax.random.fold_in(key, share), chunks, np.zeros(0, np.float32) if table is None else table
    )
    jax.block_until_ready(played)

    def fetch() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        pulls = np.asarray(played).transpose(1, 0, 2).reshape(arms, padded)[:, :instances].astype(np.int64)
        if table is not None and table.ndim == 1:
            mu = table[:, None].astype(np.float64)
        else:
            mu = np.asarray(true_means, dtype=np.float64).transpose(1, 0, 2).reshape(arms, padded)[:, :instances]
        return (pulls * (mu.max(axis=0) - mu)).sum(axis=0), pulls

    return fetch


@lru_cache(maxsize=64)
def _compiled(
    settings: Settings,
    arms: int,
    horizon: int,
    chunk: int,
    devices: int,
    c: float,
    tau: float | None,
    beta: float | None,
    drawn: bool,
    per_instance: bool,
) -> Any:
    """The jitted loop, (key, chunk numbers, means) -> (pulls, means), both [chunks, arms, chunk or 1]."""
    import jax
    from jax.sharding import Mesh, PartitionSpec

    def play(key: Any, number: Any, means: Any) -> Any:
        key = jax.random.fold_in(key, number)
        if drawn:
            means = jax.random.uniform(jax.random.fold_in(key, horizon), (arms, chunk))
        elif not per_instance:
            means = means[:, None]
        if settings.layout == "arms_apart":
            from stau_rl.speed.jax_arms_apart import play_chunk

            return play_chunk(key, means, settings, chunk, horizon, c, tau, beta), means
        return _play_chunk(key, means, settings, chunk, horizon, c, tau, beta), means

    def device_part(key: Any, numbers: Any, means: Any) -> Any:
        if per_instance:
            return jax.lax.map(lambda item: play(key, *item), (numbers, means))
        return jax.lax.map(lambda number: play(key, number, means), numbers)

    options = {}
    if settings.vector_width is not None and jax.default_backend() == "cpu":
        options["xla_cpu_prefer_vector_width"] = str(settings.vector_width)
    split, whole = PartitionSpec("device"), PartitionSpec()
    mesh = Mesh(np.array(jax.devices()[:devices]), ("device",))
    part = jax.shard_map(
        device_part,
        mesh=mesh,
        in_specs=(whole, split, split if per_instance else whole),
        out_specs=(split, split),
        check_vma=False,
    )
    compiled = jax.jit(part, compiler_options=options)

    def run(*arguments: Any) -> Any:
        with jax.threefry_partitionable(settings.rng == "threefry_partitionable"):
            return compiled(*arguments)

    return run


def _play_chunk(
    key: Any,
    means: Any,
    settings: Settings,
    chunk: int,
    horizon: int,
    c: float,
    tau: float | None,
    beta: float | None,
) -> Any:
    """Pulls [arms, chunk] of one chunk; means [arms, chunk or 1]."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    arms = means.shape[0]
    axis, shape = (0, (arms, chunk)) if settings.layout == "arms_first" else (1, (chunk, arms))
    means = means if axis == 0 else means.T
    number = lax.broadcasted_iota(jnp.int32, shape, axis)
    cut = lax.optimization_barrier

    def step(state: tuple[Any, ...], t: Any, uniforms: Any) -> tuple[Any, ...]:
        counts, sums = state[:2]
        inverse = state[2] if settings.cache_rsqrt else lax.rsqrt(counts)  # 1/sqrt(n)
        bonus = c * jnp.sqrt(2.0 * jnp.log(t.astype(jnp.float32)))
        ucb = sums * (inverse * inverse) + bonus * inverse
        centre = cut(ucb.sum(axis, keepdims=True) * (1.0 / arms))
        if settings.sampling == "inverse_cdf":
            action, reward = uniforms
            cdf = cut(
                running_sums(
                    cut(weights(ucb - centre, settings.softplus, settings.power, tau, beta)), axis, settings.cdf
                )
            )
            total = lax.slice_in_dim(cdf, arms - 1, arms, axis=axis)
            below = lax.slice_in_dim(cdf, 0, arms - 1, axis=axis)
            arm = jnp.sum(below <= jnp.expand_dims(action, axis) * total, axis, dtype=jnp.int32)
        else:
            action_key, reward_key = jax.random.split(jax.random.fold_in(key, t))
            reward = jax.random.uniform(reward_key, (chunk,))
            logits = jnp.log(weights(ucb - centre, settings.softplus, "pow", tau, beta))
            if settings.sampling == "categorical":
                arm = jax.random.categorical(action_key, logits, axis=axis)
            else:
                arm = jnp.argmax(logits + cut(jax.random.gumbel(action_key, shape)), axis)
        pulled = number == jnp.expand_dims(cut(arm.astype(jnp.int32)), axis)
        won = pulled & (jnp.expand_dims(reward, axis) < means)
        counts = counts + pulled.astype(jnp.float32)
        sums = sums + won.astype(jnp.float32)
        if settings.cache_rsqrt:
            return counts, sums, jnp.where(pulled, lax.rsqrt(counts), inverse)
        return counts, sums

    def block(state: tuple[Any, ...], start: Any, size: int) -> tuple[Any, ...]:
        uniforms: Any = [None] * size
        if settings.sampling == "inverse_cdf" and settings.draw == "block":
            uniforms = cut(jax.random.uniform(jax.random.fold_in(key, start), (size, 2, chunk)))
        for i in range(size):
            if settings.sampling == "inverse_cdf" and settings.draw == "step":
                uniforms[i] = cut(jax.random.uniform(jax.random.fold_in(key, start + i), (2, chunk)))
            state = step(state, start + i, uniforms[i])
        return state

    # The first K steps pull arm t, so they are one draw per arm.
    played = number < horizon
    first = jax.random.uniform(jax.random.fold_in(key, 0), shape) < means
    counts = played.astype(jnp.float32)
    state: tuple[Any, ...] = (counts, (played & first).astype(jnp.float32), counts)
    if not settings.cache_rsqrt:
        state = state[:2]
    steps = max(horizon - arms, 0)
    tail = steps % settings.unroll
    if steps > tail:
        starts = jnp.arange(arms, horizon - tail, settings.unroll, dtype=jnp.int32)
        state, _ = lax.scan(lambda state, t: (block(state, t, settings.unroll), None), state, starts)
    if tail:
        state = block(state, jnp.int32(horizon - tail), tail)
    return state[0] if axis == 0 else state[0].T
