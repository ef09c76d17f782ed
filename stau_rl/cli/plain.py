"""The command line with the standard library's parser, from the same commands: for machines without tyro."""

import argparse
import ast
import inspect
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from stau_rl.cli.options import COUNT, COUNTS, POSITIONAL, REPEATED
from stau_rl.machine.version import VERSION
from stau_rl.terminal.counts import whole_number


def read_command(commands: Mapping[str, type[Any]], prog: str, description: str, arguments: Sequence[str]) -> Any:
    """The command that the arguments name, with their values; exit code 2 and one line for a user's mistake.

    Args:
        commands: name -> dataclass; each field is an option.
        prog: name of the program in help and errors.
        description: what it is for.
        arguments: the words behind the program's name.
    """
    found = vars(command_parser(commands, prog, description).parse_args(arguments))
    command = commands[found.pop("command")]
    return command(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


def command_parser(commands: Mapping[str, type[Any]], prog: str, description: str) -> argparse.ArgumentParser:
    """The parser of `read_command`: a subcommand per command, with its first sentence in the list of all.

    Args:
        commands: name -> dataclass; each field is an option.
        prog: name of the program in help and errors.
        description: what it is for.
    """
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=f"{prog} COMMAND --help says the rest.",
        add_help=False,
        formatter_class=partial(argparse.HelpFormatter, max_help_position=16),
    )
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument("--version", action="version", version=f"{prog} {VERSION}", help="show the version and exit")
    several = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name, command in commands.items():
        text = inspect.getdoc(command) or ""
        one = several.add_parser(
            name, help=text.split("\n")[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        kinds, texts = get_type_hints(command, include_extras=True), field_texts(command)
        for member in fields(command):
            _add(one, member, kinds[member.name], texts.get(member.name, ""))
    return parser


def _add(parser: argparse.ArgumentParser, member: "Field[Any]", kind: Any, text: str) -> None:
    """Add one field as an option."""
    marks = getattr(kind, "__metadata__", ())
    bare = get_args(kind)[0] if marks else kind
    needed = member.default is MISSING
    options: dict[str, Any] = {"help": text.replace("%", "%%")}
    if not needed:
        options["default"] = member.default
    if bare is bool:
        options["action"] = argparse.BooleanOptionalAction
    elif get_origin(bare) is Literal:
        options["choices"] = get_args(bare)
    elif get_origin(bare) is tuple:
        element = get_args(bare)[0]
        if COUNT in getattr(element, "__metadata__", ()) or COUNTS in marks:
            element = whole_number
        options |= {"type": element, "nargs": "+"}
        if REPEATED in marks:
            # A default list would be appended to; an empty tuple is no list.
            options |= {"nargs": 1, "action": "extend", "default": []}
    else:
        options["type"] = next(kind for kind in (*get_args(bare), bare) if kind is not NoneType)
        if COUNT in marks:
            options["type"] = whole_number
    if POSITIONAL in marks:
        parser.add_argument(member.name, **options)
    else:
        name = f"--{member.name.replace('_', '-')}"
        parser.add_argument(name, dest=member.name, required=needed, **options)


def field_texts(command: type[Any]) -> dict[str, str]:
    """The text under each field of a class."""
    body = ast.parse(textwrap.dedent(inspect.getsource(command))).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
