"""The study of heads: equal grids, seeds of its own for tuning, and what it refuses."""

import numpy as np
import pytest

from inline_pool import InlinePool
from stau_rl.cli import main as cli
from stau_rl.heads import parse_head
from stau_rl.rl_study.folder import unused_runs
from stau_rl.rl_study.plan import estimate
from stau_rl.rl_study.play import run_rl_study
from stau_rl.rl_study.runs import StudyRun, best_point, tuning_runs
from stau_rl.rl_study.tasks import (
    FAMILIES,
    RATES,
    SLOPES,
    TASKS,
    Family,
    distinct,
    parse_family,
    points,
    settings,
    task_named,
)
from stau_rl.training.run import read_result

SOFTMAX, ESCORT = Family("softmax(beta={x})"), Family("escort(p={x})", 1.0)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_family_gets_as_many_points(task):
    grids = [points(task, family) for family in (*FAMILIES, Family("sigmoid_norm"))]
    assert {len(set(grid)) for grid in grids} == {len(SLOPES) * RATES}
    for grid in grids:
        assert (min(rate for _, rate in grid), max(rate for _, rate in grid)) == task.rates


def test_slopes_are_equal_at_the_initial_scores():
    """softmax: beta. s_tau at 0: tau / (2 log 2). s_tau at 1: tau sigmoid(1) / softplus(1). escort at 1: p."""
    slope = 1.5
    phi = np.log1p(np.e)
    expected = {
        "softmax(beta={x})": slope,
        "s_tau(tau={x})": slope * 2 * np.log(2),
        "s_tau(tau={x}) + 1": slope * phi * (1 + np.exp(-1)),
        "escort(p={x}) + 1": slope,
    }
    assert [family.name for family in FAMILIES] == list(expected)
    for family in FAMILIES:
        head = parse_head(family.head(slope))
        assert getattr(head, head.sharpness) == pytest.approx(expected[family.name], rel=1e-5)


def test_settings_are_legal_and_complete():
    for task in TASKS:
        head, rate = points(task, ESCORT)[0]
        found = settings(task, ESCORT, head, rate)
        assert (found["env"], found["steps"], found["head"]) == (task.env, task.steps, head)
        assert (found["learning_rate"], found["score_offset"], found["episodes"]) == (rate, 1.0, 100)
        assert task.settings.items() <= found.items()


def test_tuning_and_evaluation_share_no_seed_and_files_have_names_of_their_own():
    runs = tuning_runs(TASKS[0], SOFTMAX, 3, 1)
    runs += [StudyRun(TASKS[0], SOFTMAX, runs[0].head, runs[0].rate, "evaluation", seed) for seed in range(10)]
    seeds = {role: {run.spec.seed for run in runs if run.role == role} for role in ("tuning", "evaluation")}
    assert seeds["evaluation"] == set(range(10))
    assert not seeds["tuning"] & seeds["evaluation"]
    assert len({run.file_name for run in runs}) == len(runs)
    assert estimate(TASKS[:1], [SOFTMAX], 3, 10)[0] == len(runs)


def test_the_best_point_has_the_best_mean_and_ties_go_to_the_faster():
    def row(head, rate, sampled, curve):
        return {"head": head, "learning_rate": rate, "sampled": sampled, "curve_mean": curve}

    rows = [row("a", 0.1, 500, 300), row("a", 0.1, 400, 300), row("b", 0.1, 450, 310), row("b", 0.1, 450, 320)]
    assert best_point(rows) == ("b", 0.1)
    assert best_point([*rows, row("a", 0.2, 451, 0)]) == ("a", 0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [("softmix(beta={x})", "softmax"), ("softmax(beta={x}) + much", "a number"), ("softmax(beta={x}) + inf", "finite")],
)
def test_bad_families_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        parse_family(text)
    assert parse_family("escort(p={x}) + 1") == ESCORT


def test_bad_tasks_are_named():
    with pytest.raises(ValueError, match="did you mean 'ppo-cartpole'"):
        task_named("ppo-cartpol")


@pytest.fixture
def played(monkeypatch):
    """Runs are played in this process; a list of them."""
    monkeypatch.setattr(InlinePool, "runs", [])
    monkeypatch.setattr("stau_rl.rl_study.play.RunPool", InlinePool)
    return InlinePool.runs


def test_a_study_plays_tunes_and_resumes(tmp_path, played):
    """Two families on short CartPole; what is there is not played again."""
    task = [task_named("reinforce-cartpole")]
    reports = []
    arguments = {"processes": 1, "tuning_seeds": 1, "seeds": 2, "shorter": 1000}
    result = run_rl_study(task, [SOFTMAX, ESCORT], out=tmp_path, **arguments, report=lambda *now: reports.append(now))
    assert reports[-1] == ("runs", 30, 30)
    arguments["resume"] = True
    rows, curves = (table.fillna("").to_dict("records") for table in (result.runs, result.curves))
    assert len(rows) == 2 * (12 + 2) + 2
    control = [row for row in rows if row["role"] == "control"]
    assert {(row["control_of"], row["family"], row["seed"]) for row in control} == {
        (ESCORT.name, SOFTMAX.name, 0), (ESCORT.name, SOFTMAX.name, 1)
    }  # fmt: skip
    # Where the control is the reference's own best point, its runs are shared.
    once = {row["head"] + str(row["learning_rate"]) for row in rows if row["role"] != "tuning"}
    assert len(played) == 24 + 2 * len(once)
    for family in ("softmax(beta={x})", "escort(p={x}) + 1"):
        mine = [row for row in rows if row["family"] == family]
        chosen = best_point([row for row in mine if row["role"] == "tuning"])
        assert {(r["head"], r["learning_rate"]) for r in mine if r["role"] == "evaluation"} == {chosen}
    slope = parse_head(chosen[0]).p
    assert {(r["head"], r["learning_rate"]) for r in control} == {(SOFTMAX.head(slope), chosen[1])}
    assert {(row["family"], row["seed"]) for row in curves} == {
        (f, s) for f in (SOFTMAX.name, ESCORT.name) for s in (0, 1)
    }
    # Beside them in the folder: the runs of another study, which asks for more seeds of one of the families.
    run_rl_study(task, [ESCORT], out=tmp_path, **{**arguments, "seeds": 3})
    assert unused_runs(tmp_path, result.runs, [SOFTMAX, ESCORT], 1000) == 1
    some = run_rl_study(task, [SOFTMAX], out=tmp_path, **arguments).runs
    assert unused_runs(tmp_path, some, [SOFTMAX], 1000) == len(list((tmp_path / "runs").iterdir())) - 12 - 2
    removed = next((tmp_path / "runs").iterdir())
    removed.unlink()
    before = len(played)
    again = run_rl_study(task, [SOFTMAX, ESCORT], out=tmp_path, **arguments).runs.fillna("").to_dict("records")
    assert len(played) == before + 1
    without = [{name: value for name, value in row.items() if name != "seconds"} for row in again]
    assert without == [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_the_command_prints_its_plan_and_names_mistakes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["rl-study", "--plan", "--task", "ppo-cartpole"])
    # Four families of 12 points on 3 seeds, 10 evaluation seeds, and 10 of the control of the three others.
    assert "at most 214 runs" in capsys.readouterr().out
    families = ["softmax(beta={x})", "softmax(beta=1)", "escort(p={x}) + 1"]
    cli.main(["rl-study", "--plan", "--task", "ppo-cartpole", *(f"--family={family}" for family in families)])
    told = capsys.readouterr().out
    # As many points without {x}, and no control: that alone makes its runs fewer.
    for family, numbers in zip(families, ("12 3 10 0 46", "12 3 10 0 46", "12 3 10 10 56"), strict=True):
        line = next(line for line in told.splitlines() if family in line)
        assert line.split() == ["ppo-cartpole", *family.split(), *numbers.split()]
    assert "at most 148 runs" in told
    with pytest.raises(SystemExit) as stop:
        cli.main(["rl-study", "--task", "chess"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_command_tells_of_finished_runs_that_it_does_not_use(capsys, tmp_path, played):
    command = ["rl-study", "--task", "reinforce-cartpole", "--tuning-seeds", "1", "--shorter", "1000"]
    command += ["--out", str(tmp_path / "o")]
    cli.main([*command, "--seeds", "2", "--family", "softmax(beta=1)"])
    told = capsys.readouterr().out
    assert "are not in the tables" not in told
    assert "softmax(beta=1) " in told
    # Without {x}: 12 learning rates on a tuning seed, and 2 evaluation seeds.
    assert len(played) == 14
    cli.main([*command, "--seeds", "1", "--family", "softmax(beta=1)", "--resume"])
    told = capsys.readouterr().out
    assert len(played) == 14
    line = (
        f"1 finished run in {tmp_path / 'o'} belongs to other tasks, heads, seeds or lengths and is not in the tables"
    )
    assert line in told.splitlines()
    cli.main([*command, "--seeds", "1", "--family", "argmax", "--resume"])
    line = (
        f"14 finished runs in {tmp_path / 'o'} belong to other tasks, heads, seeds or lengths and are not in the tables"
    )
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("option", ["--shorter", "--seeds", "--tuning-seeds"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_numbers_below_one_are_refused_before_anything_is_said(option, value, capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        cli.main(["rl-study", "--task", "ppo-cartpole", "--plan", option, value])
    assert stop.value.code == 2
    told = capsys.readouterr()
    assert f"must be at least 1, got {value}" in told.err
    assert told.out == ""


def test_a_family_without_a_blank_must_be_a_head(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["rl-study", "--family", "softmax(beta={y})", "--out", str(tmp_path / "o")])
    assert stop.value.code == 2
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "o").exists()


def test_what_cannot_be_made_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    def refuse(_):
        raise ValueError("cannot make env")

    monkeypatch.setattr("stau_rl.training.run.RunSpec.make", refuse)
    with pytest.raises(ValueError, match="cannot make env"):
        run_rl_study(TASKS[:1], [SOFTMAX], out=tmp_path / "o", processes=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{}", "5", "[]", '{"curve": []}', ""])
def test_a_damaged_result_is_not_there(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    assert read_result(tmp_path / "run.json") is None


def test_families_are_played_once_and_have_names_of_their_own():
    assert distinct([SOFTMAX, ESCORT, SOFTMAX]) == (SOFTMAX, ESCORT)
    near = Family("escort(p={x})", 1.0000001)
    assert near.name == "escort(p={x}) + 1.0000001"
    with pytest.raises(ValueError, match="two families are called"):
        distinct([ESCORT, Family("escort(p={x})", 1 + 1e-15)])
