"""The rows of `stau-rl speed`: a file that grows by one run at a time."""

import csv
import os
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.files.whole import whole_file
from stau_rl.machine.stamp import current_commit, versions

# Where rows go that are given no other file, in the folder that the command is called from.
ROWS = Path("speed.csv")
COLUMNS = (
    "commit",
    "dirty",
    "versions",
    "device",
    "cores",
    "seed",
    "engine",
    "head",
    "arms",
    "instances",
    "steps",
    "repeats",
    "median",
    "p20",
    "p80",
    "compile_seconds",
    "peak_memory_mib",
    "ceiling_share",
    "regret_z",
    "same_histories",
    "settings",
)
"""`median`, `p20`, `p80`: arm-steps per second over the repeats. `compile_seconds`: first run less the next, small
where compiled code was on the disk (NUMBA_CACHE_DIR and TRITON_CACHE_DIR can name empty folders).
`peak_memory_mib`: memory that setting up and the first run took on top of the process, of the device for a GPU.
`ceiling_share`: special functions per second over what the device's units can do. `regret_z`: distance of the mean
regret from its exact value, in standard errors. `same_histories`: share identical to the float64 reference."""
PEERS = ("JAX", "torch eager", "torch.compile")
KEY = ["device", "engine", "head", "arms"]


def stamp(device: str, cores: int, seed: int, repeats: int, commit: str | None = None) -> dict[str, Any]:
    """What all rows of one run share.

    Args:
        device: name of the device.
        cores: cores that the run may use.
        seed: of the first repeat.
        repeats: timed runs of each case.
        commit: for code that is no checkout.
    """
    here = commit or current_commit()
    found = versions("numpy", "numba", "torch", "triton", "jax")
    return {
        "commit": here.removesuffix("-dirty"),
        "dirty": here.endswith("-dirty"),
        "versions": "; ".join(f"{name} {number}" for name, number in found.items()),
        "device": device,
        "cores": cores,
        "seed": seed,
        "repeats": repeats,
    }


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to a file, all of them or none.

    Args:
        path: a CSV file of these rows; made if it is not there.
        rows: dictionaries with the names in `COLUMNS`.

    Raises:
        ValueError: the file has other columns, or a row that does not fit them.
        OSError: the file cannot be written.
    """
    old = check(path)
    with whole_file(path) as temporary:
        temporary.write_text(old + csv_text(rows).partition("\n")[2], encoding="utf-8")


def check(path: Path) -> str:
    """What a file that rows are to be added to holds, up to the end of a line.

    Args:
        path: as in `append`.

    Raises:
        ValueError: as in `append`.
        OSError: the file cannot be read, or its folder is not there or not writable.
    """
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise OSError(f"rows cannot be added to {path}: {path.parent} is no folder that can be written")
    old = path.read_text(encoding="utf-8") if path.exists() else ",".join(COLUMNS) + "\n"
    if old.partition("\n")[0] != ",".join(COLUMNS):
        raise ValueError(f"{path} has other columns than speed rows have; name another file")
    for number, row in enumerate(csv.reader(old.splitlines()), start=1):
        if len(row) != len(COLUMNS):
            raise ValueError(
                f"{path}: line {number} has {len(row)} fields, not {len(COLUMNS)}; mend it or name another file"
            )
    return old if old.endswith("\n") else old + "\n"


def csv_text(rows: list[dict[str, Any]]) -> str:
    """Rows as they stand in a file, after a line with the names of the columns.

    Args:
        rows: dictionaries with the names in `COLUMNS`.
    """
    table = pd.DataFrame(rows)[list(COLUMNS)]
    return table.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def read(path: Path) -> pd.DataFrame:
    """All rows of a file."""
    return pd.read_csv(path)


def latest(rows: pd.DataFrame) -> pd.DataFrame:
    """The last row of every device, engine, head and number of arms, in the order of the file."""
    return rows.drop_duplicates(KEY, keep="last")


def compare(rows: pd.DataFrame) -> tuple[str, dict[str, float]]:
    """How many times as fast the fastest engine is as the fastest of each kind of peer.

    Args:
        rows: of one device, head and number of arms.

    Returns:
        The engine's name, empty without one, and its ratio to the fastest of the JAX scans, to torch eager and to
        torch.compile, by the peer's name, for those that are there.
    """
    medians = dict(zip(rows["engine"], rows["median"], strict=True))
    peers = [[name for name in medians if name.startswith(kind)] for kind in PEERS]
    engines = [name for name in medians if not name.startswith(PEERS)]
    if not engines:
        return "", {}
    best = max(engines, key=medians.__getitem__)
    fastest = [max(names, key=medians.__getitem__) for names in peers if names]
    return best, {name: float(medians[best] / medians[name]) for name in fastest}
