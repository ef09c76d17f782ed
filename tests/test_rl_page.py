"""What a study of heads says: statistics by hand, the printed table, and a page that follows the rows."""

import json

import numpy as np
import pandas as pd
import pytest

from stau_rl.pages import rl as rl_page
from stau_rl.pages.notebook_outputs import without_outputs
from stau_rl.pages.notebooks import RL, notebook
from stau_rl.pages.paths import RESULTS
from stau_rl.pages.plateau import plateau_section
from stau_rl.pages.rl import conclusions, page
from stau_rl.pages.rl_figures import save_figures
from stau_rl.pages.rl_lines import lines
from stau_rl.rl_study.folder import RUNS, write_tables
from stau_rl.rl_study.result import RLStudyResult
from stau_rl.rl_study.results import RLResults, summary
from stau_rl.rl_study.runs import StudyRun, row_of
from stau_rl.rl_study.table import printed
from stau_rl.rl_study.tasks import Family, stars, task_named
from stau_rl.statistics.robust import interquartile_mean, stratified_interval

SOFTMAX, ESCORT = Family("softmax(beta={x})"), Family("escort(p={x})", 1.0)


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
def results(tmp_path) -> RLStudyResult:
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
                rows.append(row_of(run, kept))
                curve = {"task": name, "family": family.name, "seed": seed, "point": 1, "step": 9, "train_return": 1.0}
                curves += [curve] if role == "evaluation" else []
    write_tables(tmp_path, rows, curves)
    return RLStudyResult.load(tmp_path)


def test_a_result_is_saved_loaded_and_drawn(results, tmp_path):
    results.save(tmp_path / "copy")
    again = RLStudyResult.load(tmp_path / "copy")
    pd.testing.assert_frame_equal(again.runs, results.runs)
    pd.testing.assert_frame_equal(again.curves, results.curves)
    pd.testing.assert_frame_equal(again.table(), summary(results))
    assert str(again) == printed(results)
    ax = results.plot("ppo-acrobot")
    assert [line.get_label() for line in ax.lines] == [SOFTMAX.name, ESCORT.name]
    assert [line.get_ydata().tolist() for line in ax.lines] == [[1.0], [1.0]]
    assert results.plot().get_title("left") == "ppo-cartpole"
    with pytest.raises(ValueError, match="task must be one of ppo-cartpole, ppo-acrobot, got 'chess'"):
        results.plot("chess")


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
    # Four seeds are too few for an interval of 95 %.
    assert "| 475.0 |" in text
    # Learning rates at the ends of the grid, sharpness in its middle.
    assert "| `softmax(beta=1.5)` | 0.0003* |" in text
    assert "| `escort(p=1.5)` | 0.003* |" in text
    # A wide table is split into several that begin alike.
    row = "".join(line for line in text.splitlines() if line.startswith("| `escort(p={x}) + 1` |"))
    assert row.count("1.00, p 0.057 |") == 2
    assert "| 400.0 |" in row
    save_figures(results, tmp_path)
    first = (tmp_path / "rl_profiles.png").read_bytes()
    save_figures(results, tmp_path)
    assert first == (tmp_path / "rl_profiles.png").read_bytes()


def test_the_printed_table_says_what_its_columns_are(results):
    lines = printed(results).splitlines()
    assert lines[0].split()[1:4] == ["head", "rate", "sampled"]
    # The reference has no numbers against itself; learning rates at the ends of the grid have a star.
    assert lines[1].startswith("ppo-cartpole softmax(beta=1.5) ")
    assert lines[1].split()[2:] == ["0.0003*", "475.0", "475.0", "-", "-", "-"]
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


@pytest.mark.skipif(not (RESULTS / RUNS).exists(), reason="no rows of a study are committed")
def test_the_default_study_fits_120_characters():
    assert max(map(len, printed(RLResults.load(RESULTS)).splitlines())) <= 120


def test_a_plateau_section_follows_its_rows(results):
    rows = pd.read_csv(RESULTS / "plateau.csv")
    assert plateau_section().rstrip() in page(RLResults(results.runs, results.curves, rows))
    # Escort gets there and leaves again: 36 % of the draws were never there, 70 % are outside at the end.
    assert "`escort(p=2)` 34 % (K = 100, each(p=0.001), sampled)" in plateau_section()
    best = rows[rows["kind"] == "best"]
    ends = best["edge"].isin(["low", "high"]).sum()
    assert 0 < ends < len(best)
    assert f"lies at an end of the grid (^ or v): {ends}." in plateau_section()


@pytest.mark.skipif(not (RESULTS / RUNS).exists(), reason="no rows of a study are committed")
def test_page_and_notebook_are_those_of_the_committed_rows():
    assert rl_page.PAGE.read_text(encoding="utf-8") == page(RLResults.load(RESULTS)), "run python -m stau_rl.pages.rl"
    kept = json.loads(rl_page.NOTEBOOK.read_text(encoding="utf-8"))
    assert without_outputs(kept) == notebook(RL), "run python -m stau_rl.pages.rl"


def test_claims_follow_the_rows():
    results = RLResults.load(RESULTS)

    def verdicts(found: RLResults) -> dict[str, str]:
        return {line.claim: line.verdict for line in lines(found, "heading")}

    now = verdicts(results)
    assert now["s^tau learns better than softmax"] == now["s^tau of learned tau leaves it"] == "not reproduced"
    assert now["softmax stays at a bad arm"] == now["escort leaves it"] == "reproduced"
    assert results.plateau is not None
    turned = results.plateau.assign(failed=1.0 - results.plateau["failed"])
    moved = verdicts(RLResults(results.runs, results.curves, turned))
    assert moved["escort leaves it"] == moved["s^tau of fixed tau leaves it"] == "not reproduced"
    raised = results.runs.copy()
    raised.loc[raised["family"].str.startswith("s_tau") & (raised["role"] == "evaluation"), "sampled"] += 1000.0
    assert verdicts(RLResults(raised, results.curves))["s^tau learns better than softmax"] == "reproduced"
