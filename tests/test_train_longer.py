"""Trainings that go on: to more steps with the bytes of one training, or a reason; what they take from the folder."""

import shutil
from dataclasses import replace

import pytest
import torch

from inline_pool import InlinePool
from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.cli import main as cli
from stau_rl.training import train as train_module
from stau_rl.training.result import TrainResult
from stau_rl.training.train import train

STEADY = {"steps": 400, "points": 2, "hidden": [8], "curve_episodes": 1, "episodes": 2, "anneal": False, "envs": 3}
OWN = {
    "reinforce": {},
    "a2c": {},
    "ppo": {"rollout": 16, "minibatch": 64, "head": "s_tau(tau=2)", "learn": ["tau"], "head_warmup": 300},
}
FILES = ("settings.json", "curves.csv", "curves.parquet", "scores.csv")
FILES = (*FILES, *(f"seeds/seed-{seed}.json" for seed in (0, 1)))
FILES = (*FILES, *(f"policies/{name}" for name in ("policy.json", "seed-0.pt", "seed-1.pt")))


def assert_same(one, other):
    """Equal bytes, and states of equal content: pickles of equal values may differ in what they share."""
    for file in FILES:
        assert (one / file).read_bytes() == (other / file).read_bytes(), file
    for seed in (0, 1):
        states = [torch.load(run / "seeds" / f"seed-{seed}.pt", weights_only=True) for run in (one, other)]
        assert torch.equal(states[0]["optimiser"]["flat"], states[1]["optimiser"]["flat"])
        assert str(states[0]) == str(states[1])


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(train_module, "RunPool", InlinePool)
    # Half of a short training's time is its figure.
    monkeypatch.setattr("stau_rl.training.result.save_curves", lambda *_: None)
    monkeypatch.setattr(InlinePool, "runs", [])


@pytest.mark.parametrize("name", list(AGENTS))
def test_more_steps_give_the_bytes_of_one_training(name, tmp_path):
    """Twice: from 2 points to 3, and from there to 5, with 200 steps between points as in one training of 1 000."""
    train(name, {**STEADY, **OWN[name]}, 2, tmp_path / "run")
    train(None, {"steps": 600}, out=tmp_path / "run", resume=True)
    result = train(settings={"steps": 1000}, out=tmp_path / "run", resume=True)
    assert len(InlinePool.runs) == 6
    whole = train(name, {**STEADY, **OWN[name], "steps": 1000, "points": 5}, 2, tmp_path / "whole")
    assert (result.spec, result.runs) == (whole.spec, whole.runs)
    assert_same(tmp_path / "run", tmp_path / "whole")


class Interrupt(Exception):
    pass


def test_one_that_is_stopped_on_the_way_goes_on(tmp_path, monkeypatch):
    train("a2c", STEADY, 2, tmp_path / "run")

    def stop(self, what, step, steps):
        if step > 650:
            raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(InlinePool, "_count", stop)
        with pytest.raises(Interrupt):
            train(None, {"steps": 800}, out=tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="unfinished training: seed 0 has no result"):
        TrainResult.load(tmp_path / "run")
    train(out=tmp_path / "run", resume=True)
    train("a2c", {**STEADY, "steps": 800, "points": 4}, 2, tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_what_cannot_go_on_exactly_says_why_and_stays_as_it_is(tmp_path):
    train("a2c", STEADY, 1, tmp_path / "run")
    train("a2c", {**STEADY, "anneal": True}, 1, tmp_path / "annealed")
    shutil.copytree(tmp_path / "run", tmp_path / "lost")
    (tmp_path / "lost" / "seeds" / "seed-0.pt").unlink()
    TrainResult.load(tmp_path / "run").save(tmp_path / "copy")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for folder, settings, message in (
        ("annealed", {"steps": 800}, r"learning rate fell to 0 at the last of them \(anneal=true\)"),
        ("run", {"steps": 500}, "steps must be a multiple of 200, the steps between two points of the curve in"),
        ("run", {"steps": 200}, "holds a training of 400 steps, steps=200 was asked for"),
        ("run", {"steps": 800, "gamma": 0.9}, r"another training: settings.steps|another training: settings.gamma"),
        ("run", {"steps": 800, "points": 3}, "holds another training: settings.steps is 400 there"),
        ("lost", {"steps": 800}, r"has no seeds/seed-0\.pt, the state that seed 0 would go on from"),
        ("copy", {"steps": 800}, r"has no seeds/seed-0\.pt"),
    ):
        with pytest.raises(ValueError, match=message):
            train(None, settings, out=tmp_path / folder, resume=True)
    with pytest.raises(ValueError, match=r"another training: agent is \"a2c\" there"):
        train("ppo", out=tmp_path / "run", resume=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_command_takes_what_is_left_out_from_the_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [word for name, value in STEADY.items() for word in ("--set", f"{name}={value}") if name != "steps"]
    options = [word.replace("[8]", "8").replace("False", "false") for word in options]
    command = ["train", "--agent", "a2c", "--head", "s_tau(tau=3)", "--steps", "400", "--seeds", "2", *options]
    cli.main([*command, "--first-seed", "5", "--out", "run"])
    cli.main(["train", "--out", "run", "--resume", "--steps", "800"])
    assert "a2c on CartPole-v1, s_tau(tau=3)" in capsys.readouterr().out
    result = TrainResult.load("run")
    assert (result.spec["seeds"], result.spec["settings"]["steps"], result.spec["settings"]["points"]) == (
        [5, 6],
        800,
        4,
    )
    assert [len(run["curve"]) for run in result.runs] == [4, 4]
    # The first command again, longer: its points are those of the folder.
    cli.main([*command[: -len(options)], "--first-seed", "5", "--out", "run", "--resume", "--steps", "800"])
    assert len(InlinePool.runs) == 4
    # And a folder that holds nothing yet begins.
    cli.main([*command, "--out", "new", "--resume"])
    assert TrainResult.load("new").spec["seeds"] == [0, 1]


def test_more_seeds_are_added_alone_or_with_more_steps(tmp_path):
    train("a2c", STEADY, 1, tmp_path / "run")
    train(out=tmp_path / "run", resume=True, seeds=2)
    assert [run.seed for run in InlinePool.runs] == [0, 1]
    train("a2c", STEADY, 2, tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")
    train("a2c", STEADY, 1, tmp_path / "both")
    train(None, {"steps": 800}, out=tmp_path / "both", resume=True, seeds=2)
    train("a2c", {**STEADY, "steps": 800, "points": 4}, 2, tmp_path / "whole both")
    assert_same(tmp_path / "both", tmp_path / "whole both")
    # An annealed one too, as seeds know nothing of each other; fewer seeds are another training.
    train("a2c", {**STEADY, "anneal": True}, 1, tmp_path / "annealed")
    train(out=tmp_path / "annealed", resume=True, seeds=2)
    for given in ({"seeds": 1}, {"first_seed": 1}):
        with pytest.raises(ValueError, match=r"another training: (length of seeds|seeds\[0\])"):
            train(out=tmp_path / "annealed", resume=True, **given)


def test_settings_as_an_object_go_on_too(tmp_path):
    settings = AGENTS["a2c"].Settings(**{**STEADY, "hidden": (8,)})
    train("a2c", settings, 1, tmp_path / "run")
    train("a2c", replace(settings, steps=600), 1, tmp_path / "run", resume=True)
    assert TrainResult.load(tmp_path / "run").spec["settings"]["points"] == 3
