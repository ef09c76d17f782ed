"""Networks that learn elsewhere than where actions are taken: the actor follows them, and folders say where it was."""

import json

import numpy as np
import pytest
import torch

from inline_pool import InlinePool
from stau_rl.agents.policy_gradient import AGENTS, networks
from stau_rl.agents.policy_gradient.policy import policy_weights
from stau_rl.cli import main as cli
from stau_rl.training import train as train_module
from stau_rl.training.run import RunSpec, play_run
from stau_rl.training.train import train

SHORT = {"steps": 300, "points": 3, "hidden": [8], "curve_episodes": 2, "episodes": 3, "anneal": False}
LEARNS = {"head": "s_tau(tau=2)", "learn": ["tau"], "head_warmup": 120, "target_entropy": 0.9}


@pytest.fixture(autouse=True)
def inline(monkeypatch):
    monkeypatch.setattr(train_module, "RunPool", InlinePool)
    # Half of a short training's time is its figure.
    monkeypatch.setattr("stau_rl.training.result.save_curves", lambda *_: None)


def settings_of(name, **given):
    own = {} if name == "reinforce" else {"rollout": 8}
    return AGENTS[name].Settings.from_texts({}, **{**SHORT, **own, **given}).as_dict()


@pytest.mark.parametrize("given", [{}, LEARNS], ids=["fixed", "learned"])
@pytest.mark.parametrize("name", list(AGENTS))
def test_an_actor_on_a_copy_plays_the_same_run(name, given, monkeypatch, tmp_path):
    """On the CPU both ways must give equal numbers, also after a checkpoint."""
    run = RunSpec(name, settings_of(name, **given), 3)
    expected = play_run(run)[0]
    monkeypatch.setattr(networks, "acts_on_a_copy", lambda network: True)
    assert play_run(run)[0] == expected
    agent = run.make()
    assert agent.actor._network is not agent.network
    agent.play_segment()
    other = run.make()
    other.load(agent.state())
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    assert np.array_equal(agent.actor.weights(rows), other.actor.weights(rows))
    other.play_segment()
    other.play_segment()
    assert [row["sampled_return"] for row in other.curve] == [row["sampled_return"] for row in expected["curve"]]
    assert other.evaluate(3).mean() == expected["sampled"]


def test_a_device_is_part_of_what_a_folder_holds(tmp_path):
    """A processor is not named, so folders of old stay what they are; a GPU's is another training."""
    train("a2c", SHORT, 1, tmp_path / "run", device="cpu")
    spec = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert list(spec) == ["agent", "settings", "seeds"]
    (tmp_path / "run" / "settings.json").write_text(json.dumps({**spec, "device": "cuda"}))
    with pytest.raises(ValueError, match=r'another training: device is "cuda" there'):
        train("a2c", SHORT, 1, tmp_path / "run", device="cpu", resume=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named(tmp_path, capsys):
    for device, message in (("cuda", "device 'cuda' is not there"), ("tpu", "unknown device 'tpu'; known: auto, cpu")):
        with pytest.raises(SystemExit) as stop:
            cli.main(["train", "--device", device, "--out", str(tmp_path / "run")])
        error = capsys.readouterr().err
        assert stop.value.code == 2
        assert message in error
        assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
    assert train("a2c", SHORT, device="auto").spec == train("a2c", SHORT).spec


@pytest.mark.gpu
@pytest.mark.parametrize("given", [{}, LEARNS], ids=["fixed", "learned"])
@pytest.mark.parametrize("name", list(AGENTS))
def test_a_gpu_learns_what_a_processor_learns(name, given):
    """One segment of the same run: weights agree to the rounding of some dozen updates, and actions are theirs."""
    settings = settings_of(name, **{**given, "steps": 60, "points": 1, "head_warmup": 0})
    agents = [RunSpec(name, settings, 0, device).make() for device in ("cpu", "cuda")]
    for agent in agents:
        agent.play_segment()
    there, here = (policy_weights(agent) for agent in agents)
    for key, weights in there.items():
        torch.testing.assert_close(here[key], weights, rtol=1e-3, atol=1e-4)
    assert all(weights.device.type == "cpu" for weights in here.values())


@pytest.mark.gpu
def test_a_training_on_a_gpu_goes_on_to_the_same_bytes(tmp_path):
    train("ppo", SHORT, 1, tmp_path / "run", device="cuda")
    train(None, {"steps": 600}, out=tmp_path / "run", resume=True)
    train("ppo", {**SHORT, "steps": 600, "points": 6}, 1, tmp_path / "whole", device="cuda")
    for name in ("settings.json", "curves.csv", "scores.csv", "policies/seed-0.pt"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["device"] == "cuda"
