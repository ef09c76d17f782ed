"""The final files of a run: two Parquet tables, a CSV summary and a figure, and the way back into memory.

`stau_rl.regret.instance_tables` has the columns of the tables that hold every instance. Equal results give equal bytes:
whatever may differ between two runs of a spec is in `timing.json`.
"""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from stau_rl.files.whole import put_in_place, temporary_of, whole_file, write_json
from stau_rl.kernels.contract import Block
from stau_rl.machine.phases import Phases
from stau_rl.regret.instance_tables import CHECKPOINTS, INSTANCES, InstanceTable, read_checkpoints, read_instances
from stau_rl.regret.regrets import Regrets
from stau_rl.regret.tables import compare, summarise

Kind = TypeVar("Kind", bound=Regrets)

FORMAT = 2
"""Version of the layout of the files; goes into every spec as `format`, so that layouts are never mixed."""

SPEC, TIMING = "spec.json", "timing.json"
SUMMARY, FIGURE = "summary.csv", "regret.png"
FINAL_FILES = (CHECKPOINTS, INSTANCES, SUMMARY, FIGURE, TIMING)

# Least noise of the last bits in a text file; the exact numbers are in the Parquet files.
CSV_FLOAT = "%.12g"


class GrowingFiles:
    """The two tables of every instance, written while the run goes on.

    Used as a `with` block: unless `finish` is called in it, nothing is left behind.
    """

    def __init__(self, directory: Path, result: Regrets) -> None:
        """Open the tables of a result in a folder; they get their names when they are finished."""
        self._result = result
        self._taking = ThreadPoolExecutor(1)
        # The library of figures takes half a second to load: do so while the first part is played.
        self._taken: Future[Any] = self._taking.submit(import_module, "stau_rl.regret.plot")
        self._tables: list[_GrowingTable] = []
        try:
            for name in (CHECKPOINTS, INSTANCES):
                self._tables.append(_GrowingTable(directory / name, result))
        except BaseException:
            # Nobody enters the block, so nobody leaves it: what is open must go now.
            self.__exit__()
            raise

    def put(self, policy: str, first_instance: int, block: Block) -> None:
        """Copy a block into the result and write its rows, in threads; blocks come by policy and instance, in order.

        Raises:
            OSError: the tables cannot be written.
        """
        # One block waits at most, so that memory stays bounded, and an error of an earlier one shows now.
        self._taken.result()
        self._taken = self._taking.submit(self._take, policy, first_instance, block)

    def _take(self, policy: str, first_instance: int, block: Block) -> None:
        self._result.put(policy, first_instance, block)
        for table in self._tables:
            table.grow(self._result.index(policy), first_instance + block.late_optimal.size)

    def complete(self) -> None:
        """Have all rows written that are not; from here on the result stays as it is.

        Raises:
            OSError: the tables cannot be written.
            ValueError: a policy has not played all instances.
        """
        self._taken.result()
        if np.isnan(self._result.regret[:, -1]).any():
            raise ValueError("the result has instances without a regret; every policy must have played all of them")
        for table in self._tables:
            table.complete()

    def finish(self) -> None:
        """Wait for the tables, which then have their names.

        Raises:
            OSError: they cannot be written.
        """
        for table in self._tables:
            table.wait()

    def __enter__(self) -> "GrowingFiles":
        """Nothing to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the threads and remove what is not finished."""
        self._taking.shutdown(cancel_futures=True)
        for table in self._tables:
            table.abandon()


class _GrowingTable:
    """One table and the thread that writes it: encoding holds no lock."""

    def __init__(self, path: Path, result: Regrets) -> None:
        self._path, self._temporary = path, temporary_of(path)
        try:
            self._table = InstanceTable(path.name, self._temporary, result)
        except BaseException:
            # A full disk lets the file be made, but not begun.
            with suppress(OSError):
                self._temporary.unlink(missing_ok=True)
            raise
        self._thread, self._work = ThreadPoolExecutor(1), list[Future[None]]()

    def grow(self, policy: int, instances: int) -> None:
        if self._work and self._work[-1].done():
            self.wait()
        self._work.append(self._thread.submit(self._table.write, policy, instances))

    def complete(self) -> None:
        self._work.append(self._thread.submit(self._close))

    def _close(self) -> None:
        self._table.complete()
        self._table.close()
        put_in_place(self._temporary, self._path)

    def wait(self) -> None:
        for work in self._work:
            work.result()
        self._work.clear()

    def abandon(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        # A table that has its name is not there to remove; closing one on a full disk fails again.
        with suppress(OSError):
            self._table.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)


def write_result(
    directory: Path, result: Regrets, growing: GrowingFiles | None = None, phases: Phases | None = None
) -> None:
    """Write all files of a result, each whole or not at all, `timing.json` last.

    Args:
        directory: an existing folder; files of the same names are replaced.
        result: what to write.
        growing: the tables that have been growing in this folder while the result was made, if any.
        phases: a clock to tell statistics, files and plot apart; its split goes into the result's timing.

    Raises:
        OSError: the folder is not writable or the disk is full.
        ValueError: spec or timing hold nan or an infinity, or a policy has not played all instances.
    """
    if growing is None:
        with GrowingFiles(directory, result) as growing:
            write_result(directory, result, growing, phases)
        return
    clock = phases or Phases()
    with clock.inside("files"):
        growing.complete()
        write_json(directory / SPEC, result.spec)
    # The tables of every instance are still being written meanwhile.
    with clock.inside("statistics"):
        table = summary_table(result)
    with clock.inside("plot"):
        import_module("stau_rl.regret.plot").save_figure(result, directory / FIGURE)
    with clock.inside("files"):
        with whole_file(directory / SUMMARY) as path:
            table.to_csv(path, index=False, float_format=CSV_FLOAT, lineterminator="\n")
        growing.finish()
        if phases is not None:
            split = phases.seconds()
            result.timing.update(phases=split, total_seconds=sum(split.values()))
        write_json(directory / TIMING, result.timing)


def read_result(directory: Path, kind: type[Kind]) -> Kind:
    """Read what `write_result` wrote, as `Regrets` or a class made of them; arrays come back equal.

    Raises:
        ValueError: a file is missing, damaged or does not belong to the spec beside it.
    """
    try:
        missing = [name for name in (SPEC, *FINAL_FILES) if not (directory / name).is_file()]
        if missing:
            raise ValueError(f"{directory} is not a finished run: it lacks {', '.join(missing)}")
        spec = json.loads((directory / SPEC).read_text(encoding="utf-8"))
        timing = json.loads((directory / TIMING).read_text(encoding="utf-8"))
        for name, value in ((SPEC, spec), (TIMING, timing)):
            if not isinstance(value, dict):
                raise ValueError(f"cannot read the run in {directory}: {name} holds no names and values")
        if spec.get("format", FORMAT) != FORMAT:
            raise ValueError(f"{directory} has files of format {spec['format']}, this version reads {FORMAT}")
        regret, optimal = read_checkpoints(directory / CHECKPOINTS, spec)
        instances = read_instances(directory / INSTANCES, spec)
        return kind(spec, regret, optimal, **instances, timing=timing)
    except (OSError, pa.ArrowException, KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the run in {directory}: {error}") from error


def summary_table(result: Regrets) -> pd.DataFrame:
    """The summary with the comparison against the spec's baseline beside it, as in `summary.csv`."""
    return summarise(result).merge(compare(result), on=["policy", "step"], how="left")
