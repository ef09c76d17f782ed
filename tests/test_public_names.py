"""The package's face: what it lists, what type checkers see, and what each public name says of itself."""

import ast
import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import stau_rl
from stau_rl.plugin.plugin_head import forget

FACE = Path(stau_rl.__file__).read_text(encoding="utf-8")
each_name = pytest.mark.parametrize("name", stau_rl._LAZY)


def test_help_lists_every_name_in_a_line():
    shown = re.findall(r"^- `(\w+)`: (.+)\.$", stau_rl.__doc__, flags=re.M)
    assert [name for name, _ in shown] == list(stau_rl._LAZY)
    rooms = re.search(r"Rooms: (.*)\.", stau_rl.__doc__)[1]
    assert sorted(re.findall(r"`(\w+)`", rooms)) == sorted(stau_rl._ROOMS)


def test_type_checkers_see_what_is_loaded():
    """The imports under TYPE_CHECKING are those of the table of lazy names."""
    (block,) = [node for node in ast.parse(FACE).body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == stau_rl._LAZY | dict.fromkeys(stau_rl._ROOMS, "stau_rl")


@each_name
def test_a_name_is_what_its_module_has(name):
    assert getattr(stau_rl, name) is getattr(import_module(stau_rl._LAZY[name]), name)


@each_name
def test_a_docstring_says_all(name):
    thing = getattr(stau_rl, name)
    wanted = ["Args:", "Returns:", "Raises:"] if inspect.isfunction(thing) else ["Args:|Attributes:"]
    assert [
        one for one in (*wanted, "Examples:") if not re.search(f"^({one})$", inspect.getdoc(thing), flags=re.M)
    ] == []


@each_name
def test_the_example_runs(name):
    thing = getattr(stau_rl, name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing), {}, name, None, 0)
    assert test.examples
    try:
        runner.run(test)
    finally:
        if name == "load_plugin":
            forget("cubic")
    assert runner.failures == 0
