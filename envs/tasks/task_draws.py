"""Counter-based draws for tasks: every word is a hash of (seed, index of the item, stream, place), on any device.

word_i = mix(start + (i + 1) gamma), start = mix(mix(mix(seed) + index) + stream): the stream of SplitMix64 from a start
of its own for each item and purpose. Integers only, so that all devices agree.

Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

import torch
from torch import Tensor


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


GAMMA = _signed(0x9E3779B97F4A7C15)
_FIRST, _SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Right shift that brings in zeros; torch's own repeats the sign."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def mix(z: Tensor) -> Tensor:
    """SplitMix64's finaliser, a bijection of 64-bit words held as int64; products wrap."""
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


class Draws:
    """The draws of some items.

    Args:
        seed: whole number in [0, 2^63), or int64 tensor of them that broadcasts against `index`.
        index: number of each item, int64 tensor of any shape; its device is where the draws are made.

    Raises:
        ValueError: the seed is out of range, or the index is no int64 tensor.
    """

    def __init__(self, seed: int | Tensor, index: Tensor) -> None:
        if not isinstance(index, Tensor) or index.dtype != torch.int64:
            raise ValueError(f"index must be an int64 tensor, got {getattr(index, 'dtype', type(index).__name__)}")
        if not isinstance(seed, Tensor):
            seed = torch.tensor(check_seed(seed), device=index.device)
        self._item = mix(mix(seed) + index)

    @property
    def device(self) -> torch.device:
        """Where the draws are made."""
        return self._item.device

    def words(self, stream: int, count: int) -> Tensor:
        """Words of one purpose: int64 [items..., count]."""
        steps = torch.arange(1, count + 1, device=self.device) * GAMMA
        return mix(mix(self._item + stream)[..., None] + steps)

    def uniforms(self, stream: int, count: int) -> Tensor:
        """Uniforms in (0, 1): float64 [items..., count], ((word >>> 12) + 1/2) 2^-52."""
        return (_shift(self.words(stream, count), 12).double() + 0.5) * 2.0**-52

    def below(self, stream: int, count: int, bound: int) -> Tensor:
        """Whole numbers in [0, bound), bound < 2^31: int64 [items..., count]; uneven by less than bound 2^-32."""
        return (_shift(self.words(stream, count), 32) * bound) >> 32

    def distinct(self, stream: int, count: int, bound: int) -> Tensor:
        """Distinct whole numbers in [0, bound), in random order: int64 [items..., count]."""
        return self.words(stream, bound).topk(count, dim=-1).indices


def check_seed(seed: int) -> int:
    """The seed, or a ValueError unless it is a whole number in [0, 2^63)."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be a whole number in [0, 2^63), got {seed!r}")
    return seed
