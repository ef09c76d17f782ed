"""Which commit the running code is from."""

import os
import subprocess
from functools import cache
from pathlib import Path


@cache
def current_commit() -> str:
    """Commit of the checkout this package runs from, `-dirty` if tracked files differ.

    Outside a checkout, as in a copy of its files on another machine: what the variable STAU_RL_COMMIT says, else
    `unknown`.
    """
    elsewhere = os.environ.get("STAU_RL_COMMIT", "unknown")
    folder = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != folder.parent:
            return elsewhere
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return elsewhere
