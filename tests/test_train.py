"""`stau-rl train`: files, resumption to the same bytes, mistakes that are one line and leave nothing behind."""

import json
import math
import sys
from dataclasses import replace

import pandas as pd
import pytest
import torch

from inline_pool import InlinePool
from stau_rl.agents.policy_gradient.a2c import A2CSettings
from stau_rl.agents.policy_gradient.ppo import PPOSettings
from stau_rl.cli import main as cli
from stau_rl.plugin.load import load_plugin
from stau_rl.plugin.plugin_head import forget
from stau_rl.training import train as train_module
from stau_rl.training.result import TrainResult
from stau_rl.training.run import RunSpec, play_run
from stau_rl.training.train import train

SETTINGS = PPOSettings(steps=800, points=4, rollout=16, minibatch=64, hidden=(8,), curve_episodes=2, episodes=3)
FILES = ("settings.json", "curves.csv", "curves.parquet", "scores.csv", "curves.png")


@pytest.fixture
def inline(monkeypatch):
    monkeypatch.setattr(train_module, "RunPool", InlinePool)


def test_a_training_leaves_curves_scores_and_a_figure(inline, tmp_path):
    reports = []
    scores = train("ppo", SETTINGS, 2, tmp_path / "run", first_seed=3, report=lambda *now: reports.append(now)).table()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        (*FILES, "policies", "seeds", "timing.json")
    )
    curves = pd.read_csv(tmp_path / "run" / "curves.csv")
    assert list(curves["seed"]) == [3] * 4 + [4] * 4
    assert (curves.groupby("seed")["step"].max() >= 800).all()
    assert curves["sampled_return"].notna().all()
    pd.testing.assert_frame_equal(curves, pd.read_parquet(tmp_path / "run" / "curves.parquet"), check_dtype=False)
    assert list(scores["seed"]) == [3, 4]
    agent = RunSpec("ppo", SETTINGS.as_dict(), 3).make()
    while not agent.finished:
        agent.play_segment()
    assert scores["sampled"][0] == agent.evaluate(3).mean()
    assert scores["deterministic"][0] == agent.evaluate(3, deterministic=True).mean()
    assert reports[-1] == ("ppo CartPole-v1", 800, 1600)


class Interrupt(Exception):
    pass


def test_a_stopped_training_resumes_to_the_same_bytes(inline, tmp_path, monkeypatch):
    train("ppo", SETTINGS, 2, tmp_path / "whole")

    def stop_in_second_segment(self, what, step, steps):
        if step > 300:
            raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(InlinePool, "_count", stop_in_second_segment)
        with pytest.raises(Interrupt):
            train("ppo", SETTINGS, 2, tmp_path / "stopped")
    assert (tmp_path / "stopped" / "seeds" / "seed-0.pt").exists()
    with pytest.raises(ValueError, match="--resume"):
        train("ppo", SETTINGS, 2, tmp_path / "stopped")
    train("ppo", SETTINGS, 2, tmp_path / "stopped", resume=True)
    for name in FILES:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    # A finished training is only read.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped" / "seeds").iterdir()}
    train("ppo", SETTINGS, 2, tmp_path / "stopped", resume=True)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped" / "seeds").iterdir()} == before


LEARNING = replace(SETTINGS, head="s_tau(tau=2)", learn=("tau",), head_rate=1.0)


def test_what_a_head_learns_is_in_both_tables(inline, tmp_path):
    """Against an agent played beside it: tau at every point, and the last one in the scores."""
    scores = train("ppo", LEARNING, 2, tmp_path / "run").table()
    curves = pd.read_csv(tmp_path / "run" / "curves.csv")
    agent = RunSpec("ppo", LEARNING.as_dict(), 1).make()
    taus = []
    while not agent.finished:
        agent.play_segment()
        taus.append(1 + math.log1p(math.exp(agent.network.module.log_tau.item())))
    assert curves[curves["seed"] == 1]["learned_tau"].tolist() == pytest.approx(taus, rel=1e-6)
    assert len(set(taus)) == 4
    assert scores["learned_tau"].tolist() == curves.groupby("seed")["learned_tau"].last().tolist()
    assert curves["entropy"].between(0.5, 1).all()
    assert list(pd.read_csv(tmp_path / "run" / "scores.csv").columns)[-1] == "learned_tau"


def test_a_training_that_learns_nothing_has_the_columns_of_old(inline, tmp_path):
    train("ppo", SETTINGS, 1, tmp_path / "run")
    header = (tmp_path / "run" / "curves.csv").read_text().splitlines()[0]
    assert header == "seed,step,train_episodes,train_return,sampled_return"
    header = (tmp_path / "run" / "scores.csv").read_text().splitlines()[0]
    kinds = ("sampled", "deterministic")
    columns = [f"{kind}{end}" for kind in kinds for end in ("", "_low", "_high")]
    assert header.split(",") == ["agent", "env", "head", "seed", *columns]
    point = json.loads((tmp_path / "run" / "seeds" / "seed-0.json").read_text())["curve"][0]
    assert list(point) == ["step", "train_episodes", "train_return", "sampled_return"]


@pytest.mark.parametrize("aged", [False, True], ids=["checkpoint", "checkpoint from before the columns"])
def test_a_stopped_training_that_learns_resumes(aged, inline, tmp_path, monkeypatch):
    train("ppo", LEARNING, 1, tmp_path / "whole")

    def stop_in_second_segment(self, what, step, steps):
        if step > 300:
            raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(InlinePool, "_count", stop_in_second_segment)
        with pytest.raises(Interrupt):
            train("ppo", LEARNING, 1, tmp_path / "stopped")
    if aged:
        checkpoint = tmp_path / "stopped" / "seeds" / "seed-0.pt"
        state = torch.load(checkpoint, weights_only=True)
        for name in ("learned_tau", "entropy"):
            del state["curve"][0][name]
        torch.save(state, checkpoint)
    train("ppo", LEARNING, 1, tmp_path / "stopped", resume=True)
    for name in FILES:
        if not aged or name in ("scores.csv", "curves.png"):
            assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    expected = pd.read_csv(tmp_path / "whole" / "curves.csv")
    if aged:
        expected.loc[0, ["learned_tau", "entropy"]] = math.nan
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "stopped" / "curves.csv"), expected)


def test_results_from_before_the_columns_leave_them_empty(inline, tmp_path):
    train("ppo", LEARNING, 1, tmp_path / "run")
    file = tmp_path / "run" / "seeds" / "seed-0.json"
    kept = json.loads(file.read_text())
    for point in kept["curve"]:
        del point["learned_tau"], point["entropy"]
    file.write_text(json.dumps(kept))
    scores = train("ppo", LEARNING, 1, tmp_path / "run", resume=True).table()
    assert scores["learned_tau"].isna().all()


def test_the_command_prints_what_is_learned(inline, tmp_path, capsys):
    command = ["train", "--agent", "a2c", "--head", "s_tau(tau=2)", "--steps", "200", "--out", str(tmp_path / "run")]
    for text in ("learn=tau", "points=1", "hidden=8", "curve_episodes=0", "episodes=2"):
        command += ["--set", text]
    cli.main(command)
    tau = pd.read_csv(tmp_path / "run" / "scores.csv")["learned_tau"][0]
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == ["seed", "sampled", "deterministic", "learned_tau"]
    assert float(printed[2].split()[3]) == round(tau, 3)


def test_a_damaged_checkpoint_is_played_again(tmp_path):
    run = RunSpec("ppo", SETTINGS.as_dict(), 0)
    (tmp_path / "state.pt").write_bytes(b"not a state")
    assert play_run(run, tmp_path / "state.pt")[0] == play_run(run)[0]


def test_a_folder_of_another_training_or_of_foreign_files_is_refused(inline, tmp_path):
    train("ppo", SETTINGS, 1, tmp_path / "run")
    before = (tmp_path / "run" / "scores.csv").read_bytes()
    other = PPOSettings(**{**SETTINGS.as_dict(), "hidden": (8,), "learn": (), "gamma": 0.9})
    with pytest.raises(ValueError, match=r"settings\.gamma is 0\.99 there, 0\.9 was asked for"):
        train("ppo", other, 1, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "scores.csv").read_bytes() == before
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        train("ppo", SETTINGS, 1, tmp_path / "foreign")


def test_a_changed_plug_in_is_another_training(inline, tmp_path):
    """The same text of a head whose code is another; the same code goes on."""

    file = tmp_path / "steep.py"
    text = "from stau_rl.plugin import head\n\n@head('steep_rl')\ndef steep_rl(scores):\n    return 2 * scores\n"

    def go(resume):
        load_plugin(file)
        try:
            train("ppo", replace(SETTINGS, head="steep_rl"), 1, tmp_path / "run", resume=resume)
        finally:
            forget("steep_rl")

    file.write_text(text)
    go(resume=False)
    go(resume=True)
    file.write_text(text.replace("2", "3"))
    with pytest.raises(ValueError, match=r"another training: plugins\.steep_rl is"):
        go(resume=True)


def test_the_pool_plays_in_processes_of_one_thread(tmp_path, capsys):
    """The one test that starts a process: the command, and the numbers of a run in this process."""
    out = tmp_path / "run"
    command = ["train", "--steps", "300", "--out", str(out), "--processes", "1", "--head", "s_tau(tau=3)"]
    for text in ("points=2", "hidden=8", "rollout=16", "curve_episodes=0", "episodes=2"):
        command += ["--set", text]
    cli.main(command)
    printed = capsys.readouterr().out
    assert str(out) in printed
    settings = json.loads((out / "settings.json").read_text())["settings"]
    assert (settings["head"], settings["hidden"], settings["rollout"]) == ("s_tau(tau=3)", [8], 16)
    kept = json.loads((out / "seeds" / "seed-0.json").read_text())
    assert kept == play_run(RunSpec("ppo", settings, 0))[0]
    assert pd.read_csv(out / "curves.csv")["sampled_return"].isna().all()
    assert math.isfinite(pd.read_csv(out / "scores.csv")["sampled"][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "pppo"], "did you mean 'ppo'"),
        (["--env", "Pendulum-v1"], "discrete actions"),
        (["--env", "Nope-v1"], "Nope"),
        (["--head", "softmix"], "did you mean 'softmax'"),
        (["--set", "gama=0.9"], "unknown setting 'gama'"),
        (["--set", "gamma"], "NAME=VALUE"),
        (["--set", "gamma=high"], "a number"),
        (["--set", "head=softmax"], "--head"),
        (["--seeds", "0"], "seeds"),
        (["--steps", "0"], "steps"),
        (["--resume"], "--out"),
        (["--set", "learn=beta2"], "beta2"),
        (["--set", "head_warmup=100"], "head_warmup=100 freezes what softmax"),
        (["--set", "target_entropy=0.5"], "set learn=beta"),
        (["--set", "target_entropy=1.5"], "target_entropy must be in (0, 1)"),
        (["--set", "gamma=0.9", "--set", "gamma=0.8"], "given twice"),
        (["--env", ".module:Some-v0"], "cannot make env"),
        (["--processes", "0"], "processes must be at least 1"),
        (["--first-seed", str(1 << 64)], "seeds must be below 2^64"),
        (["--seeds", "1e19"], "seeds must be at most 1000000, got 10000000000000000000"),
        (["--head", "s_tau(tau=1+t)"], "changes with t"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = [] if "--resume" in arguments else ["--out", "run"]
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *arguments, *out])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


def test_a_missing_box2d_names_the_extra(tmp_path, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "--env", "LunarLander-v3", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert 'LunarLander-v3\': Box2D is not installed; pip install -e ".[rl]" -c constraints.txt' in error
    assert list(tmp_path.iterdir()) == []


def test_a_result_is_saved_loaded_and_drawn(inline, tmp_path):
    """Saved elsewhere, the files are those of the training; loaded it is the same again, and goes on from there."""
    result = train("ppo", LEARNING, 2, tmp_path / "run")
    result.save(tmp_path / "copy")
    for name in FILES:
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name
    for again in (TrainResult.load(tmp_path / "copy"), train("ppo", LEARNING, 2, tmp_path / "copy", resume=True)):
        assert (again.spec, again.runs) == (result.spec, result.runs)
        pd.testing.assert_frame_equal(again.table(), result.table())
        pd.testing.assert_frame_equal(again.curves(), result.curves())
    assert repr(result) == "TrainResult(ppo on CartPole-v1, s_tau(tau=2), 2 seeds of 800 steps)"
    ax = result.plot()
    by_seed = result.curves().groupby("seed")["train_return"]
    for line, (_, returns) in zip(ax.lines, by_seed, strict=False):
        assert line.get_ydata().tolist() == returns.tolist()
    with pytest.raises(ValueError, match="holds another training"):
        train("ppo", SETTINGS, 1).save(tmp_path / "copy")
    (tmp_path / "copy" / "seeds" / "seed-1.json").unlink()
    with pytest.raises(ValueError, match="unfinished training: seed 1 has no result"):
        TrainResult.load(tmp_path / "copy")
    with pytest.raises(ValueError, match="not the folder of a training"):
        TrainResult.load(tmp_path)


def test_settings_may_be_some_of_them_by_name(inline):
    """And no folder is needed; lists stand for tuples, and unknown names are named."""
    given = {"steps": 40, "rollout": 5, "hidden": [8], "points": 1, "curve_episodes": 0, "episodes": 2}
    result = train("a2c", given)
    assert result.runs[0]["settings"] == A2CSettings(**{**given, "hidden": (8,)}).as_dict()
    assert result.table()["seed"].tolist() == [0]
    with pytest.raises(ValueError, match="unknown setting 'stepps'"):
        train("a2c", {"stepps": 3})
    with pytest.raises(ValueError, match="resume needs out"):
        train("a2c", given, resume=True)
