"""The study of heads: equal grids, seeds of its own for tuning, statistics by hand, a page that follows the rows."""

import numpy as np
import pandas as pd
import pytest

from stau_rl import cli, rl_page, rl_study
from stau_rl.claim_notebook import notebook
from stau_rl.heads import parse_head
from stau_rl.plateau_page import plateau_section
from stau_rl.rl_figures import save_figures
from stau_rl.rl_page import conclusions, page
from stau_rl.rl_plan import estimate
from stau_rl.rl_results import RESULTS, RLResults, summary
from stau_rl.rl_run import read_result
from stau_rl.rl_study import StudyRun, best_point, play_study, tuning_runs, unused_runs, write_tables
from stau_rl.rl_table import printed
from stau_rl.rl_tasks import (
    FAMILIES,
    RATES,
    SLOPES,
    TASKS,
    Family,
    distinct,
    parse_family,
    points,
    settings,
    stars,
    task_named,
)
from stau_rl.robust import interquartile_mean, stratified_interval

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
    from concurrent.futures import Future

    from stau_rl.rl_run import play_run

    played = []

    class Inline:
        def __init__(self, *_):
            pass

        def submit(self, run):
            played.append(run)
            future = Future()
            future.set_result(play_run(run))
            return future

        def result(self, future):
            return future.result()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(rl_study, "RunPool", Inline)
    return played


def test_a_study_plays_tunes_and_resumes(tmp_path, played):
    """Two families on short CartPole; what is there is not played again."""
    task = [task_named("reinforce-cartpole")]
    reports = []
    arguments = {"processes": 1, "tuning_seeds": 1, "seeds": 2, "shorter": 1000}
    rows, curves = play_study(
        tmp_path, task, [SOFTMAX, ESCORT], **arguments, report=lambda *numbers: reports.append(numbers[:2])
    )
    assert reports[-1] == (30, 30)
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
    play_study(tmp_path, task, [ESCORT], **{**arguments, "seeds": 3})
    assert unused_runs(tmp_path, rows, [SOFTMAX, ESCORT], 1000) == 1
    some, _ = play_study(tmp_path, task, [SOFTMAX], **arguments)
    assert unused_runs(tmp_path, some, [SOFTMAX], 1000) == len(list((tmp_path / "runs").iterdir())) - 12 - 2
    removed = next((tmp_path / "runs").iterdir())
    removed.unlink()
    before = len(played)
    again, _ = play_study(tmp_path, task, [SOFTMAX, ESCORT], **arguments)
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


def test_a_stratified_interval_resamples_within_groups():
    """Two groups far apart, each constant: no resample can change the pooled interquartile mean."""
    found = stratified_interval([[0.0] * 4, [10.0] * 4], seed=0)
    assert (found.value, found.low, found.high) == (5.0, 5.0, 5.0)
    values = np.random.default_rng(0).normal(size=(3, 12))
    found = stratified_interval(values, seed=1)
    assert found.value == pytest.approx(interquartile_mean(values.ravel()), rel=1e-12)
    assert found.low < found.value < found.high
    # Against resampling by loops: the same statistic on 4 000 resamples of its own, to Monte Carlo error.
    random = np.random.default_rng(2)
    drawn = [
        interquartile_mean(np.concatenate([random.choice(group, group.size) for group in values])) for _ in range(4000)
    ]
    assert np.quantile(drawn, [0.025, 0.975]) == pytest.approx([found.low, found.high], abs=0.05)
    with pytest.raises(ValueError, match="at least one"):
        stratified_interval([], seed=0)


@pytest.fixture
def results(tmp_path) -> RLResults:
    """Four seeds, two tasks: escort wins the first for sure and ties the second; its control wins the first too."""
    rows, curves = [], []
    scores = {
        ("ppo-cartpole", SOFTMAX): [490, 480, 470, 460],
        ("ppo-cartpole", ESCORT): [500, 499, 498, 497],
        ("ppo-acrobot", SOFTMAX): [-80, -86, -85, -95],
        ("ppo-acrobot", ESCORT): [-80, -86, -85, -95],
    }
    for (name, family), values in scores.items():
        task = task_named(name)
        rate = {SOFTMAX: task.rates[0], ESCORT: task.rates[1]}[family]
        kinds = [("tuning", family, "", values[:1]), ("evaluation", family, "", values)]
        kinds += [("control", SOFTMAX, ESCORT.name, [400] * 4)] if family == ESCORT else []
        for role, head_family, control_of, role_scores in kinds:
            for seed, score in enumerate(role_scores):
                run = StudyRun(task, head_family, head_family.head(1.5), rate, role, seed, 1, control_of)
                kept = {
                    "settings": run.spec.settings,
                    "curve": [{"train_return": 1.0}],
                    "sampled": float(score),
                    "deterministic": float(score),
                    **dict.fromkeys(("commit", "versions", "device"), "x"),
                    "seconds": 30.0,
                }
                rows.append(rl_study.row_of(run, kept))
                curve = {"task": name, "family": family.name, "seed": seed, "point": 1, "step": 9, "train_return": 1.0}
                curves += [curve] if role == "evaluation" else []
    write_tables(tmp_path, rows, curves)
    return RLResults.load(tmp_path)


def test_the_summary_by_hand(results):
    """CartPole: the middle half of 460, 470, 480, 490 is 470, 480. Scale: floor 22 and goal 490."""
    table = summary(results).set_index(["task", "family"])
    assert table.loc[("ppo-cartpole", SOFTMAX.name), "sampled"] == 475.0
    assert table.loc[("ppo-cartpole", ESCORT.name), "improvement"] == 1.0
    assert table.loc[("ppo-acrobot", ESCORT.name), "improvement"] == 0.5
    normalised = results.normalised("ppo-cartpole", SOFTMAX.name)
    assert sorted(normalised)[-1] == pytest.approx(1.0)
    assert sorted(normalised)[0] == pytest.approx((460 - 22) / (490 - 22))
    # Four to four apart: 2 of the 70 choices of ranks; Holm doubles the smaller p. Ties through and through: 1.
    assert results.p_values() == {
        ("ppo-cartpole", ESCORT.name): pytest.approx(2 * 2 / 70),
        ("ppo-acrobot", ESCORT.name): 1.0,
    }
    assert table.loc[("ppo-acrobot", ESCORT.name), "over_control"] == 0.0
    # Above 1: all four escort runs on CartPole, and Acrobot's three above -87.
    assert results.profile(ESCORT.name, [1.0])[0] == 7 / 8


def test_the_page_says_what_the_rows_say(results, tmp_path):
    sentences = conclusions(results)
    # p = 4/70 after Holm: four seeds are too few for two comparisons.
    assert "`escort(p={x}) + 1` against `softmax(beta={x})`, each at its best: shows no difference" in sentences[0]
    once = RLResults(results.runs[results.runs["task"] == "ppo-cartpole"], results.curves)
    assert "each at its best: scores higher on ppo-cartpole." in conclusions(once)[0]
    assert "at the same sharpness and learning rate: scores higher on ppo-cartpole." in conclusions(once)[1]
    assert "ppo-cartpole: `escort(p={x}) + 1` reaches the reference score of 490" in sentences[2]
    assert "ppo-acrobot: no head reaches" not in " ".join(sentences)
    text = page(results)
    assert text == page(results)
    assert "## Plateaus" not in text
    assert "475.0 [" in text
    # Learning rates at the ends of the grid, sharpness in its middle.
    assert "| `softmax(beta=1.5)` | 0.0003* |" in text
    assert "| `escort(p=1.5)` | 0.003* |" in text
    assert "1.00, p 0.057 | 400.0 [400.0, 400.0] | 1.00, p 0.057 |" in text
    save_figures(results, tmp_path)
    first = (tmp_path / "rl_profiles.png").read_bytes()
    save_figures(results, tmp_path)
    assert first == (tmp_path / "rl_profiles.png").read_bytes()


def test_the_printed_table_says_what_its_columns_are(results):
    lines = printed(results).splitlines()
    assert lines[0].split()[1:4] == ["head", "rate", "sampled"]
    # The reference has no numbers against itself; learning rates at the ends of the grid have a star.
    assert lines[1].startswith("ppo-cartpole softmax(beta=1.5) ")
    assert lines[1].split()[2:] == ["0.0003*", "475.0", "[460.0,", "490.0]", "475.0", "-", "-", "-"]
    assert "escort(p=1.5) + 1" in lines[2]
    assert lines[2].split()[-3:] == ["1.00", "0.057", "1.00"]
    assert max(map(len, lines)) <= 120
    for name in ("improvement: P(", "p_holm: ", "over_control: "):
        assert any(line.startswith(name) for line in lines), name
    alone = RLResults(results.runs[results.runs["family"] == SOFTMAX.name], results.curves)
    assert "improvement" not in printed(alone)


def test_sharpnesses_at_the_ends_of_their_grid_have_a_star():
    task = task_named("ppo-cartpole")
    assert stars(task, ESCORT, "escort(p=3)", 0.003) == ("*", "*")
    assert stars(task, ESCORT, "escort(p=1.5)", 0.000646) == ("", "")
    # No grid of sharpnesses, no end of it.
    assert stars(task, Family("softmax(beta=1)"), "softmax(beta=1)", 0.0003) == ("", "*")


@pytest.mark.skipif(not (RESULTS / rl_study.RUNS).exists(), reason="no rows of a study are committed")
def test_the_default_study_fits_120_characters():
    assert max(map(len, printed(RLResults.load()).splitlines())) <= 120


def test_a_plateau_section_follows_its_rows(results):
    rows = pd.read_csv(RESULTS / "plateau.csv")
    assert plateau_section().rstrip() in page(RLResults(results.runs, results.curves, rows))
    # Escort gets there and leaves again: 36 % of the draws were never there, 70 % are outside at the end.
    assert "`escort(p=2)` 34 % (K = 100, each(p=0.001), sampled)" in plateau_section()
    best = rows[rows["kind"] == "best"]
    ends = best["edge"].isin(["low", "high"]).sum()
    assert 0 < ends < len(best)
    assert f"lies at an end of the grid (^ or v): {ends}." in plateau_section()


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


@pytest.mark.skipif(not (RESULTS / rl_study.RUNS).exists(), reason="no rows of a study are committed")
def test_page_and_notebook_are_those_of_the_committed_rows():
    assert rl_page.PAGE.read_text(encoding="utf-8") == page(RLResults.load()), "run python -m stau_rl.rl_page"
    assert rl_page.NOTEBOOK.read_text(encoding="utf-8") == notebook(rl_page.CELLS), "run python -m stau_rl.rl_page"


def test_what_cannot_be_made_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    def refuse(_):
        raise ValueError("cannot make env")

    monkeypatch.setattr("stau_rl.rl_run.RunSpec.make", refuse)
    with pytest.raises(ValueError, match="cannot make env"):
        play_study(tmp_path / "o", TASKS[:1], [SOFTMAX], processes=1)
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


@pytest.mark.parametrize(
    "arguments", [["--processes", "0"], ["--out", "/dev/null", "--task", "ppo-cartpole", "--shorter", "1000"]]
)
def test_the_module_tells_mistakes_in_a_line(arguments, capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        rl_study.main(["--out", str(tmp_path / "o"), *arguments])
    assert stop.value.code == 2
    assert "error: " in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
