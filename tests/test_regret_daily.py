"""What daily use of the regret benchmark needs: lists, options of the command, histories, and looking at a folder."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rundir_cases
from stau_rl.agents.bandit import POLICIES, SCORES
from stau_rl.cli.main import main
from stau_rl.envs.arms import ARMS
from stau_rl.regret.directory import RunDirectory
from stau_rl.regret.histories import histories
from stau_rl.regret.progress import run_progress
from stau_rl.regret.run import run_regret

SMALL = ["--horizon", "60", "--instances", "20", "--policy", "ucb1", "--policy", "ucb | softmax_off_by_one"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(arguments)
    return capsys.readouterr().out


def mistake(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_lists_have_every_member_with_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "policies")
    lines = {line.strip().partition("(")[0] for line in text.splitlines()}
    assert {*SCORES, *POLICIES} <= lines
    assert "  moss_anytime(alpha=1.35, c=1.0)" in text.splitlines()
    assert {*ARMS} <= {line.strip().partition("(")[0] for line in printed(capsys, "arms").splitlines()}
    one = printed(capsys, "policies", "--name", "ucb_v")
    assert "Audibert" in one
    assert "Engines: triton: CUDA (0/1 rewards); numba: CPU (0/1 rewards); torch: CPU, CUDA." in one
    assert "did you mean 'kl_ucb'?" in mistake(capsys, "policies", "--name", "kl_ucbb")


def test_options_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    extra = ["--checkpoints", "5", "60", "--figure", "pdf", "--figure", "svg", "--histories", "3", "--seed", "4"]
    first = printed(capsys, "regret", *SMALL, *extra, "--out", str(out))
    assert (out / "regret.pdf").read_bytes().startswith(b"%PDF")
    assert b"<svg" in (out / "regret.svg").read_bytes()
    table = pd.read_parquet(out / "histories.parquet")
    assert len(table) == 2 * 3 * 60
    kept = pd.read_parquet(out / "checkpoints.parquet")
    assert [name for name in kept if name.startswith("regret")] == ["regret_5", "regret_60"]
    # Regrets of the histories are those of the run, abstaining included.
    kept["policy"] = kept["policy"].astype(str)
    table["policy"] = table["policy"].astype(str)
    for step in (5, 60):
        both = table[table["step"] == step].merge(kept, on=["policy", "instance"])
        assert len(both) == 2 * 3
        np.testing.assert_allclose(both["regret"], both[f"regret_{step}"], rtol=1e-12, atol=1e-12)
    assert table["arm"].isna().any()
    # What is not given is read from the folder: the same table, and nothing is played.
    again = printed(capsys, "regret", "--out", str(out), "--resume")
    cut = re.compile(r"\nEngine: .*", re.DOTALL)
    assert cut.sub("", again) == cut.sub("", first)
    assert "seed is 4 there, 5 was asked for" in mistake(capsys, "regret", "--out", str(out), "--resume", "--seed", "5")
    assert "a finished run of stau-rl regret, 20 instances" in printed(capsys, "status", str(out))
    assert "--figure must be one of png, svg, pdf, got 'gif'" in mistake(capsys, "regret", *SMALL, "--figure", "gif")


def test_histories_are_refused_where_they_are_too_long() -> None:
    with pytest.raises(ValueError, match="have 200000000 rows, more than 20000000; ask for fewer"):
        histories("bernoulli(k=2)", ["ucb1", "random"], 10_000, 10_000)


def test_an_unfinished_run_says_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = rundir_cases.SPEC_A
    path, (first, second) = tmp_path / "run", spec["policies"]
    blocks = [rundir_cases.simulate(spec, first, begin) for begin in (0, 10)]
    with RunDirectory.open(path, spec) as run:
        for begin, block in zip((0, 10), blocks, strict=True):
            run.write_part(first, begin, block)
        assert run_progress(path).running
    before = sorted(file.name for file in path.rglob("*"))
    found = run_progress(path)
    assert sorted(file.name for file in path.rglob("*")) == before
    assert not found.running
    assert not found.finished
    assert [one.instances for one in found.policies] == [20, 0]
    last = np.concatenate([block.regret[-1] for block in blocks])
    assert found.policies[0].regret is not None
    assert found.policies[0].regret.mean == pytest.approx(last.mean())
    text = printed(capsys, "status", str(path))
    assert "20 of 40" in text
    assert "goes on with it" in text
    assert second in text


def test_status_of_other_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe = tmp_path / "probe" / "groups"
    probe.mkdir(parents=True)
    (probe / "a.csv").write_text("x\n")
    (tmp_path / "probe" / "timing.json").write_text(json.dumps({"a": 3.0}))
    text = printed(capsys, "status", str(tmp_path / "probe"))
    assert "a probe of stau-rl probe, stopped" in text
    assert "1 groups of models are finished, 3 s of work" in text
    training = tmp_path / "training"
    main(
        [
            "train",
            "--out",
            str(training),
            "--steps",
            "256",
            "--seeds",
            "2",
            "--set",
            "rollout=32",
            "--set",
            "episodes=1",
        ]
    )
    capsys.readouterr()
    assert "a training of stau-rl train, finished.\n2 of 2 seeds are finished" in printed(
        capsys, "status", str(training)
    )
    assert "holds no work of stau-rl" in mistake(capsys, "status", str(tmp_path))
    assert "is no folder" in mistake(capsys, "status", str(tmp_path / "nothing"))


def test_python_writes_other_figures(tmp_path: Path) -> None:
    result = run_regret("bernoulli(k=2)", ["random"], 10, 4)
    for name in ("a.pdf", "b.pdf"):
        result.save_figure(tmp_path / name)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    with pytest.raises(ValueError, match=r"written as .png, .svg or .pdf, got 'c.gif'"):
        result.save_figure(tmp_path / "c.gif")
