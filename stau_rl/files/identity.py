"""Which spec a run directory belongs to: the part of a spec that decides the numbers."""

import json
from typing import Any

DESCRIPTIVE = frozenset({"baseline", "commit", "device_name", "engine_note", "notes", "versions"})
"""Fields that describe a run without deciding its numbers; any other field is part of its identity."""


def identity(spec: dict[str, Any]) -> dict[str, Any]:
    """The part of a spec that decides the numbers, as JSON gives it back.

    Two runs of one identity may share parts and give the same files. Unknown fields count, so that a
    setting added later separates runs by default.

    Args:
        spec: a JSON-able spec.

    Returns:
        The spec without `DESCRIPTIVE` fields; tuples are lists.

    Raises:
        ValueError: the spec is not JSON-able, or holds nan or an infinity.
    """
    try:
        plain = json.loads(json.dumps(spec, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"spec cannot be written as JSON: {error}") from error
    return {name: value for name, value in plain.items() if name not in DESCRIPTIVE}


def first_difference(old: Any, new: Any, where: str = "") -> tuple[str, str, str] | None:
    """The first place where two JSON values differ.

    Args:
        old: a JSON value.
        new: a JSON value.
        where: path of the two values, put before the answer's.

    Returns:
        (path such as `policies[1]`, old value, new value) as texts, `nothing` for a value that is not
        there; None where the two are equal.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*new, *(name for name in old if name not in new)]:
            path = f"{where}.{name}" if where else name
            if name not in old:
                return path, "nothing", json.dumps(new[name], ensure_ascii=False)
            if name not in new:
                return path, json.dumps(old[name], ensure_ascii=False), "nothing"
            found = first_difference(old[name], new[name], path)
            if found:
                return found
        return None
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new) and old[: len(new)] == new[: len(old)]:
            return f"length of {where}", str(len(old)), str(len(new))
        for position, (a, b) in enumerate(zip(old, new, strict=False)):
            found = first_difference(a, b, f"{where}[{position}]")
            if found:
                return found
        return None
    # 1 and 1.0 are one number, 1 and true are not.
    if old == new and isinstance(old, bool) == isinstance(new, bool):
        return None
    return where, json.dumps(old, ensure_ascii=False), json.dumps(new, ensure_ascii=False)
