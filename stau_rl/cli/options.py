"""The kinds of options that commands have; tyro reads them, and where it is missing `stau_rl.cli.plain` does."""

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Annotated, Any

from stau_rl.terminal.counts import whole_number

# What stands for each kind in an annotation: tyro's own marks, or plain words without it.
COUNT: Any = "a count"
COUNTS: Any = "several counts"
REPEATED: Any = "repeat the option"
POSITIONAL: Any = "no name before it"
# Of an option that may be left out the text says what holds then; "{None}|PATH" and "default: None" would say less.
TEXT_OR_NONE: Any = "a text, or left out"
PATH_OR_NONE: Any = "a path, or left out"
NUMBER: Any = "a number"
SEED: Any = "a seed"
MAY_BE_LEFT_OUT: Any = "or left out"


def _read(words: list[str]) -> tuple[int, ...]:
    try:
        return tuple(map(whole_number, words))
    except ArgumentTypeError as error:
        raise ValueError(str(error)) from None


try:
    import tyro
    from tyro.constructors import PrimitiveConstructorSpec
except ModuleNotFoundError:
    HAS_TYRO = False
else:
    HAS_TYRO = True
    REPEATED, POSITIONAL = tyro.conf.UseAppendAction, tyro.conf.Positional
    TEXT_OR_NONE = tyro.conf.arg(metavar="STR", help_behavior_hint="")
    PATH_OR_NONE = tyro.conf.arg(metavar="PATH", help_behavior_hint="")
    MAY_BE_LEFT_OUT = tyro.conf.arg(help_behavior_hint="")
    COUNT = PrimitiveConstructorSpec[int | None](
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: _read(words)[0],
        is_instance=lambda value: value is None or isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )
    NUMBER = PrimitiveConstructorSpec[float | None](
        nargs=1,
        metavar="FLOAT",
        instance_from_str=lambda words: float(words[0]),
        is_instance=lambda value: value is None or isinstance(value, float),
        str_from_instance=lambda value: [str(value)],
    )
    SEED = PrimitiveConstructorSpec[int | None](
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: int(words[0]),
        is_instance=lambda value: value is None or isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )
    COUNTS = PrimitiveConstructorSpec(
        nargs="*",
        metavar="[INT [INT ...]]",
        instance_from_str=_read,
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [str(one) for one in value],
    )

Count = Annotated[int, COUNT]
"""A whole number, which may be typed as 1e4."""
# Not a union with Count: of a union, errors and help would show the insides.
OptionalCount = Annotated[int | None, COUNT, MAY_BE_LEFT_OUT]
"""One that may be left out."""
OptionalSeed = Annotated[int | None, SEED, MAY_BE_LEFT_OUT]
"""The seed of random draws, which may be left out."""
OptionalText = Annotated[str | None, TEXT_OR_NONE]
"""A text that may be left out."""
OptionalPath = Annotated[Path | None, PATH_OR_NONE]
"""A file or folder that may be left out."""
OptionalNumber = Annotated[float | None, NUMBER, MAY_BE_LEFT_OUT]
"""A number that may be left out."""
Counts = Annotated[tuple[int, ...], COUNTS]
"""Several, after one another."""
Texts = Annotated[tuple[str, ...], REPEATED]
"""Texts, the option repeated for each."""
Numbers = Annotated[tuple[float, ...], REPEATED]
"""Numbers, the option repeated for each."""
RepeatedCounts = Annotated[tuple[Count, ...], REPEATED]
"""Counts, the option repeated for each."""
Paths = Annotated[tuple[Path, ...], REPEATED]
"""Files, the option repeated for each."""
FIGURES = ("png", "svg", "pdf")
"""What a figure is written as."""
PositionalPath = Annotated[Path, POSITIONAL]
"""A file, without the option's name before it."""


def check_figures(kinds: tuple[str, ...]) -> None:
    """Refuse a --figure that is none of `FIGURES`.

    Raises:
        ValueError: naming it and what there is.
    """
    for kind in kinds:
        if kind not in FIGURES:
            raise ValueError(f"--figure must be one of {', '.join(FIGURES)}, got {kind!r}")
