"""Accuracy of the compiled engine's elementary functions against float64 and 60-digit references."""

from collections.abc import Callable

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from scipy import special, stats

from stau_rl.kernels.cpu import heads as numba_heads
from stau_rl.kernels.cpu import heads_wide
from stau_rl.kernels.cpu import math as numba_math
from stau_rl.kernels.cpu.beta import beta_draw
from stau_rl.kernels.cpu.lanes import WIDTH, iota, load, store
from stau_rl.kernels.cpu.philox import philox
from stau_rl.kernels.philox import PRIVATE, split_seed, words


def apply(function: Callable, x: NDArray, *parameters: float) -> NDArray:
    """Run a device function over an array, sixteen values at a time."""
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    out = np.empty(x.size, dtype=dtype)
    padded = np.resize(x, -(-x.size // WIDTH) * WIDTH)

    if parameters:
        first, second = parameters

        @njit
        def sweep(values, result):
            for i in range(0, values.size, WIDTH):
                store(result, i, function(load(values, i), first, second))
    else:

        @njit
        def sweep(values, result):
            for i in range(0, values.size, WIDTH):
                store(result, i, function(load(values, i)))

    wide = np.empty(padded.size, dtype=dtype)
    sweep(padded, wide)
    out[:] = wide[: x.size]
    assert np.isfinite(out).all()
    return out


def relative(got: NDArray, wanted: NDArray) -> float:
    return float(np.max(np.abs(got.astype(np.float64) - wanted) / np.abs(wanted)))


def test_exp2_nonpositive() -> None:
    x = np.linspace(-125.9, 0.0, 400_001).astype(np.float32)
    assert relative(apply(numba_math.exp2_nonpositive, x), np.exp2(x.astype(np.float64))) < 2.5e-7
    far = np.array([-126.6, -127.0, -1e4, -1e30], dtype=np.float32)
    assert (apply(numba_math.exp2_nonpositive, far) == 0.0).all()


def test_the_wide_softplus() -> None:
    x = np.linspace(-40.0, 40.0, 4001)
    wanted = np.log2(np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0))
    assert np.abs(apply(heads_wide.softplus_norm_wide, x, 0.0, 0.0) - wanted).max() < 1e-9


def test_log2_positive() -> None:
    x = np.concatenate([np.geomspace(1.2e-38, 3e38, 400_001), np.linspace(0.5, 2.0, 400_001)]).astype(np.float32)
    wanted = np.log2(x.astype(np.float64))
    error = np.abs(apply(numba_math.log2_positive, x) - wanted)
    assert (error <= 1.5e-7 + 1e-7 * np.abs(wanted)).all()
    assert apply(numba_math.log2_positive, np.array([1.0, 0.0], dtype=np.float32)).tolist() == [0.0, -127.0]


@njit
def _whole_powers(x, exponent, out):
    switches = numba_math.power_switches(exponent)
    for i in range(0, x.size, WIDTH):
        store(out, i, numba_math.whole_power(load(x, i), switches))


@pytest.mark.parametrize("exponent", range(1, 16))
def test_whole_power(exponent: int) -> None:
    x = np.linspace(0.01, 1.0, 4096).astype(np.float32)
    out = np.empty_like(x)
    _whole_powers(x, float(exponent), out)
    assert relative(out, x.astype(np.float64) ** exponent) < 1e-6
    _whole_powers(np.zeros(WIDTH, dtype=np.float32), float(exponent), out[:WIDTH])
    assert (out[:WIDTH] == 0.0).all()


def test_softplus2_and_its_logarithm() -> None:
    y = np.concatenate([np.linspace(-125.9, 130, 400_001), np.linspace(-2, 2, 100_001)]).astype(np.float32)
    wanted = np.logaddexp2(y.astype(np.float64), 0.0)
    assert relative(apply(numba_math.softplus2, y), wanted) < 4e-7
    y = np.concatenate([y, [-1e4, -130.0, -24.0, 1e4]]).astype(np.float32)
    # log2 log2(1 + 2^y) by its series where the sum would round to 1.
    x = y.astype(np.float64)
    wanted = np.where(x < -30, x - np.log2(np.log(2)), np.log2(np.logaddexp2(np.maximum(x, -30.0), 0.0)))
    error = np.abs(apply(numba_math.log2_softplus2, y) - wanted)
    assert (error <= 8e-7 + 1e-7 * np.abs(wanted)).all()


def test_logistic2() -> None:
    y = np.linspace(-125.9, 130, 400_001).astype(np.float32)
    assert relative(apply(numba_math.logistic2, y), special.expit(y.astype(np.float64) * np.log(2))) < 4e-7


def test_normal_quantile_at_every_scale() -> None:
    near_ends = np.arange(50_000)
    word = np.concatenate([near_ends, np.arange(0, 1 << 24, 7), (1 << 24) - 1 - near_ends]).astype(np.int32)
    wanted = special.ndtri((word + 0.5) * 2.0**-24)
    got = apply(numba_math.normal_quantile, word)
    assert relative(got, wanted) < 6e-7
    mirrored = apply(numba_math.normal_quantile, (1 << 24) - 1 - word)
    assert (got == -mirrored).all()


def test_float64_logarithm_and_exponential() -> None:
    x = np.concatenate([np.geomspace(1e-300, 1e300, 200_001), np.linspace(0.5, 2.0, 200_001)])
    error = np.abs(apply(numba_math.log64, x) - np.log(x))
    assert (error <= 4e-16 + 3e-16 * np.abs(np.log(x))).all()
    y = np.linspace(-690.0, 690.0, 400_001)
    assert (np.abs(apply(numba_math.exp64, y) / np.exp(y) - 1.0) <= 4e-15 + 2e-16 * np.abs(y)).all()


def test_gumbel_at_every_scale() -> None:
    near_ends = np.arange(20_000)
    word = np.concatenate([near_ends, np.arange(0, 1 << 24, 31), (1 << 24) - 1 - near_ends]).astype(np.int32)
    word = np.resize(word, -(-word.size // WIDTH) * WIDTH)
    gumbel, got = numba_math.gumbel, np.empty(word.size)

    @njit
    def sweep(values, result):
        for i in range(0, values.size, WIDTH):
            store(result, i, gumbel(load(values, i)))

    sweep(word, got)
    wanted = stats.gumbel_r.ppf((word + 0.5) * 2.0**-24)
    assert (np.abs(got - wanted) <= 3e-8 + 1e-15 * np.abs(wanted)).all()


SCORES = np.concatenate([np.linspace(-60, 60, 60_001), [-1e4, -300.0, 300.0, 1e4]]).astype(np.float32)


def _log_softplus(s: NDArray) -> NDArray:
    return np.where(s < -30, s, np.log(np.logaddexp(0.0, np.maximum(s, -30.0))))


HEADS = {
    "softmax": ((3.6, 0.0), lambda s: 3.6 * s, lambda s: 3.6 + 0 * s),
    "s_tau": (
        (5.0, 1e-8),
        lambda s: 5 * np.logaddexp(_log_softplus(s), np.log(1e-8)),
        lambda s: 5 * special.expit(s) / (np.exp(_log_softplus(s)) + 1e-8),
    ),
    "s_tau_tail": (
        (5.0, numba_heads.NEVER),
        lambda s: 5 * _log_softplus(s),
        lambda s: 5 * np.where(s < -30, 1.0, special.expit(s) / np.exp(_log_softplus(np.maximum(s, -30)))),
    ),
    "softplus_norm": (
        (0.0, 0.0),
        _log_softplus,
        lambda s: np.where(s < -30, 1.0, special.expit(s) / np.exp(_log_softplus(np.maximum(s, -30)))),
    ),
    "sigmoid_norm": ((0.0, 0.0), special.log_expit, lambda s: special.expit(-s)),
    "clamp_power": ((5.0, 0.25), lambda s: 5 * np.log(np.maximum(s, 0.25)), None),
    "escort": ((2.0, 0.0), lambda s: 2 * np.log(np.abs(s)), lambda s: 2 / s),
}


@pytest.mark.parametrize("name", numba_heads.DEVICE_HEADS)
def test_head_against_float64(name: str) -> None:
    parameters, log_weight, slope = HEADS[name]
    scores = SCORES[SCORES != 0.0]
    exact = scores.astype(np.float64)
    got = apply(numba_heads.DEVICE_HEADS[name].log2_weight, scores, *parameters) * np.log(2)
    wanted = log_weight(exact)
    # The softplus is counted in units of ln 2, a constant factor of every weight.
    shift = {"s_tau": 5, "s_tau_tail": 5, "softplus_norm": 1}.get(name, 0) * np.log(np.log(2))
    scale = max(parameters[0], 1.0)
    error = np.abs(got + shift - wanted)
    assert (error <= 1e-6 * scale + 3e-7 * np.abs(wanted)).all(), error.max()
    if slope is None:
        assert numba_heads.DEVICE_HEADS[name].slope is None
        return
    got = apply(numba_heads.DEVICE_HEADS[name].slope, scores, *parameters)
    inside = np.abs(exact) < 80
    error = np.abs(got[inside] / slope(exact[inside]) - 1.0)
    # e^s of a rounded s log2 e carries a relative error in proportion to s.
    assert (error <= 1e-6 + 2e-7 * np.abs(exact)[inside]).all(), error.max()


def test_zero_escort_scores_are_never_drawn() -> None:
    zero = np.zeros(WIDTH, dtype=np.float32)
    assert (apply(numba_heads.escort_log2, zero, 2.0, 0.0) == np.float32(numba_heads.NEVER)).all()
    assert (apply(numba_heads.escort_slope, zero, 2.0, 0.0) == 0.0).all()


@njit
def _philox_words(first, index, stream, low, high, out):
    word_0, word_1, word_2, word_3 = philox(iota() + first, index, stream, low, high)
    store(out, 0, word_0)
    store(out, WIDTH, word_1)
    store(out, 2 * WIDTH, word_2)
    store(out, 3 * WIDTH, word_3)


@pytest.mark.parametrize("seed", [0, 7, (1 << 64) - 1])
@pytest.mark.parametrize("first", [0, 12345678901, (1 << 63) - 1 - WIDTH])
def test_philox_lanes_equal_the_reference(seed: int, first: int) -> None:
    out = np.empty(4 * WIDTH, dtype=np.int32)
    index, stream = 123_456_789, PRIVATE + 3 + 1024 * 5
    _philox_words(np.uint64(first), np.uint64(index), np.uint64(stream), *map(np.uint64, split_seed(seed)), out)
    instances = np.arange(WIDTH, dtype=np.int64) + first
    assert (out.reshape(4, WIDTH) == np.stack(words(seed, instances, index, stream)) >> 8).all()


@njit
def _beta_draws(a, b, low, high, out):
    for i in range(0, out.size, WIDTH):
        instance = iota() + np.uint64(i)
        store(out, i, beta_draw(load(a, 0), load(b, 0), instance, np.uint64(11), 2, low, high))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 2), (2, 1), (1, 40), (40, 1), (2, 2), (3, 17), (900, 1100)])
def test_beta_draws_follow_the_law(a: int, b: int) -> None:
    out = np.empty(160_000)
    _beta_draws(np.full(WIDTH, float(a)), np.full(WIDTH, float(b)), np.uint64(5), np.uint64(0), out)
    # Fixed seed; each of the eight cases fails for one seed in a thousand.
    assert stats.kstest(out, stats.beta(a, b).cdf).pvalue > 1e-3


@pytest.mark.parametrize("b", [2, 3, 10, 1000])
def test_beta_envelope_holds_at_shape_one(b: int) -> None:
    y = np.geomspace(1e-9, 1e9, 200_001)
    log_ratio = -(1 + b) * np.log1p(y) + 2 * np.log(1 / b + y)
    at_mean = -(1 + b) * np.log1p(1 / b) + 2 * np.log(2 / b)
    assert log_ratio.max() <= at_mean + 1e-12
