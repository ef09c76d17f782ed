"""Philox4x32-10: known answers, exact uniforms, and a word table whose streams never meet."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy import stats

from stau_rl.kernels import philox
from stau_rl.kernels.philox import closed_uniform, open_uniform, philox4x32, split_seed, words

KNOWN = json.loads((Path(__file__).parent / "data" / "golden_bandits.json").read_text())["philox4x32_10"]


def _reference(counter: list[int], key: list[int]) -> list[int]:
    """The ten rounds on Python's whole numbers, written from the paper's figure."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high_0, low_0 = divmod(c[0] * 0xD2511F53, 1 << 32)
        high_1, low_1 = divmod(c[2] * 0xCD9E8D57, 1 << 32)
        c = [high_1 ^ c[1] ^ k[0], low_1, high_0 ^ c[3] ^ k[1], low_0]
        k = [(k[0] + 0x9E3779B9) % (1 << 32), (k[1] + 0xBB67AE85) % (1 << 32)]
    return c


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["ctr"][0])
@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_known_answers(case: dict[str, list[str]], make: Any) -> None:
    counter = tuple(make([int(word, 16)]) for word in case["ctr"])
    out = philox4x32(counter, tuple(int(word, 16) for word in case["key"]))
    assert [f"{int(word[0]):08x}" for word in out] == case["out"]


def test_the_reference_of_these_tests_gives_the_known_answers() -> None:
    for case in KNOWN:
        out = _reference([int(word, 16) for word in case["ctr"]], [int(word, 16) for word in case["key"]])
        assert [f"{word:08x}" for word in out] == case["out"]


@pytest.mark.parametrize("seed", [0, 7, (1 << 32) + 5, (1 << 64) - 1])
@pytest.mark.parametrize("first", [0, (1 << 32) - 2, (1 << 40) + 3, (1 << 63) - 4, -3], ids=hex)
def test_words_of_64_bit_seeds_and_instances(seed: int, first: int) -> None:
    # A negative int64 stands for the upper half of the 64-bit instance numbers.
    numbers = np.arange(first, first + 3)
    found = words(seed, numbers, 123, philox.SECOND)
    for place, number in enumerate(numbers.tolist()):
        number %= 1 << 64
        counter = [number % (1 << 32), number >> 32, 123, philox.SECOND]
        assert [int(word[place]) for word in found] == _reference(counter, [seed % (1 << 32), seed >> 32])


def test_numpy_and_torch_agree_and_broadcast() -> None:
    index = np.arange(5)[:, None]
    by_numpy = words(1 << 50, np.arange(1 << 33, (1 << 33) + 7), index, philox.PRIVATE + index)
    same = torch.tensor(index)
    by_torch = words(1 << 50, torch.arange(1 << 33, (1 << 33) + 7), same, philox.PRIVATE + same)
    for ours, theirs in zip(by_numpy, by_torch, strict=True):
        assert ours.shape == (5, 7)
        assert ours.dtype == np.int64
        assert_array_equal(ours, theirs.numpy())
        assert ours.min() >= 0
        assert ours.max() < 1 << 32


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_uniforms_are_exact_multiples(make: Any) -> None:
    word = make([0, 255, 256, 0x80000000, 0xFFFFFFFF])
    # word >> 8 is 0, 0, 1, 2^23, 2^24 - 1.
    assert closed_uniform(word).tolist() == [0.0, 0.0, 2.0**-24, 0.5, 1.0 - 2.0**-24]
    assert open_uniform(word).tolist() == [2.0**-25, 2.0**-25, 3 * 2.0**-25, 0.5 + 2.0**-25, 1.0 - 2.0**-25]


@pytest.mark.parametrize("seed", [-1, 1 << 64, 0.0, "0", None, True])
def test_seeds_out_of_range_are_named(seed: Any) -> None:
    with pytest.raises(ValueError, match=rf"seed must be an integer in \[0, 2\^64\), got {seed!r}"):
        split_seed(seed)


def test_seeds_split_into_halves() -> None:
    assert split_seed((3 << 32) + 9) == (9, 3)
    assert split_seed(np.uint64((1 << 64) - 1)) == (0xFFFFFFFF, 0xFFFFFFFF)


def test_streams_never_share_a_counter() -> None:
    # Private draws of arm k, attempt j start at 16 and are distinct for k < 1024; the four others lie below.
    private = {philox.PRIVATE + k + 1024 * j for k in range(philox.MAX_ARMS) for j in range(64)}
    assert len(private) == philox.MAX_ARMS * 64
    others = [philox.ACTION_REWARD, philox.ARM_MEAN, philox.DYNAMICS, philox.SECOND]
    assert sorted(others) == [0, 1, 2, 3]
    assert private.isdisjoint(others)


def test_words_are_distinct_over_instances_steps_streams_and_seeds() -> None:
    # 2 x 3 x 5 x 8 draws of 128 bits: two equal ones by chance have probability below 1e-33.
    draws = [
        tuple(int(word[i]) for word in words(seed, np.arange(8), index, stream))
        for seed in (0, 1)
        for index in (0, 1, 2)
        for stream in (0, 1, 2, 3, philox.PRIVATE)
        for i in range(8)
    ]
    assert len(set(draws)) == len(draws)


def test_uniforms_are_uniform_and_uncorrelated() -> None:
    # Fixed seed; each p-value is below 1e-4 with that probability, were the draws new. Four plus six tests.
    uniforms = [closed_uniform(word) for word in words(2024, np.arange(20_000), 5, 0)]
    for uniform in uniforms:
        assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    for i in range(4):
        for j in range(i):
            assert stats.pearsonr(uniforms[i], uniforms[j]).pvalue > 1e-4
