"""Policies of a training: what they do without it, evaluated and filmed by the command, and what they refuse."""

import json
import re
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

import stau_rl
from inline_pool import InlinePool
from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.cli import main as cli
from stau_rl.plugin.load import load_plugin
from stau_rl.plugin.plugin_head import forget
from stau_rl.training import train as train_module
from stau_rl.training.run import RunSpec
from stau_rl.training.train import train

SHORT = {"steps": 400, "points": 2, "hidden": [8], "curve_episodes": 0, "episodes": 7}
CORRIDOR = {"env": "own_envs:Corridor-v0", "env_args": {"length": 3, "first": 5}}


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(train_module, "RunPool", InlinePool)
    # Half of a short training's time is its figure.
    monkeypatch.setattr("stau_rl.training.result.save_curves", lambda *_: None)


@pytest.fixture
def folder(tmp_path):
    train("a2c", {**SHORT, "head": "s_tau(tau=2)", "learn": ["tau"], "head_rate": 5.0}, 2, tmp_path / "run")
    return tmp_path / "run"


def test_a_policy_is_that_of_the_agent_by_hand(folder):
    """s^tau of the scores of a tanh network, in float64 from the file alone."""
    policy = stau_rl.load_policy(folder, 1)
    kept = {name: tensor.double().numpy() for name, tensor in torch.load(folder / "policies" / "seed-1.pt").items()}
    x = np.random.default_rng(0).normal(size=(50, 4))
    scores = np.tanh(x @ kept["actor.0.weight"].T + kept["actor.0.bias"])
    scores = scores @ kept["actor.2.weight"].T + kept["actor.2.bias"]
    tau = 1 + np.log1p(np.exp(kept["module.log_tau"]))
    f = (np.log1p(np.exp(scores)) + 1e-8) ** tau
    expected = f / f.sum(1, keepdims=True)
    assert tau != pytest.approx(2.0, abs=1e-3)
    assert_allclose(policy.probabilities(x), expected, rtol=1e-5)
    assert_allclose(policy.probabilities(x[3]), expected[3], rtol=1e-5)
    assert_array_equal(policy.act(x, greedy=True), expected.argmax(1))
    assert policy.act(list(x[0]), greedy=True) == expected[0].argmax()
    drawn = np.array([policy.act(x) for _ in range(2000)])
    # Five standard errors of a share of 2 000.
    assert np.abs((drawn == 0).mean(0) - expected[:, 0]).max() < 5 * 0.5 / np.sqrt(2000)
    assert f"s_tau(tau=2) with learned tau={float(tau):.4g}" in repr(policy)


@pytest.mark.parametrize("name", list(AGENTS))
def test_its_evaluation_is_the_trainings_own(name, tmp_path):
    """Of every agent; the environment counts its actions from 5."""
    result = train(name, {**SHORT, **CORRIDOR}, 2, tmp_path / "run", first_seed=3)
    for row in result.table().to_dict("records"):
        for policy in (stau_rl.load_policy(tmp_path / "run", row["seed"]), result.policy(row["seed"])):
            assert policy.evaluate(7).mean() == row["sampled"]
            assert policy.evaluate(7, greedy=True).mean() == row["deterministic"]
    env = gym.make(CORRIDOR["env"], **CORRIDOR["env_args"])
    policy = result.policy(4)
    observation, _ = env.reset(seed=0)
    assert policy.act(observation) in (5, 6)
    assert set(policy.act([0, 1, 2, 3] * 50)) == {5, 6}
    with pytest.raises(ValueError, match=r"observation must be a state in 0..3, got 4"):
        policy.act(4)
    with pytest.raises(ValueError, match="no policy of seed 2 is kept; kept: 3, 4"):
        result.policy(2)


def test_a_number_that_is_not_finite_is_told_where(tmp_path, monkeypatch):
    result = train("a2c", {**SHORT, **CORRIDOR}, 1, first_seed=2)
    monkeypatch.setattr("own_envs.Corridor.step", lambda self, action: (0, np.inf, True, False, {}))
    with pytest.raises(ValueError, match=r"^evaluation stopped: reward inf in env 'own_envs.* \(a2c, seed 2\)"):
        result.policy(2).evaluate(3)


def test_files_are_plain_tensors_and_equal_bytes(folder, tmp_path):
    stau_rl.TrainResult.load(folder).save(tmp_path / "copy")
    train("a2c", {**SHORT, "head": "s_tau(tau=2)", "learn": ["tau"], "head_rate": 5.0}, 2, tmp_path / "again")
    for name in ("policy.json", "seed-0.pt", "seed-1.pt"):
        content = (folder / "policies" / name).read_bytes()
        assert (tmp_path / "copy" / "policies" / name).read_bytes() == content
        assert (tmp_path / "again" / "policies" / name).read_bytes() == content
    kept = torch.load(folder / "policies" / "seed-0.pt", weights_only=True)
    agent = RunSpec("a2c", json.loads((folder / "settings.json").read_text())["settings"], 0).make()
    assert {name: tuple(tensor.shape) for name, tensor in kept.items()} == {
        name: tuple(tensor.shape) for name, tensor in agent.network.state_dict().items()
    }
    about = json.loads((folder / "policies" / "policy.json").read_text())
    assert (about["env"], about["head"], about["hidden"]) == ("CartPole-v1", "s_tau(tau=2)", [8])
    assert (about["spaces"]["inputs"], about["spaces"]["actions"], about["spaces"]["shape"]) == (4, 2, [4])


def test_what_is_no_policy_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="has no policy of seed 7; finished seeds: 0, 1"):
        stau_rl.load_policy(folder, 7)
    with pytest.raises(ValueError, match=r"is not the folder of a training: it has no settings\.json"):
        stau_rl.load_policy(tmp_path)
    with pytest.raises(ValueError, match="is not the folder of a training"):
        stau_rl.load_policy(folder / "scores.csv")
    policy = stau_rl.load_policy(folder)
    with pytest.raises(ValueError, match=r"must have the shape \(4,\), or \[N, ...\] of it, got \(3,\)"):
        policy.act([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="observation has the number nan"):
        policy.probabilities([0.0, np.nan, 0.0, 0.0])
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        policy.evaluate(0)
    file = folder / "policies" / "seed-0.pt"
    torch.save({"actor.0.weight": torch.zeros(3)}, file)
    with pytest.raises(ValueError, match=r"seed-0\.pt: these weights are not those of a network with hidden=\[8\]"):
        stau_rl.load_policy(folder)
    torch.save(Image.new, file)
    with pytest.raises(ValueError, match=r"seed-0\.pt is damaged, or no file of weights"):
        stau_rl.load_policy(folder)
    (folder / "policies" / "policy.json").write_text('{"env": "CartPole-v1"}')
    with pytest.raises(ValueError, match="this is no policy's description"):
        stau_rl.load_policy(folder, 1)
    (folder / "policies" / "policy.json").unlink()
    with pytest.raises(ValueError, match="from before they were kept"):
        stau_rl.load_policy(folder, 1)


def test_a_head_of_other_code_is_refused(tmp_path):
    file = tmp_path / "steep.py"
    text = "from stau_rl.plugin import head\n\n@head('steep_kept')\ndef steep_kept(scores):\n    return 2 * scores\n"
    for number in ("2", "3"):
        file.write_text(text.replace("2", number))
        load_plugin(file)
        try:
            if number == "2":
                train("ppo", {**SHORT, "head": "steep_kept"}, 1, tmp_path / "run")
                stau_rl.load_policy(tmp_path / "run")
            else:
                with pytest.raises(ValueError, match="the code of the head steep_kept is another"):
                    stau_rl.load_policy(tmp_path / "run")
        finally:
            forget("steep_kept")


def test_the_command_prints_the_trainings_scores(folder, capsys):
    for extra, column in (([], "sampled"), (["--greedy"], "deterministic")):
        cli.main(["evaluate", str(folder), "--episodes", "7", *extra])
        printed = capsys.readouterr().out
        scores = pd.read_csv(folder / "scores.csv")
        rows = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in printed.splitlines() if "│" in line}
        assert list(rows) == ["0", "1", "all"]
        for name, expected in (("0", scores[column][0]), ("1", scores[column][1]), ("all", scores[column].mean())):
            assert float(rows[name][0]) == pytest.approx(expected, rel=1e-4)
        # Student's interval of two means: half width t_1(0.975) |a - b| / 2.
        low, high = map(float, re.findall(r"[-.\d]+", rows["all"][1]))
        half = 12.7062047 * abs(scores[column][0] - scores[column][1]) / 2
        assert (high - low) / 2 == pytest.approx(half, rel=1e-3)
        assert f"{scores[f'{column}_low'].min():.5g}" == rows["all"][2].strip()
    cli.main(["evaluate", str(folder), "--episodes", "7", "--seed", "1", "--number", "3"])
    printed = capsys.readouterr().out
    assert f"{stau_rl.load_policy(folder, 1).evaluate(7, number=3).mean():.5g}" in printed
    assert "all" not in printed
    (folder / "policies" / "seed-0.pt").unlink()
    cli.main(["evaluate", str(folder), "--episodes", "1"])
    assert "Without a policy, as they are not finished: seeds 0" in capsys.readouterr().out


def test_an_episode_is_filmed(tmp_path, capsys):
    """The film shows every place of the evaluation's first episode, and where it ends."""
    train("ppo", {**SHORT, **CORRIDOR}, 1, tmp_path / "run")
    cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "1", "--video", str(tmp_path / "films" / "one.gif")])
    total = stau_rl.load_policy(tmp_path / "run").evaluate(1)[0]
    assert f"an episode of return {total:.5g}" in capsys.readouterr().out
    with Image.open(tmp_path / "films" / "one.gif") as film:
        places = []
        for number in range(film.n_frames):
            film.seek(number)
            assert film.info["duration"] % 50 == 0
            picture = np.asarray(film.convert("L"))
            assert picture.shape == (8, 8 * 4)
            places += [int(picture[4].argmax()) // 8] * (film.info["duration"] // 50)
    assert places[0] == 0
    assert (places[-1] == 3) == (total == 1.0)
    assert 4 <= len(places) <= 31
    # A step to the left of place 0 stays there.
    assert all(abs(late - early) == 1 or late == early == 0 for early, late in pairwise(places))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--video", "film.avi"], "video must be a file that ends in .gif, or a folder, got film.avi"),
        (["--seed", "9"], "has no policy of seed 9; finished seeds: 0, 1"),
        (["--episodes", "0"], "episodes must be at least 1, got 0"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent)
    with pytest.raises(SystemExit) as stop:
        cli.main(["evaluate", str(folder), *arguments])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.count("\n") == 1
    assert message in error
    assert [path.name for path in folder.parent.iterdir()] == ["run"]


def test_what_cannot_be_drawn_is_named(folder, monkeypatch, capsys, tmp_path):
    def refuse(*_, **__):
        raise gym.error.DependencyNotInstalled("pygame is not installed")

    def message_of(run):
        with pytest.raises(SystemExit) as stop:
            cli.main(["evaluate", str(run), "--episodes", "1", "--video", str(tmp_path / "a.gif")])
        assert stop.value.code == 2
        return capsys.readouterr().err

    monkeypatch.setattr("gymnasium.envs.classic_control.cartpole.CartPoleEnv.render", refuse)
    assert "a video of CartPole-v1 needs a package: pygame is not installed" in message_of(folder)
    train("a2c", {**SHORT, "env": "own_envs:Blind-v0"}, 1, tmp_path / "blind")
    assert "cannot be made with render_mode='rgb_array'" in message_of(tmp_path / "blind")
    monkeypatch.setattr("own_envs.Corridor.render", lambda _: None)
    train("a2c", {**SHORT, **CORRIDOR}, 1, tmp_path / "corridor")
    assert "draws no frames: its render() gives None" in message_of(tmp_path / "corridor")
    assert not (tmp_path / "a.gif").exists()


def test_a_folder_needs_the_recorders_package(tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise gym.error.DependencyNotInstalled("MoviePy is not installed")

    train("a2c", {**SHORT, **CORRIDOR}, 1, tmp_path / "run")
    monkeypatch.setattr("gymnasium.wrappers.RecordVideo", refuse)
    with pytest.raises(SystemExit):
        cli.main(["evaluate", str(tmp_path / "run"), "--video", str(tmp_path / "films")])
    assert "needs a package: MoviePy is not installed" in capsys.readouterr().err
