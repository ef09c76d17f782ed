"""The step of the JAX scan with an array per arm, so that all of it is elementwise.

The running sums over the arms are a chain of additions, and the arm is found by comparing neighbours, so nothing is
reduced, sliced or broadcast along an axis of arms, and XLA can make one kernel of a step. A barrier after each step
keeps it from making one of several, which takes minutes to compile.
"""

from typing import Any

from stau_rl.speed.jax_math import weights
from stau_rl.speed.jax_settings import Settings


def play_chunk(
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
    mean = [means[k] for k in range(arms)]

    def step(state: Any, t: Any, action: Any, reward: Any) -> Any:
        counts, sums, inverse = state
        bonus = c * jnp.sqrt(2.0 * jnp.log(t.astype(jnp.float32)))
        ucb = [s * (i * i) + bonus * i for s, i in zip(sums, inverse, strict=True)]
        centre = sum(ucb[1:], ucb[0]) * (1.0 / arms)
        cdf: list[Any] = []
        for score in ucb:
            weight = weights(score - centre, settings.softplus, settings.power, tau, beta)
            cdf.append(cdf[-1] + weight if cdf else weight)
        beyond = [total > action * cdf[-1] for total in cdf[:-1]]
        true = jnp.ones_like(action, dtype=bool)
        pulled = [b & ~a for a, b in zip([~true, *beyond], [*beyond, true], strict=True)]
        counts = tuple(n + p.astype(jnp.float32) for n, p in zip(counts, pulled, strict=True))
        won = (p & (reward < m) for p, m in zip(pulled, mean, strict=True))
        sums = tuple(s + w.astype(jnp.float32) for s, w in zip(sums, won, strict=True))
        inverse = tuple(jnp.where(p, lax.rsqrt(n), i) for p, n, i in zip(pulled, counts, inverse, strict=True))
        return counts, sums, inverse

    def block(state: Any, start: Any, size: int) -> Any:
        uniforms = jax.random.uniform(jax.random.fold_in(key, start), (size, 2, chunk))
        for i in range(size):
            state = lax.optimization_barrier(step(state, start + i, uniforms[i, 0], uniforms[i, 1]))
        return state

    # The first K steps pull arm t, so they are one draw per arm.
    first = jax.random.uniform(jax.random.fold_in(key, 0), (arms, chunk)) < means
    one = [jnp.full(chunk, float(k < horizon)) for k in range(arms)]
    state = (tuple(one), tuple(n * first[k] for k, n in enumerate(one)), tuple(one))
    steps = max(horizon - arms, 0)
    tail = steps % settings.unroll
    if steps > tail:
        starts = jnp.arange(arms, horizon - tail, settings.unroll, dtype=jnp.int32)
        state, _ = lax.scan(lambda state, t: (block(state, t, settings.unroll), None), state, starts)
    if tail:
        state = block(state, jnp.int32(horizon - tail), tail)
    return jnp.stack(state[0])
