"""The table of the settings that `stau-rl train --set` takes, written from the agents themselves."""

from stau_rl.cli.settings_table import settings_table
from stau_rl.pages.markdown import code, listing


def reference() -> str:
    """A row per setting that has no option of its own: its default in each agent, and what it is."""
    header, rows = settings_table()
    return listing(header, [(code(name), *defaults, text.replace("|", "\\|")) for name, *defaults, text in rows])
