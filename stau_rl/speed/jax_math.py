"""Pieces of the JAX scan's step, in the forms that `stau_rl.speed.jax_settings.Settings` names."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

EPS = 1e-8
LN2 = float(np.log(2.0))


def weights(scores: Any, form: str, power: str, tau: float | None, beta: float | None) -> Any:
    """The head's weights of scores, (softplus(s) + 1e-8)^tau up to a factor, or exp(beta s)."""
    import jax.numpy as jnp

    if tau is None:
        return jnp.exp(beta * scores)
    eps = EPS / LN2 if form == "poly" else EPS
    return _power(softplus(scores, form) + eps, tau, power)


def running_sums(weights: Any, axis: int, form: str) -> Any:
    """Cumulative sums over the arms."""
    import jax.numpy as jnp
    from jax import lax

    arms = weights.shape[axis]
    if form == "cumsum":
        return jnp.cumsum(weights, axis)
    if form == "matmul":
        lower = jnp.tril(jnp.ones((arms, arms), jnp.float32))
        return lower @ weights if axis == 0 else weights @ lower.T
    rows = [lax.index_in_dim(weights, 0, axis, keepdims=False)]
    for k in range(1, arms):
        rows.append(rows[-1] + lax.index_in_dim(weights, k, axis, keepdims=False))
    return jnp.stack(rows, axis)


def _power(base: Any, tau: float, form: str) -> Any:
    """base^tau."""
    import jax.numpy as jnp
    from jax import lax

    if form == "multiply" and tau == int(tau):
        return lax.integer_pow(base, int(tau))
    return jnp.exp(tau * jnp.log(base)) if form == "exp_log" else base**tau


def softplus(scores: Any, form: str) -> Any:
    """Softplus of scores, in units of ln 2 for the form `poly` (the unit cancels in the weights)."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    if form == "library":
        return jax.nn.softplus(scores)
    if form == "log1p":
        return jnp.log1p(jnp.exp(scores))
    if form == "log":
        return jnp.log(1.0 + jnp.exp(scores))
    # y = s / ln 2:  softplus(s) / ln 2 = max(y, 0) + log2(1 + z),  z = 2^-|y|.
    y = scores * (1.0 / LN2)
    exponent = jnp.maximum(-jnp.abs(y), -126.0)
    # Not the add-a-large-number rounding: XLA simplifies (x + a) - a to x.
    whole = jnp.floor(exponent + 0.5)
    exp2, log2_ratio = _polynomials()
    bits = lax.bitcast_convert_type(_horner(exp2, exponent - whole), jnp.int32)
    z = lax.bitcast_convert_type(bits + (whole.astype(jnp.int32) << 23), jnp.float32)
    return jnp.maximum(y, 0.0) + z * _horner(log2_ratio, z)


def _horner(coefficients: tuple[float, ...], x: Any) -> Any:
    """Polynomial of x, coefficients from the constant up."""
    value = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


@lru_cache(maxsize=1)
def _polynomials() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Chebyshev interpolants of 2^f on [-1/2, 1/2] and log2(1 + z) / z on [0, 1], as monomials."""

    def fit(function: Any, degree: int, low: float, high: float) -> tuple[float, ...]:
        series = chebyshev.Chebyshev.interpolate(function, degree, domain=[low, high])
        return tuple(float(v) for v in series.convert(kind=np.polynomial.Polynomial).coef)

    return fit(np.exp2, 6, -0.5, 0.5), fit(lambda z: np.log1p(z) / (z * LN2), 8, 0.0, 1.0)
