"""What the Triton kernel is compiled for: its switches, as one compile-time argument."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Variant:
    """The compile-time switches of a launch; every distinct one is a kernel of its own.

    Triton keeps machine code under the text of this object, so whatever decides about code is a field and nothing is
    a property.

    Attributes:
        arms: number of arms K.
        slots: arms per thread.
        lanes: threads per instance, a power of 2.
        block: instances per program.
        choose: which rule picks the arm.
        index: an index is maximised, `contrast` where it sees the largest mean, `none` where a score is.
        forced: arm t is pulled at each step t < K.
        cached: two numbers per arm are kept and renewed for the pulled arm.
        double: they are float64.
        floor: least count that they are computed for.
        centred: the mean score over the arms is taken off.
        past: what is taken off is the mean of all rewards so far instead.
        moved: a constant is added to centred scores, or to float64 ones.
        form: what the head's device function returns; see `gpu.heads`.
        whole: a whole exponent that is multiplied out, or 0.
        reaches_zero: the largest score of every row is >= 0.
        inputs: how many parameters the device function of a plug-in head takes, or -1 for the heads of the package.
        scheduled: the head's parameters come from a table of the steps.
        width: a number per step comes from a table.
        baseline: of a gradient bandit; `none`, `past` or `before`.
        packed: pulls, successes and number of a slot share a 32-bit register.
        index_bits: bits of it that hold the slot.
        count_bits: bits of it that hold the successes, and as many or one more the pulls.
        long: a packed tally counts from the start of the launch; memory holds what came before.
        steps: steps per turn of the loop, 2 from an even step on, else 1.
        record: every action and reward is written to memory.
    """

    arms: int
    slots: int = 1
    lanes: int = 1
    block: int = 1
    choose: Literal["weight", "best", "uniform", "explore", "posterior", "gumbel", "beta", "preference"] = "uniform"
    index: Literal["none", "alone", "contrast"] = "none"
    forced: bool = False
    cached: bool = False
    double: bool = False
    floor: int = 1
    centred: bool = False
    moved: bool = False
    past: bool = False
    form: Literal["direct", "log2", "scaled", "power", "ratio"] = "direct"
    whole: int = 0
    reaches_zero: bool = False
    inputs: int = -1
    scheduled: bool = False
    width: bool = False
    baseline: Literal["none", "past", "before"] = "none"
    packed: bool = False
    index_bits: int = 1
    count_bits: int = 1
    long: bool = False
    steps: int = 1
    record: bool = False

    @property
    def steps_per_launch(self) -> int:
        """Steps after which a packed tally could overflow; even. No code depends on it."""
        return (1 << self.count_bits) - 2 if self.packed else 1 << 20


def layout(arms: int, most: int) -> tuple[int, int]:
    """Threads per instance, a power of 2, and arms per thread, at most `most`."""
    lanes = 1
    while lanes * most < arms:
        lanes *= 2
    return lanes, -(-arms // lanes)


def tally_bits(slots: int) -> tuple[int, int]:
    """Bits of a 32-bit tally for the slot and for the successes; at least as many remain for the pulls."""
    index_bits = max(1, (slots - 1).bit_length())
    return index_bits, (32 - index_bits) // 2
