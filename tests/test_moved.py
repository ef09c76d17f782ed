"""Old names say where they have gone."""

import importlib
import subprocess
import sys
from importlib.util import find_spec

import pytest

import stau_rl  # noqa: F401
from stau_rl.moved import COMMANDS, MODULES


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_an_old_module_names_the_new_one(old, new):
    with pytest.raises(ModuleNotFoundError, match=f"stau_rl.{old} is now {new}"):
        importlib.import_module(f"stau_rl.{old}")
    assert find_spec(new) is not None


@pytest.mark.parametrize("command", sorted({now.split()[2] for now in COMMANDS.values()}))
def test_what_it_names_is_there(command):
    assert find_spec(command) is not None


def test_an_old_command_says_the_new_one_in_a_line():
    for old, new in (("claim", "stau_rl.pages.claim"), ("plateau", "stau_rl plateau")):
        run = subprocess.run([sys.executable, "-m", f"stau_rl.{old}"], capture_output=True, text=True)
        assert run.returncode == 1
        assert f"stau_rl.{old} is now python -m {new}" in run.stderr
        assert "Traceback" not in run.stderr


def test_an_unknown_name_stays_unknown():
    with pytest.raises(ModuleNotFoundError, match="No module named 'stau_rl"):
        importlib.import_module("stau_rl.nothing")
