"""Grids set by hand, and families whose parameter is no slope: what is tried, what is refused, what is written."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from stau_rl.agents.bandit import parse_policy
from stau_rl.cli.main import main
from stau_rl.study.family import Family
from stau_rl.study.folder import ABOUT
from stau_rl.study.grids import read_grids, set_grids
from stau_rl.study.plan import plan_study, try_sweep
from stau_rl.study.play import run_study
from stau_rl.study.plot import draw_study
from stau_rl.study.report import TABLE_WIDTH, notes, render
from stau_rl.study.setting import Setting
from stau_rl.study.tuning import tune

SOFTMAX, WIDTH, FIXED = "ucb | softmax(beta=1)", "ucb(c={x}) | argmax", "thompson"
FAMILIES = (SOFTMAX, WIDTH, FIXED)
STUDY: dict[str, Any] = {"arms": ["gaussian(k=3)"], "horizon": 30, "instances": 24, "sweeps": ()}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return run_study(FAMILIES, **STUDY, grid={1: [4, 1, 0.5], "ucb(c={x})|argmax": [0.5, 0]}).table()


def _shown(rows: pd.DataFrame) -> str:
    console = Console(width=TABLE_WIDTH, record=True, file=io.StringIO())
    console.print(render(rows))
    return " ".join(console.export_text().split())


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (None, ()),
        ([3, 0.1, 1], ((0.1, 1.0, 3.0), (0.1, 1.0, 3.0), None)),
        ({2: [1, 0]}, (None, (0.0, 1.0), None)),
        ({WIDTH: [1, 2], "all": [3, 4]}, ((3.0, 4.0), (1.0, 2.0), None)),
        ({"ucb|softmax": [2, 1], "2": [5, 6]}, ((1.0, 2.0), (5.0, 6.0), None)),
    ],
)
def test_a_grid_belongs_to_all_families_or_to_those_that_are_named(grid: Any, expected: Any) -> None:
    assert set_grids(grid, FAMILIES, 10) == expected


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([1], r"grid of ucb \| softmax\(beta=1\): needs two values or more, got 1$"),
        ({2: []}, r"grid of ucb\(c=\{x\}\) \| argmax: needs two values or more, got none"),
        ({2: [1, 3, 1, 3.0, 2]}, r"1, 3 stands there more than once"),
        ({2: [-2, 1, -1]}, r"refuses -2 \(ucb: c must be finite and >= 0, got -2.0\), -1 \(ucb: c must"),
        ({2: [1, float("inf")]}, r"refuses inf \(inf is not finite\)"),
        ({2: [1, "3"]}, r"values must be numbers, got \[1, '3'\]"),
        ({2: "1,2"}, r"values must be numbers, got '1,2'"),
        ({3: [1, 2]}, r"grid: thompson has no parameter to tune; put \{x\} where its values go"),
        ({4: [1, 2]}, r"there is no family 4; there are 1 ucb \| softmax\(beta=1\), 2 .*, 3 thompson, or all"),
        ({"mean | softmax": [1, 2]}, r"there is no family 'mean \| softmax'"),
        ({2: [1, 2], WIDTH: [1, 2]}, r"ucb\(c=\{x\}\) \| argmax is named twice, the second time as"),
    ],
)
def test_what_is_refused_is_named(grid: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        set_grids(grid, FAMILIES, 10)


def test_values_are_looked_at_as_policies_of_the_whole_horizon() -> None:
    with pytest.raises(ValueError, match=r"2 and 3 are both ucb\(c=2\) \| argmax; leave one out"):
        set_grids({1: [1, 2, 3]}, ["ucb(c=min(2, {x})) | argmax", SOFTMAX], 10)
    falling = ["ucb(c={x}-t) | argmax", SOFTMAX]
    assert set_grids({1: [20, 30]}, falling, 20) == ((20.0, 30.0), None)
    with pytest.raises(ValueError, match=r"refuses 20 \(ucb: c must .* got 20-t = -1 at t = 21\)"):
        set_grids({1: [20, 30]}, falling, 21)
    # -1 in the place of {x} is squared as a number, not as -(1**2).
    assert str(Family("ucb(c={x}**2) | argmax").with_value(-3.0)) == "ucb(c=9) | argmax"


def test_texts_of_the_command_line() -> None:
    assert read_grids([]) is None
    assert read_grids(["0.1,1", "2=3,4", f"{WIDTH}=1e-3,5"]) == {"all": [0.1, 1], "2": [3, 4], WIDTH: [0.001, 5]}
    for texts, message in ((["1,x"], "numbers as in 0.1,0.3,1, or FAMILY="), (["1,2", "3,4"], "all is given twice")):
        with pytest.raises(ValueError, match=message):
            read_grids(texts)


def test_tuning_tries_the_values_and_no_others() -> None:
    plan = plan_study((SOFTMAX, WIDTH), ["bernoulli(k=2)"], 20, 40, 0, sweeps=(), grid=[8, 2, 0.5, 1])
    tried: list[list[str]] = []

    def play(policies: list[Any], instances: int, seed: int) -> dict[Any, Any]:
        tried.append([str(policy) for policy in policies])
        return {policy: np.full(instances, abs(policy.score.c - 2.1)) for policy in policies}

    found = tune(Family(WIDTH), plan.settings[0], play)
    assert found is not None
    names = {value: f"ucb(c={value:g}) | argmax" if value != 1 else "ucb | argmax" for value in (0.5, 1, 2, 8)}
    assert tried == [list(names.values()), list(names.values()), [names[0.5], names[1], names[2]]]
    assert (str(found.best), found.edge, found.slopes) == (names[2], "", [0.5, 1.0, 2.0, 8.0])


def test_rows_hold_the_grid_and_the_table_says_that_budgets_differ(rows: pd.DataFrame) -> None:
    curves = rows[rows["comparison"] == "curve"]
    assert curves.loc[curves["family"] == SOFTMAX, "policy"].tolist() == [
        f"ucb | softmax(beta={beta})" for beta in ("0.5", "1", "4")
    ]
    assert curves.loc[curves["family"] == WIDTH, "policy"].tolist() == ["ucb(c=0) | argmax", "ucb(c=0.5) | argmax"]
    tuned = rows[rows["comparison"] == "tuned"]
    assert tuned["tuning_points"].tolist() == [3, 2, 0]
    text = _shown(rows)
    unequal = f"Budgets are not equal: members tried are 3 of {SOFTMAX}, 2 of {WIDTH}; the larger grid has more"
    assert unequal in text
    assert any(note.startswith(unequal) for note in notes(rows, explain=False))
    assert f"{WIDTH} against {SOFTMAX}: % of regret, 95 % interval (less is better); 2 members tried against 3" in text
    equal = run_study((SOFTMAX, WIDTH), **STUDY, grid=[1, 2]).table()
    assert "come from 2 members of each family" in _shown(equal)
    assert "Budgets are not equal" not in _shown(equal)
    assert "members tried against" not in _shown(equal)


def test_the_table_names_the_parameter_and_its_best_value(rows: pd.DataFrame) -> None:
    text = _shown(rows)
    assert next(line for line in _lines(rows) if "p (Holm)" in line).split()[-1] == "c"
    best = rows[(rows["comparison"] == "tuned") & (rows["family"] == WIDTH)].iloc[0]
    value = {"ucb(c=0) | argmax": "0 v", "ucb(c=0.5) | argmax": "0.5 ^"}[best["policy"]]
    (line,) = [row for row in _lines(rows) if row.startswith(" gaussian(k=3)")][:1]
    assert line.rstrip().endswith(value)
    assert f"c: what stands for {{x}} in the best member of {WIDTH}." in list(notes(rows))
    assert f"No comparison at same slope at 0: {WIDTH} is a template, whose {{x}} may be anything." in text
    swapped = run_study((WIDTH, SOFTMAX), **STUDY, grid=[1, 2]).table()
    assert f"{SOFTMAX} against {WIDTH}: %" in _shown(swapped)


def _lines(rows: pd.DataFrame) -> list[str]:
    console = Console(width=TABLE_WIDTH, record=True, file=io.StringIO())
    console.print(render(rows))
    return console.export_text().splitlines()


def test_the_figure_names_the_parameter(rows: pd.DataFrame) -> None:
    figure = draw_study(rows)
    (panel,) = figure.axes
    assert panel.get_xlabel() == f"slope of log-weights at the scores\nc of {WIDTH}"
    line = next(line for line in panel.get_lines() if line.get_label() == WIDTH)
    np.testing.assert_array_equal(line.get_xdata(), [0.0, 0.5])
    # 0 has no place on a logarithmic axis.
    assert panel.get_xscale() == "symlog"
    assert figure.get_suptitle() == "How much does each family lose, over its parameter?"
    assert "over its sharpness?" in draw_study(rows[rows["family"] != WIDTH]).get_suptitle()
    alone = rows[rows["family"].isin([WIDTH, FIXED])]
    (panel,) = draw_study(alone).axes
    assert panel.get_xlabel() == f"c of {WIDTH}"


@pytest.mark.parametrize(
    ("text", "parameter", "name"),
    [
        (WIDTH, "c", WIDTH),
        ("ucb(offset={x}) | s_tau(tau=5)", "offset", "ucb(offset={x}) | s_tau(tau=5)"),
        ("eps_greedy(eps={x})", "eps", "eps_greedy(eps={x})"),
        ("ucb | s_tau(tau=5, eps={x})", "eps", "s_tau(tau=5, eps={x})"),
        ("ucb(c={x}/sqrt(t)) | argmax", "x", "ucb(c={x}/sqrt(t)) | argmax"),
        ("ucb | softmax(beta={x}*log(t))", "x", "softmax(beta={x}*log(t))"),
        ("ucb | softmax(beta={x}**2)", "x", "softmax(beta={x}**2)"),
        ("ucb | softmax(beta={x})", "", "softmax"),
        ("ucb | softmax(beta=2*{x})", "", "softmax"),
        ("ucb | s_tau(tau={x}, eps=0)", "", "s_tau"),
        (SOFTMAX, "", "softmax"),
        (FIXED, "", FIXED),
    ],
)
def test_what_is_tuned_has_its_own_name(text: str, parameter: str, name: str) -> None:
    assert (Family(text).parameter, Family(text).name) == (parameter, name)


def test_a_slope_stands_for_its_value() -> None:
    family = Family("ucb(c={x}, offset=1) | s_tau(tau=5)")
    assert family.parameter == "c"
    assert family.value_of(family.slope_of(0.3)) == 0.3
    assert (
        family.member(family.slope_of(0.3))
        == family.with_value(0.3)
        == parse_policy("ucb(c=0.3, offset=1) | s_tau(tau=5)")
    )


def test_settings_without_a_grid_are_what_they_were() -> None:
    given = {"families": (SOFTMAX, WIDTH), "arms": ["gaussian(k=2)"], "horizon": 9, "instances": 9, "seed": 0}
    plain, gridded = (plan_study(**given, sweeps=(), grid=grid).settings[0] for grid in (None, [2, 1]))
    assert "grids" not in plain.fields()
    assert gridded.fields()["grids"] == ((1.0, 2.0), (1.0, 2.0))
    assert plain.identity != gridded.identity
    assert plan_study(**given, sweeps=(), grid=[1, 2]).settings[0].identity == gridded.identity
    assert (plain.tries(WIDTH), gridded.tries(WIDTH)) == (plain.budget, 2)
    assert gridded.tuning_work(WIDTH) == 2 * gridded.tuning_instances + sum(2 * n for _, n in gridded.rounds)
    assert try_sweep(gridded, "scale")[1] == ["how a grid set by hand carries the scale of rewards is not known"]
    assert "{x} stands in the score of ucb(c={x}) | argmax" in try_sweep(plain, "c")[1][0]
    assert isinstance(gridded, Setting)


def test_the_command_records_the_grid_and_resumes_only_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study = ["study", "--arms", "bernoulli(k=2)", "--horizon", "20", "--instances", "10", "--sweep", "none"]
    study += ["--family", SOFTMAX, "--family", WIDTH, "--out", "g"]
    main([*study, "--grid", "2=1,0.5", "--grid", "3,4,5"])
    assert json.loads((tmp_path / "g" / ABOUT).read_text())["base"][0]["grids"] == [[3.0, 4.0, 5.0], [0.5, 1.0]]
    before = {file.name: file.read_bytes() for file in (tmp_path / "g").glob("*.*") if file.name != "timing.json"}
    main([*study, "--grid", "3,4,5", "--grid", "2=0.5,1", "--resume", "--figure", "svg", "--figure", "pdf"])
    after = {file.name: file.read_bytes() for file in (tmp_path / "g").glob("*.*")}
    assert {name: after[name] for name in before} == before
    assert (after["curves.svg"][:5], after["curves.pdf"][:5]) == (b"<?xml", b"%PDF-")
    for grid, message in (
        (["--grid", "3,4,5", "--grid", "2=0.5,2"], "base[0].grids[1][1] is 1.0 there, 2.0 was asked for"),
        ([], "base[0].grids is [[3.0, 4.0, 5.0], [0.5, 1.0]] there, nothing was asked for"),
        (["--figure", "gif"], "--figure must be one of png, svg, pdf, got 'gif'"),
        (["--grid=-1,2"], "grid of ucb | softmax(beta=1): refuses -1 (softmax: beta must be finite and >= 0"),
    ):
        with pytest.raises(SystemExit):
            main([*study, *grid, "--resume"])
        assert message in capsys.readouterr().err


def test_without_a_parameter_there_is_no_figure_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study = ["study", "--arms", "bernoulli(k=2)", "--horizon", "20", "--instances", "10", "--sweep", "none"]
    main([*study, "--family", "ucb1", "--family", "random", "--out", "g", "--figure", "pdf"])
    assert "All rows: g/study.csv, no curves, as nothing was tuned" in capsys.readouterr().out
    assert not list((tmp_path / "g").glob("curves.*"))
