"""What the columns of a table mean: told once on a terminal, and again where it is asked for.

Where the output is no terminal it is told every time: nothing that is kept depends on what was printed before.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

HINT = "What the columns mean: --explain."


def to_explain(command: str, asked: bool) -> bool:
    """Whether a command is to tell what its columns mean, and a note that it has.

    Args:
        command: its name.
        asked: --explain was given.
    """
    if asked or sys.stdout is None or not sys.stdout.isatty():
        return True
    told = _folder() / command
    if told.exists():
        return False
    # Where no note can be left, it is told every time.
    with suppress(OSError):
        told.parent.mkdir(parents=True, exist_ok=True)
        told.touch()
    return True


def _folder() -> Path:
    """Where programs keep what they know of their past; `~/.local/state` unless XDG_STATE_HOME says otherwise."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "stau_rl" / "explained"
