"""`stau-rl study`: mistakes are one line and leave nothing, folders keep to one study, figures show what was asked."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from stau_rl.agents.bandit import parse_policy
from stau_rl.cli.main import main
from stau_rl.study.engine import engine_for
from stau_rl.study.folder import ABOUT, read_rows
from stau_rl.study.plan import plan_study
from stau_rl.study.play import play_settings, run_study
from stau_rl.study.plot import draw_study
from stau_rl.study.report import TABLE_WIDTH, notes, render

TWO = ["--family", "centred_ucb | softmax", "--family", "centred_ucb | s_tau(tau=5)"]
TINY = ["study", "--arms", "gaussian(k=3)", "--horizon", "20", "--instances", "20"]
PLUGIN = """
from stau_rl.plugin import head

@head("fussy", a=1.0)
def fussy(scores, a):
    raise RuntimeError("not today")
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where a default output directory would show."""
    monkeypatch.chdir(tmp_path)


def _fails(arguments: list[str], capsys: pytest.CaptureFixture[str], folder: Path) -> str:
    before = sorted(folder.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert sorted(folder.rglob("*")) == before
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ([*TWO, "--sweep", "d"], "sweeps: unknown sweep 'd'; known: c, k, horizon, offset, scale, centring"),
        (["--family", "mean | softmax", "--family", "ucb1", "--sweep", "c"], "sweeps: 'c' cannot be played"),
        (["--family", "mean | softmax", "--family", "mean | fussy"], "loaded with --plugin FILE"),
        ([*TWO, "--sweep", "none", "--sweep", "c"], "--sweep none leaves out every sweep, but c was asked for as well"),
        ([*TWO, "--engine", "jax"], "unknown engine 'jax'"),
        ([*TWO, "--engine", "jax", "--out", "deep/er/out"], "unknown engine 'jax'"),
    ],
)
def test_mistakes_are_a_line_and_leave_nothing(extra, message, capsys, tmp_path: Path) -> None:
    assert message in _fails([*TINY, *extra], capsys, tmp_path)


def test_a_plugin_that_fails_leaves_no_folder(capsys, tmp_path: Path) -> None:
    from stau_rl.plugin.plugin_head import forget

    (tmp_path / "fussy.py").write_text(PLUGIN)
    plugin = ["--plugin", "fussy.py"]
    try:
        families = ["--family", "centred_ucb | softmax", "--family", "centred_ucb | fussy"]
        assert "head 'fussy' failed: RuntimeError: not today" in _fails([*TINY, *families, *plugin], capsys, tmp_path)
        one = ["regret", "--horizon", "20", "--instances", "4", "--policy", "ucb | fussy", *plugin, "--out"]
        for out in ("new", "a/b/new"):
            assert "not today" in _fails([*one, out], capsys, tmp_path)
    finally:
        forget("fussy")


def _settings(**changes):
    given = {"families": ("ucb | softmax", "ucb | s_tau(tau=5)"), "arms": ["bernoulli(k=3)"], "horizon": 20}
    given |= {"instances": 20, "seed": 0, "sweeps": ()}
    return [replace(one, coarse=3, fine=0) for one in plan_study(**(given | changes)).settings]


def test_a_folder_goes_on_with_its_own_study_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = play_settings(_settings(), out)
    known = json.loads((out / ABOUT).read_text())
    assert known["base"][0]["arms"] == "bernoulli(k=3)"
    for changes, message in (
        ({"seed": 1}, r"base\[0\].seed is 0 there, 1 was asked for"),
        ({"arms": ["gaussian(k=3)"]}, r'base\[0\].value is "bernoulli\(k=3\)" there'),
        ({"horizon": 30}, r"base\[0\].horizon is 20 there"),
    ):
        with pytest.raises(ValueError, match=message):
            play_settings(_settings(**changes), out, resume=True)
    with pytest.raises(ValueError, match='engine is "auto" there'):
        play_settings(_settings(), out, resume=True, engine="torch")
    # It may grow by sweeps.
    more = play_settings(_settings(sweeps=("c",)), out, resume=True)
    assert len(more) > len(first)
    assert more["regret"].iloc[: len(first)].tolist() == first["regret"].tolist()
    kept = read_rows(out / "study.csv")
    assert kept["seed"].nunique() == 1
    assert kept["p_holm"].notna().any()


def test_the_figure_has_a_panel_per_setting_and_lines_of_reference(tmp_path: Path) -> None:
    rows = play_settings(_settings(families=("ucb | softmax", "ucb | s_tau(tau=5)", "thompson"), sweeps=("c",)))
    figure = draw_study(rows)
    assert len(figure.axes) == rows["setting"].nunique()
    columns = figure.axes[0].get_subplotspec().get_gridspec().ncols
    assert columns == min(2, len(figure.axes))
    lines = [line for line in figure.axes[0].get_lines() if line.get_zorder() == 2]
    labels = [line.get_label() for line in lines]
    assert labels == ["softmax", "s_tau", "thompson", "random", "ucb1"]
    base = rows[(rows["sweep"] == "base") & (rows["family"] == "random")].iloc[0]
    assert lines[3].get_ydata()[0] == base["regret"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == labels
    assert len(draw_study(rows, "c").axes) == (rows["sweep"].eq("c") & rows["comparison"].eq("raw")).sum() / 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": []}, "arms must name at least one"),
        ({"arms": "text"}, "arms must be a list of texts, got 'text'"),
        ({"sweeps": "c"}, "sweeps must be a list of texts, got 'c'"),
        ({"sweeps": ["q"]}, "sweeps: unknown sweep 'q'"),
        ({"size": "tiny"}, "size: unknown size 'tiny'"),
        ({"engine": "jax"}, "unknown engine 'jax'"),
    ],
)
def test_run_study_names_the_argument(changes: dict, message: str) -> None:
    given = {"arms": ["bernoulli(k=2)"], "horizon": 10, "instances": 10, "sweeps": ()}
    with pytest.raises(ValueError, match=message):
        run_study(**(given | changes))


def test_of_several_engines_each_policy_takes_the_first_that_runs_it() -> None:
    texts = "centred_ucb | softmax", "mean | asis"
    from stau_rl.plugin.plugin_head import forget, head

    head("asis", a=1.0)(lambda scores, a: a * scores)
    try:
        named = [parse_policy(text) for text in texts]
        assert [engine_for(policy, "bernoulli(k=2)", 20, "numba,torch") for policy in named] == ["numba", "torch"]
        assert engine_for(named[0], "bernoulli(k=2)", 20, "numba") == "numba"
        with pytest.raises(ValueError, match="no head 'asis'"):
            engine_for(named[1], "bernoulli(k=2)", 20, "numba, triton", "cpu")
        rows = run_study(texts, ["bernoulli(k=2)"], 20, 20, sweeps=(), engine="numba,torch").table()
        assert set(rows.loc[rows["family"] == "mean | asis(a=1)", "engine"]) == {"torch cpu float64"}
        assert set(rows.loc[rows["family"] == "centred_ucb | softmax(beta=1)", "engine"]) == {"numba cpu float32"}
    finally:
        forget("asis")
    with pytest.raises(ValueError, match="unknown engine 'jax'"):
        engine_for(named[0], "bernoulli(k=2)", 20, "jax,numba")


def test_heads_on_a_schedule_say_so_below_the_table(capsys) -> None:
    main(["heads", "--scores", "1,2", "--head", "softmax(beta=4*log(t))", "--head", "softmax"])
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if "4*log(t)" in line)
    assert "changes with t" not in row
    assert "softmax(beta=4*log(t)) changes with t; head.at(t) is the head of step t" in printed


def test_a_table_names_scores_that_differ_and_the_edges_of_the_reference() -> None:
    families = ("ucb | softmax", "centred_ucb | softmax")
    rows = run_study(families, ["bernoulli(k=3)"], 60, 40, 5, sweeps=()).table()
    console = Console(width=TABLE_WIDTH, record=True, file=io.StringIO())
    console.print(render(rows))
    assert "centred_ucb | softmax(beta=1) against ucb | softmax(beta=1)" in console.export_text()
    tuned = (rows["comparison"] == "tuned") & (rows["family"] == rows["family"].iloc[0])
    assert tuned.sum() == 1
    for edge, told in (("high", True), ("", False)):
        rows.loc[tuned, "edge"] = edge
        text = "\n".join(notes(rows))
        assert ("The best member of the reference lies at an end of the grid at: bernoulli(k=3)." in text) is told


def test_a_dash_and_a_reason_where_a_policy_is_its_own_match() -> None:
    console = Console(width=TABLE_WIDTH, record=True, file=io.StringIO())
    rows = run_study(("ucb | softmax", "centred_ucb | softmax"), ["bernoulli(k=3)"], 60, 40, sweeps=()).table()
    console.print(render(rows))
    text = console.export_text()
    # Raw, slope, entropy, tuned; matched at equal sharpness a softmax is itself, whatever the scores.
    (row,) = [line for line in text.splitlines() if line.startswith(" bernoulli(k=3)")]
    assert re.split(r"\s{2,}", row.strip())[2:4] == ["-", "-"]
    for name in ("same slope at 0", "same entropy"):
        reason = "centred_ucb | softmax(beta=1) would be compared with itself (bernoulli(k=3))"
        assert f"No comparison at {name}: {reason}." in " ".join(text.split())


def test_regret_0_has_no_percentage_and_a_line_says_so() -> None:
    rows = run_study(("ucb | softmax", "ucb | escort"), ["bernoulli(k=1)"], 20, 20, sweeps=()).table()
    text = "\n".join(notes(rows))
    assert "Without a percentage are comparisons with a policy whose regret is 0, at: bernoulli(k=1)." in text
    assert "nan" not in text
