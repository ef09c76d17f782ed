"""`python -m stau_rl.pages.trained_scores DIR` trains small models and writes notebooks/results/trained_*.csv anew.

A group of models is a piece of the folder DIR; after an interruption `--resume` goes on with the next one. All of it
takes some minutes on one core: `trained_timing.csv` says how long it took.
"""

import argparse
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from stau_rl.files.finished import FinishedFolder, keep_seconds, read_table, read_timing, write_table
from stau_rl.pages.paths import RESULTS
from stau_rl.pages.tau_models import GROUPS, Group
from stau_rl.pages.tau_rows import CURVE, HEADS_KIND, SWAP, group_rows

HEADS, SWAPS, CURVES, TIMING = (f"trained_{name}.csv" for name in ("heads", "swaps", "curves", "timing"))
TABLES = {HEADS_KIND: HEADS, SWAP: SWAPS, CURVE: CURVES}
TEXTS = ("kind", "group", "head_rule", "choice", "commit", "versions", "device")
DIGITS = 7


class ScoresFolder(FinishedFolder):
    """The folder of the groups; a file each, whose name carries a digest of what decides its rows."""

    made_for, holds, pieces = "groups of trained models", "groups of trained models", "groups"

    def file_name(self, group: Group) -> str:
        """The file of a group's rows."""
        return f"{group.name}-{hashlib.sha256(repr(group).encode()).hexdigest()[:12]}.csv"

    def rows(self, group: Group) -> pd.DataFrame:
        """The rows of a group, made if they are not there."""
        path = self.path / self.pieces / self.file_name(group)
        if not path.exists():
            started = time.perf_counter()
            made = group_rows(group)
            keep_seconds(self.path, group.name, time.perf_counter() - started)
            write_table(path, made, DIGITS)
        return read_table(path, TEXTS)


def publish(rows: pd.DataFrame, seconds: dict[str, float], results: Path) -> None:
    """Write the rows as tables of one kind each, without the columns that a kind has not, and the seconds of groups."""
    for kind, name in TABLES.items():
        own = rows[rows["kind"] == kind]
        unused = [column for column in own if own[column].isna().all() or (own[column] == "").all()]
        write_table(results / name, own.drop(columns=["kind", *unused]), DIGITS)
    times = [{"group": name, "seconds": seconds[name]} for name in rows["group"].unique()]
    write_table(results / TIMING, pd.DataFrame(times).assign(device=rows["device"].iloc[0]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.trained_scores", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the groups are kept")
    parser.add_argument("--resume", action="store_true", help="go on with the groups that the folder has not")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the tables are written")
    options = parser.parse_args(arguments)
    try:
        with ScoresFolder(options.folder, options.resume) as folder:
            parts = []
            for number, group in enumerate(GROUPS):
                print(f"{group.name}: {number} of {len(GROUPS)} groups are done", flush=True)
                parts.append(folder.rows(group))
            publish(pd.concat(parts), read_timing(folder.path), options.results)
    except (OSError, ValueError) as error:
        parser.error(" ".join(str(error).split()))
    print(f"{', '.join([*TABLES.values(), TIMING])} written to {options.results}")


if __name__ == "__main__":
    main()
