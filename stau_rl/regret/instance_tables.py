"""The two Parquet files that hold every instance of a run, written in order as the run goes on.

Both have a row per policy and instance, in that order.

- `checkpoints.parquet`: `policy`, `instance`, then `regret_T` for every checkpoint T (pseudo-regret after T plays,
  float64, exact), then `optimal_T` (the pull at that step was optimal).
- `instances.parquet`: `policy`, `instance`, `regret` (at the horizon), `best_mean`, `late_optimal` (pulls of optimal
  arms in the last tenth), `stuck`, `pulls` (a list, one number per arm).

Why so: a column per checkpoint repeats neither step nor instance, and its numbers lie in memory as they go into the
file. Nothing is null, so no levels are written. The bytes of regrets are split by significance, so that LZ4 finds what
they share. Row groups have `ROWS` rows, whatever the parts that the run was played in, so equal results give equal
bytes, and a group can be written while later instances are still being played.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stau_rl.regret.regrets import Regrets

CHECKPOINTS, INSTANCES = "checkpoints.parquet", "instances.parquet"
ROWS = 1 << 16

# Key of the constant in the metadata of the instances table.
LAI_ROBBINS = b"lai_robbins"
_POLICY = pa.dictionary(pa.int32(), pa.string())


class InstanceTable:
    """One of the two files, growing; rows are taken from the result's arrays when they are ready."""

    def __init__(self, name: str, path: Path, result: Regrets) -> None:
        """Open a file.

        Args:
            name: `CHECKPOINTS` or `INSTANCES`.
            path: where to write.
            result: the arrays; read when rows are written.
        """
        self._result, self._columns = result, _COLUMNS[name]
        self._schema, repeated, split = _SCHEMAS[name](result)
        encodings = dict.fromkeys(split, "BYTE_STREAM_SPLIT") | {"instance": "DELTA_BINARY_PACKED"}
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="lz4",
            use_dictionary=["policy", *repeated],
            column_encoding=encodings,
            write_statistics=["policy", "instance"],
            # Bytes split by significance stay readable whatever happens to them; reading checks.
            write_page_checksum=True,
        )
        self._policy, self._row = 0, 0

    def write(self, policy: int, instances: int) -> None:
        """Write the row groups of a policy that are complete once its first `instances` instances are.

        Policies must come in order, and each must be complete before the next.
        """
        result, total = self._result, self._result.best_mean.size
        if policy != self._policy:
            return
        while self._row < total and min(self._row + ROWS, total) <= instances:
            rows = slice(self._row, min(self._row + ROWS, total))
            size = rows.stop - rows.start
            index = pa.array(np.full(size, policy, dtype=np.int32))
            columns = [
                pa.DictionaryArray.from_arrays(index, result.policies),
                pa.array(np.arange(rows.start, rows.stop, dtype=np.int64)),
                *self._columns(result, policy, rows),
            ]
            self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema), row_group_size=size)
            self._row = rows.stop
        if self._row == total:
            self._policy, self._row = policy + 1, 0

    def complete(self) -> None:
        """Write whatever is left."""
        for policy in range(self._policy, len(self._result.policies)):
            self.write(policy, self._result.best_mean.size)

    def close(self) -> None:
        """Finish the file; safe to call twice."""
        self._writer.close()


def read_checkpoints(path: Path, spec: dict[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """`regret` and `optimal`, both [P, C, n].

    Raises:
        ValueError: the file has not the rows that the spec asks for.
    """
    steps, n = spec["checkpoints"], spec["instances"]
    shape = (len(spec["policies"]), len(steps), n)
    regret, optimal = np.empty(shape), np.empty(shape, dtype=np.bool_)
    for table, policy, rows in _groups(path, spec["policies"], n):
        for c, step in enumerate(steps):
            regret[policy, c, rows] = table.column(f"regret_{step}").to_numpy()
            optimal[policy, c, rows] = table.column(f"optimal_{step}").to_numpy()
    return regret, optimal


def read_instances(path: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """`late_optimal` [P, n], `pulls` [P, K, n], `best_mean` [n] and the number `lai_robbins`.

    Raises:
        ValueError: the file has not the rows that the spec asks for.
    """
    policies, n = spec["policies"], spec["instances"]
    schema = pq.read_schema(path)
    kind = schema.field("pulls").type
    if not pa.types.is_fixed_size_list(kind):
        raise ValueError(f"{path} has pulls of type {kind}, not a number per arm")
    late = np.empty((len(policies), n), dtype=np.int64)
    pulls = np.empty((len(policies), kind.list_size, n), dtype=kind.value_type.to_pandas_dtype())
    best = np.empty(n)
    for table, policy, rows in _groups(path, policies, n):
        late[policy, rows] = table.column("late_optimal").to_numpy()
        best[rows] = table.column("best_mean").to_numpy()
        flat = table.column("pulls").combine_chunks().flatten().to_numpy()
        pulls[policy][:, rows] = flat.reshape(-1, kind.list_size).T
    constant = json.loads(schema.metadata[LAI_ROBBINS])
    return {"late_optimal": late, "pulls": pulls, "best_mean": best, "lai_robbins": constant}


def _groups(path: Path, policies: list[str], n: int) -> Iterator[tuple[pa.Table, int, slice]]:
    """Row groups with their policy and instances."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        if file.metadata.num_rows != len(policies) * n:
            raise ValueError(f"{path} has {file.metadata.num_rows} rows, its spec asks for {len(policies) * n}")
        row = 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            first = row % n
            if first + table.num_rows > n:
                raise ValueError(f"{path} has a row group that spans two policies")
            found, asked = table.column("policy").unique().to_pylist(), policies[row // n]
            if found != [asked]:
                raise ValueError(f"{path} has rows of {', '.join(map(repr, found))} where its spec has {asked!r}")
            yield table, row // n, slice(first, first + table.num_rows)
            row += table.num_rows


def _schema(fields: list[tuple[str, pa.DataType]], metadata: dict[bytes, str] | None = None) -> pa.Schema:
    named = [("policy", _POLICY), ("instance", pa.int64()), *fields]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in named], metadata=metadata)


def _checkpoint_schema(result: Regrets) -> tuple[pa.Schema, list[str], list[str]]:
    steps = result.spec["checkpoints"]
    regrets = [f"regret_{step}" for step in steps]
    schema = _schema([(name, pa.float64()) for name in regrets] + [(f"optimal_{step}", pa.bool_()) for step in steps])
    # Regrets repeat where all instances share their means, and hardly where each draws its own.
    return (schema, regrets, []) if "means" in result.spec else (schema, [], regrets)


def _checkpoint_columns(result: Regrets, policy: int, rows: slice) -> list[pa.Array]:
    arrays = (result.regret, result.optimal)
    return [pa.array(array[policy, c, rows]) for array in arrays for c in range(array.shape[1])]


def _instance_schema(result: Regrets) -> tuple[pa.Schema, list[str], list[str]]:
    element = pa.field("element", pa.from_numpy_dtype(result.pulls.dtype), nullable=False)
    schema = _schema(
        [
            ("regret", pa.float64()),
            ("best_mean", pa.float64()),
            ("late_optimal", pa.int64()),
            ("stuck", pa.bool_()),
            ("pulls", pa.list_(element, result.pulls.shape[1])),
        ],
        {LAI_ROBBINS: json.dumps(result.lai_robbins)},
    )
    return schema, [], ["regret", "best_mean", "late_optimal", "pulls.list.element"]


def _instance_columns(result: Regrets, policy: int, rows: slice) -> list[pa.Array]:
    pulls = np.ascontiguousarray(result.pulls[policy, :, rows].T).ravel()
    element = pa.field("element", pa.from_numpy_dtype(pulls.dtype), nullable=False)
    return [
        pa.array(result.regret[policy, -1, rows]),
        pa.array(result.best_mean[rows]),
        pa.array(result.late_optimal[policy, rows]),
        pa.array(result.stuck_in(policy, rows)),
        pa.FixedSizeListArray.from_arrays(pa.array(pulls), type=pa.list_(element, result.pulls.shape[1])),
    ]


_SCHEMAS = {CHECKPOINTS: _checkpoint_schema, INSTANCES: _instance_schema}
_COLUMNS = {CHECKPOINTS: _checkpoint_columns, INSTANCES: _instance_columns}
