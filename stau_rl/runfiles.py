"""The final files of a run: two Parquet tables, a CSV summary and a figure, and the way back into memory.

`checkpoints.parquet` has a row per policy, checkpoint and instance, `instances.parquet` one per policy and
instance, both in that order. Tables are written and read a batch of rows at a time, so that no second copy
of the arrays is held. Equal results give equal bytes: whatever may differ between two runs of a spec is in
`timing.json`.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from stau_rl.atomic import whole_file, write_json

if TYPE_CHECKING:
    from stau_rl.result import RegretResult

FORMAT = 1
"""Version of the layout below; goes into every spec as `format`, so that layouts are never mixed."""

SPEC, TIMING = "spec.json", "timing.json"
CHECKPOINTS, INSTANCES = "checkpoints.parquet", "instances.parquet"
SUMMARY, FIGURE = "summary.csv", "regret.png"
FINAL_FILES = (CHECKPOINTS, INSTANCES, SUMMARY, FIGURE, TIMING)

# Key of the constant in the metadata of the instances table.
LAI_ROBBINS = b"lai_robbins"
BATCH_ROWS = 1 << 20
# Least noise of the last bits in a text file; the exact numbers are in the Parquet files.
CSV_FLOAT = "%.12g"


def write_result(directory: Path, result: "RegretResult") -> None:
    """Write all files of a result, each whole or not at all, `timing.json` last.

    Args:
        directory: an existing folder; files of the same names are replaced.
        result: what to write.

    Raises:
        OSError: the folder is not writable or the disk is full.
        ValueError: spec or timing hold nan or an infinity.
    """
    from stau_rl.plotting import save_figure

    if np.isnan(result.regret[:, -1]).any():
        raise ValueError("the result has instances without a regret; every policy must have played all of them")
    write_json(directory / SPEC, result.spec)
    # Encoding holds no lock, so the two large files are written side by side, and the tables made meanwhile.
    with ThreadPoolExecutor(2) as pool:
        large = [
            pool.submit(_write_whole, directory / CHECKPOINTS, _write_checkpoints, result),
            pool.submit(_write_whole, directory / INSTANCES, _write_instances, result),
        ]
        table = summary_table(result)
        for written in large:
            written.result()
    with whole_file(directory / SUMMARY) as path:
        table.to_csv(path, index=False, float_format=CSV_FLOAT, lineterminator="\n")
    with whole_file(directory / FIGURE) as path:
        save_figure(result, path)
    write_json(directory / TIMING, result.timing)


def read_result(directory: Path) -> "RegretResult":
    """Read what `write_result` wrote; arrays come back equal.

    Raises:
        ValueError: a file is missing, damaged or does not belong to the spec beside it.
    """
    from stau_rl.result import RegretResult

    try:
        missing = [name for name in (SPEC, *FINAL_FILES) if not (directory / name).is_file()]
        if missing:
            raise ValueError(f"{directory} is not a finished run: it lacks {', '.join(missing)}")
        spec = json.loads((directory / SPEC).read_text(encoding="utf-8"))
        timing = json.loads((directory / TIMING).read_text(encoding="utf-8"))
        p, c, n = len(spec["policies"]), len(spec["checkpoints"]), spec["instances"]
        checkpoints = _read_columns(directory / CHECKPOINTS, ("regret", "optimal"), p * c * n)
        instances = _read_columns(directory / INSTANCES, ("best_mean", "late_optimal", "pulls"), p * n)
        metadata = pq.read_schema(directory / INSTANCES).metadata
        return RegretResult(
            spec,
            checkpoints["regret"].reshape(p, c, n),
            checkpoints["optimal"].reshape(p, c, n),
            instances["late_optimal"].reshape(p, n),
            np.ascontiguousarray(instances["pulls"].reshape(p, n, -1).transpose(0, 2, 1)),
            instances["best_mean"][:n].copy(),
            json.loads(metadata[LAI_ROBBINS]),
            timing,
        )
    except (OSError, pa.ArrowException, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"cannot read the run in {directory}: {error}") from error


def summary_table(result: "RegretResult") -> pd.DataFrame:
    """The summary with the comparison against the spec's baseline beside it, as in `summary.csv`."""
    return result.summary().merge(result.compare(), on=["policy", "step"], how="left")


def _write_whole(path: Path, write: Callable[[Path, "RegretResult"], None], result: "RegretResult") -> None:
    with whole_file(path) as temporary:
        write(temporary, result)


def _write_checkpoints(path: Path, result: "RegretResult") -> None:
    """A row group per policy and batch of steps (or of instances, where one step has more than a batch)."""
    n = result.best_mean.size
    steps = np.asarray(result.spec["checkpoints"], dtype=np.int64)
    instance = np.arange(n, dtype=np.int64)
    batch = max(1, BATCH_ROWS // n)
    schema = pa.schema(
        [
            ("policy", pa.dictionary(pa.int32(), pa.string())),
            ("step", pa.int64()),
            ("instance", pa.int64()),
            ("regret", pa.float64()),
            ("optimal", pa.bool_()),
        ]
    )
    # Regrets repeat where all instances share their means, and hardly where each draws its own.
    repeated = ["policy", "regret"] if "means" in result.spec else ["policy"]
    with _writer(path, schema, repeated, ["step", "instance"]) as writer:
        for p in range(len(result.policies)):
            for first in range(0, steps.size, batch):
                some = slice(first, first + batch)
                rows = steps[some].size * n
                columns = [
                    _policy_column(result, p, rows),
                    np.repeat(steps[some], n),
                    np.tile(instance, steps[some].size),
                    result.regret[p, some].ravel(),
                    result.optimal[p, some].ravel(),
                ]
                table = pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema)
                writer.write_table(table, row_group_size=rows)


def _write_instances(path: Path, result: "RegretResult") -> None:
    """A row group per policy and batch of instances."""
    arms = result.pulls.shape[1]
    stuck = result.stuck
    kind = pa.from_numpy_dtype(result.pulls.dtype)
    schema = pa.schema(
        [
            ("policy", pa.dictionary(pa.int32(), pa.string())),
            ("instance", pa.int64()),
            ("regret", pa.float64()),
            ("best_mean", pa.float64()),
            ("late_optimal", pa.int64()),
            ("stuck", pa.bool_()),
            ("pulls", pa.list_(pa.field("element", kind, nullable=False), arms)),
        ],
        metadata={LAI_ROBBINS: json.dumps(result.lai_robbins)},
    )
    with _writer(path, schema, ["policy", "pulls.list.element"], ["instance"]) as writer:
        for p in range(len(result.policies)):
            for rows in _batches(result.best_mean.size, max(1, BATCH_ROWS // arms)):
                size = rows.stop - rows.start
                pulls = pa.array(np.ascontiguousarray(result.pulls[p, :, rows].T).ravel())
                columns = [
                    _policy_column(result, p, size),
                    pa.array(np.arange(rows.start, rows.stop, dtype=np.int64)),
                    pa.array(result.regret[p, -1, rows]),
                    pa.array(result.best_mean[rows]),
                    pa.array(result.late_optimal[p, rows]),
                    pa.array(stuck[p, rows]),
                    pa.FixedSizeListArray.from_arrays(pulls, type=schema.field("pulls").type),
                ]
                table = pa.Table.from_arrays(columns, schema=schema)
                writer.write_table(table, row_group_size=size)


def _writer(path: Path, schema: pa.Schema, repeated: list[str], counting: list[str]) -> pq.ParquetWriter:
    """Snappy everywhere, a dictionary for columns that repeat, deltas for columns that count."""
    encodings = dict.fromkeys(counting, "DELTA_BINARY_PACKED")
    return pq.ParquetWriter(path, schema, compression="snappy", use_dictionary=repeated, column_encoding=encodings)


def _policy_column(result: "RegretResult", policy: int, rows: int) -> pa.DictionaryArray:
    indices = pa.array(np.full(rows, policy, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, result.policies)


def _batches(total: int, size: int) -> Iterator[slice]:
    for first in range(0, total, size):
        yield slice(first, min(first + size, total))


def _read_columns(path: Path, names: tuple[str, ...], rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """Columns as arrays, read row group by row group; a fixed-size list becomes [rows, size], flattened."""
    with pq.ParquetFile(path) as file:
        if file.metadata.num_rows != rows:
            raise ValueError(f"{path} has {file.metadata.num_rows} rows, its spec asks for {rows}")
        columns: dict[str, np.ndarray[Any, Any]] = {}
        row = 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=list(names))
            for name in names:
                column = table.column(name).combine_chunks()
                width = 1
                if pa.types.is_fixed_size_list(column.type):
                    width, column = column.type.list_size, column.flatten()
                part = column.to_numpy(zero_copy_only=False)
                if name not in columns:
                    columns[name] = np.empty(rows * width, dtype=part.dtype)
                columns[name][row * width : row * width + part.size] = part
            row += table.num_rows
    return columns
