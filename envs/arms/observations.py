"""Reading a long table of real observations, with errors that name the row and the column."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stau_rl.envs.arms.labels import check_labels, in_order

if TYPE_CHECKING:
    import pandas as pd

PARQUET = (".parquet", ".pq")
COMPRESSED = (".gz", ".bz2", ".zip", ".xz", ".zst", ".tar")
CSV_ROWS = 1 << 18
# The first that gives the file both columns is taken.
SEPARATORS = (",", ";", "\t")
# Beyond it, sums of squares overflow.
LARGEST = 1e100
TRUE, FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d[\d.]*,\d+\s*")
# First bytes of files that are often saved under another ending.
FOREIGN = {
    b"<!doctype": "an HTML page, not a table; save the data it shows as CSV",
    b"<html": "an HTML page, not a table; save the data it shows as CSV",
    b"<?xml": "XML, not a table; save it as CSV",
    b"par1": "a Parquet file; give it the ending .parquet",
    b"pk\x03\x04": "a workbook or another zip archive; save it as CSV",
    b"\xd0\xcf\x11\xe0": "a workbook; save it as CSV",
}


def read_observations(
    file: str, arm: str, reward: str
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.int64]]:
    """Read two columns of a CSV or Parquet file.

    Args:
        file: the path; `.parquet` and `.pq` are read as Parquet, everything else as CSV in UTF-8, whose fields are
            separated by commas, semicolons or tabs, whichever gives it both columns.
        arm: the column that names the arm, or the level of a Parquet file's index that does. Blanks around a label, or
            around the name of a column, are not part of it.
        reward: the column that holds the reward: numbers, or true and false for 1 and 0.

    Returns:
        Labels of the K arms, in the order of `stau_rl.envs.arms.labels`; rewards sorted within each arm, float64
        [rows]; offsets int64 [K + 1] into them.

    Raises:
        ValueError: as `EmpiricalArms` documents.
    """
    arm, reward = arm.strip(), reward.strip()
    if arm == reward:
        raise ValueError(f"the arm and the reward must be two columns, got {arm!r} for both")
    table = _read(file, arm, reward)
    if not len(table):
        raise ValueError(f"rewards file {file!r} has no rows")
    rewards = _numbers(table[reward], file, reward)
    codes, labels = _arms(table[arm], file, arm)
    order = np.lexsort((rewards, codes))
    offsets = np.searchsorted(codes[order], np.arange(len(labels) + 1)).astype(np.int64)
    return labels, rewards[order] + 0.0, offsets


def _read(file: str, arm: str, reward: str) -> "pd.DataFrame":
    import pandas as pd

    if not os.path.isfile(file):
        raise ValueError(f"{file!r} is not a file" if os.path.exists(file) else f"rewards file {file!r} does not exist")
    path = Path(file)
    try:
        if path.suffix.lower() in PARQUET:
            return _read_parquet(path, file, arm, reward)
        _check_kind(path, file)
        return _read_csv(path, file, arm, reward)
    except pd.errors.EmptyDataError:
        raise ValueError(f"rewards file {file!r} is empty") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot read rewards file {file!r}: it is not in UTF-8 ({error})") from None
    except ValueError as error:
        if str(error).startswith("rewards file"):
            raise
        raise ValueError(f"cannot read rewards file {file!r}: {_first_line(error)}") from None
    except Exception as error:
        # Decompressors and parsers each have exceptions of their own for a damaged file.
        raise ValueError(f"cannot read rewards file {file!r}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _check_kind(path: Path, file: str) -> None:
    """Refuse what is no CSV by its first bytes, whatever its ending says."""
    if path.suffix.lower() in COMPRESSED:
        return
    with path.open("rb") as opened:
        first = opened.read(512).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for begin, kind in FOREIGN.items():
        if first.startswith(begin):
            raise ValueError(f"rewards file {file!r} is {kind}")


def _read_parquet(path: Path, file: str, arm: str, reward: str) -> "pd.DataFrame":
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    # An index of consecutive numbers is kept in the metadata alone.
    ranges = [one["name"] for one in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(one, dict)]
    names = [*schema.names, *(name for name in ranges if isinstance(name, str))]
    _check_columns([name.strip() for name in names], file, arm, reward)
    wanted = [name for name in schema.names if name.strip() in (arm, reward)]
    table = parquet.read_table(path, columns=wanted, use_pandas_metadata=True).to_pandas()
    named = [level for level, name in enumerate(table.index.names) if name is not None]
    table = table.reset_index(level=named) if named else table
    return table.rename(columns=str.strip)[[arm, reward]]


def _read_csv(path: Path, file: str, arm: str, reward: str) -> "pd.DataFrame":
    import pandas as pd

    # Read whole lines, header included: told which columns to use, pandas passes over lines with too many fields.
    form = {"header": None, "dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}

    def columns(separator: str) -> list[str]:
        header = pd.read_csv(path, sep=separator, nrows=1, **form)  # type: ignore[call-overload]
        return [str(name).strip() for name in header.iloc[0]]

    found = {separator: columns(separator) for separator in SEPARATORS}
    fitting = [separator for separator, names in found.items() if arm in names and reward in names]
    # Of a file without the two columns, those are named that it has at most.
    separator = fitting[0] if fitting else max(found, key=lambda one: len(found[one]))
    _check_columns(found[separator], file, arm, reward)
    places = [found[separator].index(arm), found[separator].index(reward)]
    kept: list[pd.DataFrame] = []
    with pd.read_csv(path, sep=separator, chunksize=CSV_ROWS, **form) as chunks:  # type: ignore[call-overload]
        kept.extend(chunk[places] for chunk in chunks)
    table = pd.concat(kept, ignore_index=True).iloc[1:]
    return table.set_axis([arm, reward], axis="columns")


def _check_columns(columns: list[str], file: str, arm: str, reward: str) -> None:
    for column in (arm, reward):
        if column not in columns:
            known = ", ".join(map(repr, columns[:20])) + (", ..." if len(columns) > 20 else "")
            raise ValueError(f"rewards file {file!r} has no column {column!r}; it has {known}")
        if columns.count(column) > 1:
            raise ValueError(f"rewards file {file!r} has two columns {column!r}")


def _numbers(column: "pd.Series", file: str, name: str) -> NDArray[np.float64]:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
        raise ValueError(f"column {name!r} in {file!r} must hold numbers, got {column.dtype}")
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    unread = np.isnan(numbers)
    if unread.any():
        texts = column[unread].astype(str).str.strip()
        numbers = numbers.copy()
        numbers[unread] = np.select([texts.isin(TRUE), texts.isin(FALSE)], [1.0, 0.0], np.nan)
    bad = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if len(bad):
        row = int(bad[0])
        value = column.iloc[row]
        comma = isinstance(value, str) and DECIMAL_COMMA.fullmatch(value)
        raise ValueError(
            f"data row {row + 1} of column {name!r} in {file!r} must be a finite number, got {value!r}"
            + ("; write decimals with a point, not a comma" if comma else "")
            + (f" (and {len(bad) - 1} more such rows)" if len(bad) > 1 else "")
        )
    return numbers


def _decoded(column: "pd.Series", file: str, name: str) -> "pd.Series":
    """A column whose labels in bytes are texts."""
    labels = list(column)
    for row, label in enumerate(labels):
        if isinstance(label, bytes):
            try:
                labels[row] = label.decode()
            except UnicodeDecodeError:
                where = f"row {row + 1} of column {name!r} in {file!r}"
                raise ValueError(f"{where} must name the arm in UTF-8, got {label!r}") from None
    return column.__class__(labels, dtype=object)


def _arms(column: "pd.Series", file: str, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The arm of each row, and the labels."""
    import pandas as pd

    if any(isinstance(label, bytes) for label in column):
        column = _decoded(column, file, name)
    texts = column.astype(str).str.strip()
    nameless = np.flatnonzero((column.isna() | (texts == "")).to_numpy(dtype=bool))
    if len(nameless):
        raise ValueError(f"row {int(nameless[0]) + 1} of column {name!r} in {file!r} names no arm")
    if isinstance(column.dtype, pd.CategoricalDtype):
        unused = [label for label in column.cat.categories if not (column == label).any()]
        if len(unused):
            raise ValueError(f"arm {unused[0]!r} of column {name!r} in {file!r} has no rows")
    codes, uniques = pd.factorize(texts)
    labels = [str(label) for label in uniques]
    check_labels(labels, f"column {name!r} in {file!r}")
    order = in_order(labels)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], tuple(labels[index] for index in order)
