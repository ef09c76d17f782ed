"""The reference of the command line, written from the commands themselves."""

import inspect
import re
import textwrap
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

from stau_rl.cli.main import commands
from stau_rl.cli.options import POSITIONAL
from stau_rl.cli.plain import field_texts
from stau_rl.pages.markdown import code, listing


def reference() -> str:
    """A section per command: its question, what it does, an example, and a table of its options."""
    return "\n\n".join(_section(name, command) for name, command in commands().items())


def _section(name: str, command: type[Any]) -> str:
    question, *rest = re.split(r"\n\s*\n", inspect.getdoc(command) or "")
    parts = [f"## stau-rl {name}", f"**{_prose(question)}**"]
    for paragraph in rest:
        example = paragraph.removeprefix("Example: ")
        if example != paragraph:
            parts.append("```sh\n" + textwrap.dedent(" ".join(example.split())) + "\n```")
        else:
            parts.append(_prose(paragraph))
    kinds, texts = get_type_hints(command, include_extras=True), field_texts(command)
    rows = [
        (_option(one, kinds[one.name]), _default(one), _prose(texts.get(one.name, "")).replace("|", "\\|"))
        for one in fields(command)
    ]
    return "\n\n".join([*parts, listing(("option", "default", "what it is"), rows)])


def _option(member: "Field[Any]", kind: Any) -> str:
    if POSITIONAL in getattr(kind, "__metadata__", ()):
        return code(member.name.upper())
    return code(f"--{member.name.replace('_', '-')}")


def _default(member: "Field[Any]") -> str:
    """What stands if the option is left out; nothing where the text says it in words."""
    if member.default is MISSING:
        return "required"
    if member.default is None or member.default == ():
        return ""
    if isinstance(member.default, bool):
        return "on" if member.default else "off"
    values = member.default if isinstance(member.default, tuple) else (member.default,)
    return code(" ".join(map(str, values)))


def _prose(text: str) -> str:
    """A paragraph of a docstring in one line, safe in Markdown."""
    return " ".join(text.split()).replace("<", "&lt;").replace("*", "\\*")
