"""The study of heads on an environment of one's own: what it plays, what its rows say, and what it refuses."""

import json

import pytest

from inline_pool import InlinePool
from stau_rl.cli import main as cli
from stau_rl.rl_study.play import run_rl_study
from stau_rl.rl_study.result import RLStudyResult
from stau_rl.rl_study.runs import tuning_runs
from stau_rl.rl_study.tasks import FAMILIES, TASKS, Family, own_task, settings

CORRIDOR = "own_envs:Corridor-v0"
NAME = "a2c-own_envs:Corridor-v0(length=3)"


@pytest.fixture
def played(monkeypatch):
    monkeypatch.setattr(InlinePool, "runs", [])
    monkeypatch.setattr("stau_rl.rl_study.play.RunPool", InlinePool)
    return InlinePool.runs


def test_the_command_plays_it_and_goes_on(tmp_path, capsys, played):
    command = [
        "rl-study",
        "--env",
        CORRIDOR,
        "--env-arg",
        "length=3",
        "--agent",
        "a2c",
        "--steps",
        "200",
        "--seeds",
        "2",
    ]
    command += ["--rates", "1e-3,1e-2", "--set", "hidden=4", "--tuning-seeds", "1", "--out", str(tmp_path / "o")]
    command += ["--family", "softmax(beta={x})", "--family", "s_tau(tau={x})", "--shorter", "10"]
    cli.main(command)
    told = capsys.readouterr().out
    assert "core-minutes, if the environment is as fast as CartPole" in told
    assert NAME in told
    for run in played:
        assert (run.agent, run.settings["env"], run.settings["env_args"]) == ("a2c", CORRIDOR, {"length": 3})
        assert (run.settings["hidden"], run.settings["reward_scale"], run.settings["steps"]) == ([4], "return", 20)
    result = RLStudyResult.load(tmp_path / "o")
    assert (result.tasks, set(result.runs["env"])) == ([NAME], {"own_envs:Corridor-v0(length=3)"})
    assert sorted(set(result.runs["learning_rate"])) == [0.001, 0.00215, 0.00464, 0.01]
    # Twelve points, two seeds each, and the control of the second family; a best point at a grid's end has a star.
    assert len(result.runs) == 2 * (12 + 2) + 2
    known = result.task(NAME)
    assert (known.agent, known.env, known.steps, known.rates) == (
        "a2c",
        "own_envs:Corridor-v0(length=3)",
        20,
        (1e-3, 0.01),
    )
    assert (result.table()["task"] == NAME).all()
    with pytest.raises(ValueError, match="has no reference score"):
        result.normalised(NAME, "softmax(beta={x})")
    with pytest.raises(ValueError, match="there are no rows of a task 'chess'"):
        result.task("chess")
    before = len(played)
    cli.main([*command, "--resume"])
    assert len(played) == before
    assert "not in the tables" not in capsys.readouterr().out
    cli.main([*command, "--resume", "--set", "gamma=0.9"])
    assert len(played) > before
    assert f"{before} finished runs" in capsys.readouterr().out


def test_tasks_of_ones_own_stand_beside_the_others():
    task = own_task("stau_rl:stau_rl/BernoulliBandit-v0", "reinforce", 100, envs=2)
    assert task.rates == next(known.rates for known in TASKS if known.agent == "reinforce")
    run = tuning_runs(task, FAMILIES[0], 1, 1)[0]
    assert run.file_name.startswith("reinforce-stau_rl_stau_rl_BernoulliBandit-v0-")
    assert run.spec.make().settings.envs == 2
    assert settings(task, FAMILIES[0], "softmax(beta=1)", 0.1)["reward_scale"] == "return"
    assert {settings(known, FAMILIES[0], "softmax(beta=1)", 0.1)["reward_scale"] for known in TASKS} == {0.05}


def test_the_committed_study_has_its_identities():
    """A run of the default study is called as it was when the committed rows were played."""
    names = [tuning_runs(task, FAMILIES[0], 1, 1)[0].file_name for task in TASKS]
    assert names == [
        "ppo-cartpole-e7f90b48ba487315fb44.json",
        "ppo-acrobot-5b0f2c8ab950a12f7ec3.json",
        "a2c-cartpole-2c7e1e31378a1247df6d.json",
        "reinforce-cartpole-8c096f4e6856adba2d5e.json",
        "ppo-lunarlander-f497aab365856729757b.json",
    ]


def test_from_python(tmp_path, played):
    task = own_task(CORRIDOR, "a2c", 20, (0.01, 0.1), {"length": 2}, hidden=(4,))
    result = run_rl_study([task], [Family("softmax(beta=1)")], out=tmp_path, tuning_seeds=1, seeds=2, shorter=10)
    assert result.tasks == ["a2c-own_envs:Corridor-v0(length=2)"]
    kept = json.loads(next((tmp_path / "runs").iterdir()).read_text())
    assert kept["settings"]["env_args"] == {"length": 2}
    assert "P(a run scores" not in str(result)
    result.plot()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "a2c"], "--agent needs --env"),
        (["--env-arg", "length=3"], "--env-arg needs --env"),
        (["--steps", "100"], "--steps needs --env"),
        (["--env", CORRIDOR, "--agent", "pppo"], "did you mean 'ppo'"),
        (["--env", CORRIDOR, "--rates", "1e-3"], "--rates takes LOW,HIGH, two numbers, got '1e-3'"),
        (["--env", CORRIDOR, "--rates", "2,1"], "rates must be two positive numbers, the smaller first, got 2 and 1"),
        (["--env", CORRIDOR, "--set", "points=3"], "points is what the study itself sets"),
        (["--env", CORRIDOR, "--set", "head=argmax"], "--set head is --head"),
        (["--env", CORRIDOR, "--set", "gama=1"], "unknown setting 'gama'"),
        (["--env", CORRIDOR, "--steps", "0"], "steps must be at least 1, got 0"),
        (["--env", "Nope-v7"], "cannot make env 'Nope-v7'"),
        (["--env", "Pendulum-v1"], "must have discrete actions"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(["rl-study", *arguments, "--out", "o"])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []
