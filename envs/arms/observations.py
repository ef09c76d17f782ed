"""Reading a long table of real observations, with errors that name the row and the column."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

PARQUET = (".parquet", ".pq")
CSV_ROWS = 1 << 18
# Beyond it, sums of squares overflow.
LARGEST = 1e100


def read_observations(
    file: str, arm: str, reward: str
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.int64]]:
    """Read two columns of a CSV or Parquet file.

    Args:
        file: the path; `.parquet` and `.pq` are read as Parquet, everything else as CSV.
        arm: the column that names the arm.
        reward: the column that holds the reward.

    Returns:
        Labels of the K arms; rewards sorted within each arm, float64 [rows]; offsets int64 [K + 1] into them.

    Raises:
        ValueError: as `EmpiricalArms` documents.
    """
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
    parquet = path.suffix.lower() in PARQUET
    try:
        if parquet:
            import pyarrow.parquet

            _check_columns(list(pyarrow.parquet.read_schema(path).names), file, arm, reward)
            return pd.read_parquet(path, columns=[arm, reward])
        return _read_csv(path, file, arm, reward)
    except pd.errors.EmptyDataError:
        raise ValueError(f"rewards file {file!r} is empty") from None
    except ValueError as error:
        if str(error).startswith("rewards file"):
            raise
        raise ValueError(f"cannot read rewards file {file!r}: {_first_line(error)}") from None
    except Exception as error:
        # Decompressors and parsers each have exceptions of their own for a damaged file.
        raise ValueError(f"cannot read rewards file {file!r}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _read_csv(path: Path, file: str, arm: str, reward: str) -> "pd.DataFrame":
    import pandas as pd

    # Read whole lines, header included: told which columns to use, pandas passes over lines with too many fields.
    kept: list[pd.DataFrame] = []
    with pd.read_csv(path, header=None, dtype=str, keep_default_na=False, chunksize=CSV_ROWS) as chunks:
        for chunk in chunks:
            if not kept:
                columns = chunk.iloc[0].tolist()
                _check_columns(columns, file, arm, reward)
                places = [columns.index(arm), columns.index(reward)]
            kept.append(chunk[places])
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
    bad = np.flatnonzero(~(np.abs(numbers) <= LARGEST))
    if len(bad):
        row = int(bad[0])
        value = column.iloc[row]
        raise ValueError(
            f"data row {row + 1} of column {name!r} in {file!r} must be a finite number, got {value!r}"
            + (f" (and {len(bad) - 1} more such rows)" if len(bad) > 1 else "")
        )
    return numbers


def _arms(column: "pd.Series", file: str, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    import pandas as pd

    nameless = np.flatnonzero((column.isna() | (column.astype(str).str.strip() == "")).to_numpy(dtype=bool))
    if len(nameless):
        raise ValueError(f"row {int(nameless[0]) + 1} of column {name!r} in {file!r} names no arm")
    if isinstance(column.dtype, pd.CategoricalDtype):
        unused = [label for label in column.cat.categories if not (column == label).any()]
        if len(unused):
            raise ValueError(f"arm {unused[0]!r} of column {name!r} in {file!r} has no rows")
    codes, uniques = pd.factorize(column.astype(str))
    as_numbers = pd.to_numeric(pd.Series(uniques), errors="coerce")
    order = np.argsort(np.asarray(uniques) if as_numbers.isna().any() else as_numbers.to_numpy(), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], tuple(str(uniques[index]) for index in order)
