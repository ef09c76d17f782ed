"""What commands read of environments and settings: NAME=VALUE texts, and modules in the current folder."""

import json
import sys
from pathlib import Path
from typing import Any


def import_from_here() -> None:
    """Let modules in the current folder be imported, after all others; worker processes take the path over."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def read_env_args(texts: tuple[str, ...]) -> dict[str, Any]:
    """Arguments of an environment by name, from NAME=VALUE; a value that is JSON is read as such.

    Raises:
        ValueError: a text of another form, or a name given twice.
    """
    return {name: _json_or_text(value) for name, value in named_values("--env-arg", texts).items()}


def _json_or_text(text: str) -> Any:
    def refuse(name: str) -> Any:
        raise ValueError(name)

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError:
        return text


def named_values(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE texts by name.

    Raises:
        ValueError: a text of another form, or a name given twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"{option} takes NAME=VALUE, got {text!r}")
        if name in pairs:
            raise ValueError(f"{option} {name} is given twice: {pairs[name]!r} and {value.strip()!r}")
        pairs[name] = value.strip()
    return pairs


def read_pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Settings by name; a ValueError for one that has an option of its own."""
    from stau_rl.cli.settings_table import OPTIONS

    pairs = named_values("--set", texts)
    for name, option in OPTIONS.items():
        if name in pairs:
            raise ValueError(f"--set {name} is {option}")
    return pairs
