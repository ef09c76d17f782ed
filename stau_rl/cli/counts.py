"""The type of an option that is a count."""

from argparse import ArgumentTypeError
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from stau_rl.terminal.counts import whole_number


def _read(words: list[str]) -> tuple[int, ...]:
    try:
        return tuple(map(whole_number, words))
    except ArgumentTypeError as error:
        raise ValueError(str(error)) from None


_COUNT: PrimitiveConstructorSpec[int | None] = PrimitiveConstructorSpec(
    nargs=1,
    metavar="INT",
    instance_from_str=lambda words: _read(words)[0],
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
Count = Annotated[int, _COUNT]
"""A whole number, which may be typed as 1e4."""
# Not OptionalCount: of a union, errors and help would show the insides.
OptionalCount = Annotated[int | None, _COUNT]
"""One that may be left out."""
Counts = Annotated[
    tuple[int, ...],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="[INT [INT ...]]",
        instance_from_str=_read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(one) for one in value],
    ),
]
"""Several, after one another."""
