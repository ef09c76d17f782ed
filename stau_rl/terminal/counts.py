"""Counts as they are typed on a command line."""

from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation

DIGITS = 20
"""Digits of the largest count that any option takes, 2^64."""


def whole_number(text: str) -> int:
    """Read a whole number, in exponent form too: `10000`, `1e4` and `1.5e3`; a `type` for argparse.

    Raises:
        ArgumentTypeError: it is none, or has more digits than any count.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    # Before its digits are looked at: those of 1e999999 would all be written down.
    if value.is_finite() and value and value.adjusted() >= DIGITS:
        raise ArgumentTypeError(f"must be a whole number below 1e{DIGITS}, got {text!r}")
    if not value.is_finite() or value != value.to_integral_value():
        raise ArgumentTypeError(f"must be a whole number such as 10000 or 1e4, got {text!r}")
    return int(value)
