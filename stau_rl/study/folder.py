"""The folder of a study: a CSV per finished setting, so that an interrupted study goes on where it stopped.

| file | what it holds |
| --- | --- |
| `settings/*.csv` | the rows of one setting each; the name carries a digest of everything that decides them |
| `study.json` | the base settings and the engine, which a study that goes on must share |
| `study.csv` | all rows, in the order of the plan, with Holm-adjusted p-values |
| `curves.png` | regret over the slope in every setting, with bands, references as lines; `.svg`, `.pdf` if asked for |
| `timing.json` | seconds of each setting: the only file that differs between two runs of one study |

Every file is written whole or not at all.
"""

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from stau_rl.files.finished import FinishedFolder, keep_seconds, read_table, write_table
from stau_rl.files.identity import first_difference
from stau_rl.files.whole import write_json
from stau_rl.study.compare import COLUMNS
from stau_rl.study.setting import Setting

SETTINGS, TABLE, FIGURE, ABOUT = "settings", "study.csv", "curves.png", "study.json"
# Digits kept of a number: enough for every table, few enough to survive another order of summation.
DIGITS = 10


class StudyFolder(FinishedFolder):
    """The folder of one study; use it in a `with` block, which locks it against other processes.

    Args:
        path: the folder; created if it is not there, and removed again if the block fails before it holds a setting.
        settings: the settings of the study.
        engine: what plays them.
        resume: it may hold finished settings, which are then not played again. The study that it holds must have the
            same base settings (families, arms, horizon, instances, seed, size) and engine; sweeps may differ.

    Raises:
        ValueError: the folder holds rows and `resume` is not set, or another study's; is a file, is in use, or cannot
            be written.
    """

    made_for, holds, pieces = "a study", "a study", SETTINGS
    tables = (TABLE, FIGURE, "curves.svg", "curves.pdf")

    def __init__(
        self, path: str | Path, settings: Sequence[Setting], engine: str = "auto", resume: bool = False
    ) -> None:
        super().__init__(path, resume)
        # A list of settings without base ones is told by its first.
        bases = [setting for setting in settings if setting.sweep == "base"] or list(settings[:1])
        self.about = json.loads(json.dumps({"engine": engine, "base": [base.fields() for base in bases]}))
        self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self._check_about()

    def __exit__(self, *_: object) -> None:
        """Let other processes have the folder; one that nothing was finished in is left as it was found."""
        if not self.has_pieces:
            with suppress(OSError):
                (self.path / ABOUT).unlink(missing_ok=True)
                (self.path / SETTINGS).rmdir()
        super().__exit__()
        # What still holds something stays.
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def _begin(self) -> None:
        """Say what the study is, for one that goes on with it."""
        if not (self.path / ABOUT).exists():
            write_json(self.path / ABOUT, self.about)

    def _check_about(self) -> None:
        """Refuse a folder that holds another study."""
        try:
            known = json.loads((self.path / ABOUT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.path}: {ABOUT} cannot be read ({error}); name another folder") from error
        difference = first_difference(known, self.about)
        if difference:
            where, there, asked = difference
            raise ValueError(
                f"{self.path} holds another study: {where} is {there} there, {asked} was asked for; name another folder"
            )

    def read(self, setting: Setting) -> pd.DataFrame | None:
        """The rows of a finished setting; None where it is not there, or not whole."""
        try:
            table = read_rows(self.path / SETTINGS / setting.file_name)
        except (FileNotFoundError, ValueError):
            return None
        if list(table.columns) != list(COLUMNS) or len(table) == 0:
            return None
        # A file cut short ends in another row than the last one of a setting, or within it.
        last = table.iloc[-1]
        ends = ("reference", setting.references[-1]) if setting.references else ("tuned", setting.families[-1])
        whole = (last["comparison"], last["family"]) == ends and table["versions"].nunique() == 1
        return table if whole and bool((table["setting"] == setting.identity).all()) else None

    def write(self, setting: Setting, rows: pd.DataFrame, seconds: float) -> pd.DataFrame:
        """Keep a setting's rows and how long they took; what is returned is what `read` will give."""
        keep_seconds(self.path, setting.file_name, seconds)
        write_table(self.path / SETTINGS / setting.file_name, rows)
        return read_rows(self.path / SETTINGS / setting.file_name)

    def finish(self, rows: pd.DataFrame) -> None:
        """Write the table of all settings, and the figure."""
        write_study(rows, self.path)


def write_study(rows: pd.DataFrame, folder: Path) -> None:
    """Write `study.csv`, and `curves.png` where something was tuned, into a folder."""
    from stau_rl.study.plot import save_study

    write_table(folder / TABLE, rows, DIGITS)
    if (rows["comparison"] == "curve").any():
        save_study(rows, folder / FIGURE)


def read_rows(path: Path) -> pd.DataFrame:
    """Read the table of a study's folder; texts stay texts where they look like numbers or are empty.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it is no table of a study.
    """
    texts = (
        "sweep",
        "value",
        "arms",
        "comparison",
        "family",
        "policy",
        "edge",
        "baseline",
        "setting",
        "commit",
        "engine",
        "versions",
    )
    return read_table(path, texts)


def rounded(rows: pd.DataFrame) -> pd.DataFrame:
    """The table as it would come back from a file."""
    text = rows.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")
    return read_rows(io.StringIO(text))  # type: ignore[arg-type]
