"""`python -m stau_rl.pages.claim` writes docs/claim.md, its tables, figures and notebook from the committed rows.

`--rerun` first plays all settings again and replaces the rows. It may be stopped and started again: finished settings
are kept in --folder. Several processes share the work with --part 1/4, ..., --part 4/4, which play every fourth setting
each and write nothing else; --rerun then puts their settings together. --only NAME,... plays the settings of these
sweeps alone, and leaves the rows of all others as they are. --results DIR takes the rows, and leaves the page alone;
copied to notebooks/results, they give the page.
"""

import argparse
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from stau_rl.files.finished import TIMING as SECONDS
from stau_rl.files.finished import read_timing, write_table
from stau_rl.files.whole import whole_file, write_json
from stau_rl.machine.stamp import device_name
from stau_rl.pages.claim_data import COMPARISONS, CURVES, TIMING, ClaimData, read_timings
from stau_rl.pages.claim_figures import save_figures
from stau_rl.pages.claim_settings import claim_settings
from stau_rl.pages.claim_tables import tables_page
from stau_rl.pages.claim_text import page
from stau_rl.pages.notebook_outputs import write_notebook
from stau_rl.pages.notebooks import CLAIM
from stau_rl.pages.paths import DOCS, NOTEBOOKS, RESULTS, ROOT
from stau_rl.study.folder import SETTINGS, TABLE, read_rows

RUN = ROOT / "runs" / "claim"
PAGE = DOCS / "claim.md"
TABLES = DOCS / "claim_tables.md"
NOTEBOOK = NOTEBOOKS / "claim_35_percent.ipynb"


def play(
    folder: Path = RUN,
    engine: str = "auto",
    device: str = "auto",
    share: float = 1.0,
    part: tuple[int, int] | None = None,
    only: Sequence[str] = (),
) -> None:
    """Play the settings of the page; those that the folder holds are kept.

    Args:
        folder: where finished settings are kept.
        engine: as in `stau_rl.study.play.run_study`.
        device: likewise.
        share: of the instances.
        part: (i, n) plays every n-th setting from the i-th on, i = 1, ..., n, in a folder of its own beside `folder`.
        only: names of sweeps; the settings of these alone.
    """
    from stau_rl.study.play import play_settings
    from stau_rl.terminal.progress import progress_bar

    settings = claim_settings(share, only)
    folder = folder.resolve()
    if part is None:
        gather(folder)
    else:
        settings = settings[part[0] - 1 :: part[1]]
        folder = folder.with_name(f"{folder.name}-{part[0]}-of-{part[1]}")
    # Files of observations are named from the root of the checkout.
    with contextlib.chdir(ROOT), progress_bar(len(settings)) as report:
        play_settings(settings, folder, resume=True, report=report, engine=engine, device=device)


def gather(folder: Path) -> None:
    """Copy the settings that parts have finished into the folder that all are put together in."""
    seconds = read_timing(folder)
    for part in sorted(folder.parent.glob(f"{folder.name}-*-of-*")):
        (folder / SETTINGS).mkdir(parents=True, exist_ok=True)
        for path in sorted((part / SETTINGS).glob("*.csv")):
            with whole_file(folder / SETTINGS / path.name) as temporary:
                shutil.copyfile(path, temporary)
        seconds |= read_timing(part)
        write_json(folder / SECONDS, seconds)


def publish(folder: Path = RUN, results: Path = RESULTS, only: Sequence[str] = ()) -> None:
    """Write the rows of a finished run under notebooks/results, or elsewhere.

    Args:
        folder: of the run.
        results: where the rows go.
        only: the sweeps that were played; the rows of all others stay as they are, and these come after them.
    """
    results.mkdir(parents=True, exist_ok=True)
    rows = read_rows(folder / TABLE)
    curves = rows["comparison"] == "curve"
    for name, part in ((CURVES, rows[curves]), (COMPARISONS, rows[~curves])):
        used = [column for column in part.columns if part[column].notna().any()]
        fresh = part[used]
        if only and (results / name).exists():
            known = read_rows(results / name)
            kept = known[~known["sweep"].isin(only)]
            missing = [column for column in used if column not in known]
            fresh = _stack([kept, fresh], [*known.columns, *missing])
        write_table(results / name, fresh)
    played = set(rows["setting"])
    seconds = sum(took for name, took in read_timing(folder).items() if name.removesuffix(".csv")[-16:] in played)
    threads = int(os.environ.get("NUMBA_NUM_THREADS", os.cpu_count() or 1))
    timing = pd.DataFrame(
        [{"sweeps": " ".join(only), "seconds": round(seconds), "threads": threads, "device": played_on(rows)}]
    )
    if only and (results / TIMING).exists():
        known = read_timings(results / TIMING)
        timing = pd.concat([known[known["sweeps"] != " ".join(only)], timing], ignore_index=True)
    with whole_file(results / TIMING) as temporary:
        timing.to_csv(temporary, index=False, lineterminator="\n")


def _stack(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    """Tables one below the other; a column that one of them lacks is empty there."""
    full = [table.dropna(axis=1, how="all") for table in tables if len(table)]
    return pd.concat(full, ignore_index=True).reindex(columns=columns)


def played_on(rows: pd.DataFrame) -> str:
    """Name of the GPU if one played some rows, else the processor's, or at least its architecture."""
    on_gpu = rows["engine"].str.contains(" cuda").any()
    try:
        return device_name("cuda" if on_gpu else "cpu")
    except (AssertionError, RuntimeError):
        # Put together on a machine without the one that played them.
        return "a GPU elsewhere"


def write(data: ClaimData) -> None:
    """Write both pages, the figures and the notebook."""
    save_figures(data, PAGE.parent)
    for path, text in ((PAGE, page(data)), (TABLES, tables_page(data))):
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    write_notebook(NOTEBOOK, CLAIM)


def main() -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(
        prog="python -m stau_rl.pages.claim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rerun", action="store_true", help="play all settings that --folder lacks (hours on two cores)"
    )
    parser.add_argument("--engine", default="auto", help="numba, triton, torch, auto, or several such as triton,numba")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:N or auto")
    parser.add_argument("--folder", type=Path, help="where finished settings are kept; runs/claim, or one per --only")
    parser.add_argument("--only", default="", help="names of sweeps, such as annealed,baselines: play these alone")
    parser.add_argument("--results", type=Path, help="write the rows here and leave the page alone")
    parser.add_argument("--part", type=_part, help="I/N: play every N-th setting from the I-th on, and nothing else")
    parser.add_argument("--share", type=float, default=1.0, help="of the instances; below 1 only with --results")
    given = parser.parse_args()
    if given.share != 1.0 and given.results is None and given.part is None:
        parser.error("--share below 1 needs --results DIR: the page is made of whole settings")
    only = tuple(name.strip() for name in given.only.split(",") if name.strip())
    folder = given.folder or RUN.with_name("-".join((RUN.name, *only)))
    started = time.perf_counter()
    try:
        if given.rerun or given.part:
            play(folder, given.engine, given.device, given.share, given.part, only)
        if given.part is None:
            if given.rerun:
                publish(folder, given.results or RESULTS, only)
            if given.results is None:
                write(ClaimData.load())
    except ValueError as error:
        parser.error(" ".join(str(error).split()))
    except KeyboardInterrupt:
        sys.exit(130)
    done = f"{given.results} filled" if given.results else "part played" if given.part else f"{PAGE} written"
    print(f"{done} in {time.perf_counter() - started:.0f} s")


def _part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"--part must read I/N with 1 <= I <= N, got {text!r}")
    return int(part), int(parts)


if __name__ == "__main__":
    main()
