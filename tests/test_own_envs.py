"""Environments of one's own and their arguments: on the command line, in the tables, and where they are refused."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from inline_pool import InlinePool
from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.agents.policy_gradient.agent_settings import AgentSettings
from stau_rl.agents.policy_gradient.environments import env_text, make_envs
from stau_rl.agents.policy_gradient.policy_gradient import Agent
from stau_rl.cli import main as cli
from stau_rl.cli.named_values import read_env_args
from stau_rl.training import train as train_module
from stau_rl.training.train import train

SHORT = ["--steps", "200", "--agent", "a2c"]
for text in ("points=1", "hidden=4", "curve_episodes=1", "episodes=2"):
    SHORT += ["--set", text]


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(train_module, "RunPool", InlinePool)
    # Half of a short training's time is its figure.
    monkeypatch.setattr("stau_rl.training.result.save_curves", lambda *_: None)


def test_arguments_are_json_or_text(tmp_path):
    command = ["train", "--env", "own_envs:Corridor-v0", *SHORT, "--out", str(tmp_path / "run")]
    cli.main([*command, "--env-arg", "length=3", "--env-arg", "pay=-2.5e0", "--env-arg", "first=7"])
    args = json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]["env_args"]
    assert args == {"length": 3, "pay": -2.5, "first": 7}
    scores = pd.read_csv(tmp_path / "run" / "scores.csv")
    assert scores["env"].tolist() == ["own_envs:Corridor-v0(length=3, pay=-2.5, first=7)"]
    assert scores["sampled"][0] in (0.0, -1.25, -2.5)
    assert read_env_args(("map_name=8x8", "a=true", 'b="3"', "c=[1, 2]", "d=null", "e=NaN", "f=")) == {
        "map_name": "8x8",
        "a": True,
        "b": "3",
        "c": [1, 2],
        "d": None,
        "e": "NaN",
        "f": "",
    }
    assert env_text("A-v0", {}) == "A-v0"


def test_arguments_reach_training_curve_and_evaluation(monkeypatch):
    """Every environment that a run makes has them."""
    made = []
    real = make_envs

    def watched(name, count, args=None):
        made.append(args)
        return real(name, count, args)

    for module in ("policy_gradient", "rollout"):
        monkeypatch.setattr(f"stau_rl.agents.policy_gradient.{module}.make_envs", watched)
    settings = {"env": "own_envs:Corridor-v0", "env_args": {"length": 2}, "steps": 100, "points": 1, "episodes": 2}
    train("a2c", {**settings, "curve_episodes": 1})
    assert len(made) == 6
    assert made == [{"length": 2}] * 6


def test_a_training_without_arguments_has_the_settings_of_old():
    assert "env_args" not in AgentSettings().as_dict()
    assert AgentSettings(env_args={"a": 1}).as_dict()["env_args"] == {"a": 1}
    assert hash(AgentSettings()) == hash(AgentSettings())
    for bad in ({"a": np.nan}, {"a": object()}, {"num_envs": 3}, {"a b": 1}):
        with pytest.raises(ValueError, match="env_args"):
            AgentSettings(env_args=bad)


def test_a_module_in_the_current_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "nearby_envs.py").write_text(
        "import gymnasium as gym\nfrom own_envs import Corridor\n"
        "gym.register('Near-v0', entry_point=Corridor, disable_env_checker=True)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    cli.main(["train", "--env", "nearby_envs:Near-v0", *SHORT, "--out", "run"])
    assert (tmp_path / "run" / "scores.csv").exists()
    assert sys.path[-1] == str(tmp_path)
    assert str(tmp_path) not in sys.path[:-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "Nope-v1"], '(an environment of your own is "module:id", where importing the module'),
        (["--env", "own_envs:Nope-v1"], "importing own_envs did not register 'Nope-v1'"),
        (["--env", "no_such_module:Nope-v1"], "No module named 'no_such_module'"),
        (["--env", "own_envs:Picture-v0"], "gives images, uint8 of shape (8, 6, 3); these agents take rows of numbers"),
        (["--env", "own_envs:Picture-v0", "--env-arg", "shape=[5, 5]"], "gives images, uint8 of shape (5, 5)"),
        (["--env", "Blackjack-v1"], "wrap it in gymnasium.wrappers.FlattenObservation"),
        (["--env-arg", "lenght=3"], "unexpected keyword argument 'lenght'"),
        (["--env-arg", "length"], "--env-arg takes NAME=VALUE, got 'length'"),
        (["--env-arg", "length=3", "--env-arg", "length=4"], "--env-arg length is given twice: '3' and '4'"),
        (["--env-arg", "num_envs=3"], "env_args: 'num_envs' is no name of an environment's argument"),
        (["--set", "env_args={}"], "--set env_args is --env-arg"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = [] if "--env" in arguments else ["--env", "own_envs:Corridor-v0"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *own, *arguments, "--out", "run"])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_rows_of_bytes_are_no_images():
    """One row of uint8 is a row of numbers."""
    settings = AGENTS["a2c"].Settings(env="own_envs:Picture-v0", env_args={"shape": [12]}, hidden=(4,))
    assert Agent(settings, 0).spaces.inputs == 12


def test_settings_are_listed(capsys):
    """Those of the guide's table: each with its defaults and meaning."""
    cli.main(["train", "--settings"])
    printed = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    rows = {row[0]: row[1:] for row in printed if len(row) == 5 and row[0]}
    assert rows["rollout"][:3] == ["-", "8", "128"]
    assert rows["reward_scale"][:3] == ["return"] * 3
    assert rows["clip"][3].startswith("Largest change of a probability ratio")
    assert "env" not in rows
