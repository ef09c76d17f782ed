"""`python -m stau_rl.claim` writes docs/claim.md, its figures and its notebook from the committed rows.

`--rerun` first plays all settings again and replaces the rows. It may be stopped and started again: finished settings
are kept in runs/claim.
"""

import argparse
import contextlib
import os
import time
from pathlib import Path

import pandas as pd

from stau_rl.atomic import whole_file
from stau_rl.claim_data import COMPARISONS, CURVES, RESULTS, TIMING, ClaimData
from stau_rl.claim_figures import save_figures
from stau_rl.claim_notebook import notebook
from stau_rl.claim_page import page
from stau_rl.claim_settings import ROOT, claim_settings
from stau_rl.machine import device
from stau_rl.study_files import TABLE, StudyFolder, read_rows, write_rows

RUN = ROOT / "runs" / "claim"
PAGE = ROOT / "docs" / "claim.md"
NOTEBOOK = ROOT / "notebooks" / "claim_35_percent.ipynb"


def rerun(folder: Path = RUN) -> None:
    """Play all settings (those that `folder` holds are kept) and write their rows under notebooks/results."""
    from stau_rl.progress import settings_bar
    from stau_rl.study import play_settings

    settings = claim_settings()
    # Files of observations are named from the root of the checkout.
    with contextlib.chdir(ROOT), settings_bar(len(settings)) as report:
        play_settings(settings, folder, resume=True, report=report)
    publish(folder)


def publish(folder: Path) -> None:
    """Write the rows of a finished run under notebooks/results."""
    rows = read_rows(folder / TABLE)
    curves = rows["comparison"] == "curve"
    for name, part in ((CURVES, rows[curves]), (COMPARISONS, rows[~curves])):
        used = [column for column in part.columns if part[column].notna().any()]
        write_rows(RESULTS / name, part[used])
    seconds = sum(StudyFolder(folder, resume=True).timing().values())
    timing = {"seconds": round(seconds), "threads": os.cpu_count(), "device": device()}
    with whole_file(RESULTS / TIMING) as temporary:
        pd.DataFrame([timing]).to_csv(temporary, index=False, lineterminator="\n")


def write(data: ClaimData) -> None:
    """Write the page, the figures and the notebook."""
    save_figures(data, PAGE.parent)
    for path, text in ((PAGE, page(data)), (NOTEBOOK, notebook())):
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def main() -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.claim", description=__doc__)
    parser.add_argument("--rerun", action="store_true", help="play all settings again (tens of minutes)")
    started = time.perf_counter()
    if parser.parse_args().rerun:
        rerun()
    write(ClaimData.load())
    print(f"{PAGE} written in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
