"""Names of arms: texts, and the one order in which a table's arms stand."""

import re
from collections.abc import Sequence
from decimal import Decimal

# Exponents of five digits and more are texts: nobody writes them, and exact arithmetic has its bounds.
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


def in_order(labels: Sequence[str]) -> list[int]:
    """Positions of different labels in the order of a table's arms.

    Where every label is a plain decimal number, such as 10, -0.5 or 1e3, they stand by their exact values, however
    many digits these have, and labels of one value, such as 01 and 1, by their text. Otherwise they stand by their
    text, in the order of code points. So the order is that of the labels alone, whatever the order of the rows.
    """
    if all(map(NUMBER.fullmatch, labels)):
        values = [Decimal(label) for label in labels]
        return sorted(range(len(labels)), key=lambda index: (values[index], labels[index]))
    return sorted(range(len(labels)), key=labels.__getitem__)


def check_labels(labels: Sequence[str], where: str) -> None:
    """Raise a ValueError unless the labels are different, not blank, and without a character of value 0.

    Args:
        labels: the labels, without blanks around them.
        where: what has them, for the message.
    """
    seen: set[str] = set()
    for label in labels:
        if not label:
            raise ValueError(f"{where}: an arm has no name; every label must have a character that is not blank")
        if "\0" in label:
            raise ValueError(f"{where}: the label {label!r} holds a character of value 0")
        if label in seen:
            raise ValueError(f"{where}: two arms are called {label!r}")
        seen.add(label)
