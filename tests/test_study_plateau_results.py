"""What `run_study` and `run_plateau` give back: tables, figures, and files that load again."""

import doctest
import importlib
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

import stau_rl
from stau_rl import PlateauResult, StudyResult, run_plateau, run_study
from stau_rl.plateau import folder as plateau_folder
from stau_rl.plateau.report import cells
from stau_rl.regret.report import p_value
from stau_rl.study import folder as study_folder
from stau_rl.study.compare import COMPARISONS
from stau_rl.study.report import percent_text


def _study(seed: int = 0, **more) -> StudyResult:
    return run_study(["ucb | softmax", "ucb | s_tau(tau=5)"], ["bernoulli(k=2)"], 20, 16, seed, sweeps=(), **more)


def _plateau(seed: int = 0, **more) -> PlateauResult:
    given = {"updates": 20, "draws": 6, "tuning_draws": 4, "seed": seed, "device": "cpu"}
    return run_plateau(
        ["softmax", "s_tau(tau=2)"], [3], ["uniform", "each(p=0.1)"], ["exact"], [0.4, 4.0], **given, **more
    )


@pytest.fixture(scope="module")
def study() -> StudyResult:
    return _study()


@pytest.fixture(scope="module")
def plateau() -> PlateauResult:
    return _plateau()


def test_a_studys_table_is_a_copy_of_its_rows(study: StudyResult) -> None:
    table = study.table()
    assert set(table["comparison"]) == set(COMPARISONS)
    assert sum(len(study.table(kind)) for kind in COMPARISONS) == len(table)
    assert set(study.table("tuned")["comparison"]) == {"tuned"}
    table.loc[0, "regret"] = -1.0
    assert study.table().loc[0, "regret"] > 0
    assert repr(study) == "StudyResult(2 families, 1 setting)"
    with pytest.raises(ValueError, match=r"comparison must be one of curve, raw, .*, or None, got 'best'"):
        study.table("best")


def test_a_study_says_what_it_left_out() -> None:
    assert _study().notes == ()
    result = run_study(["mean | softmax", "mean | s_tau"], ["bernoulli(means=[0.9, 0.1])"], 10, 10)
    assert any("sweep k: only arms whose means are drawn come in other numbers" in note for note in result.notes)


def test_a_plateaus_table_is_a_copy_of_its_rows(plateau: PlateauResult) -> None:
    assert len(plateau.table("best")) == 4
    assert len(plateau.table("grid")) == 8
    table = plateau.table()
    assert len(table) == 12 + len(plateau.table("curve"))
    table["failed"] = -1.0
    assert (plateau.table("best")["failed"] >= 0).all()
    assert repr(plateau) == "PlateauResult(2 methods, 4 cells)"
    with pytest.raises(ValueError, match="kind must be one of grid, best, curve, or None, got 'raw'"):
        plateau.table("raw")


@pytest.mark.parametrize("name", ["study", "plateau"])
def test_what_is_saved_loads_and_saves_again(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = request.getfixturevalue(name)
    figure = result.plot()
    assert isinstance(figure, Figure)
    assert len(figure.axes) >= 1
    result.save(tmp_path / "new" / "folder")
    back = type(result).load(tmp_path / "new" / "folder")
    pd.testing.assert_frame_equal(back.table(), result.table(), rtol=1e-7, check_dtype=False)
    assert repr(back) == repr(result)
    back.save(tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert (
        files
        == {
            "study": ["curves.png", "study.csv"],
            "plateau": ["plateau.csv", "plateau.png", "plateau_curves.csv"],
        }[name]
    )
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "new" / "folder" / file).read_bytes(), file
    # The same rows may be saved where they are.
    result.save(tmp_path / "again")


@pytest.mark.parametrize(("name", "make"), [("study", _study), ("plateau", _plateau)])
def test_other_rows_are_not_written_over(name: str, make, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = request.getfixturevalue(name)
    result.save(tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(ValueError, match=rf"run holds another {name}.csv; name another folder"):
        make(1).save(tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file cannot be used"):
        result.save(tmp_path / "file")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="holds no finished"):
            type(result).load(folder)


def test_a_folder_that_a_run_has_filled_loads(study: StudyResult, plateau: PlateauResult, tmp_path: Path) -> None:
    for result, make, table in (
        (study, _study, study_folder.TABLE),
        (plateau, _plateau, plateau_folder.TABLE),
    ):
        make(out=tmp_path / table)
        back = type(result).load(tmp_path / table)
        pd.testing.assert_frame_equal(back.table(), result.table(), rtol=1e-7, check_dtype=False)
        result.save(tmp_path / table)
    damaged = tmp_path / study_folder.TABLE / study_folder.TABLE
    damaged.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="is no table of a study: its columns are a, b"):
        StudyResult.load(damaged.parent)
    damaged = tmp_path / plateau_folder.TABLE / plateau_folder.CURVES
    damaged.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no finished plateau benchmark"):
        PlateauResult.load(damaged.parent)


@pytest.mark.parametrize("make", [_study, _plateau])
def test_progress_counts_each_piece_from_0_to_its_end(make) -> None:
    said: list[tuple[str, int, int]] = []
    make(report=lambda what, done, total: said.append((what, done, total)))
    assert all(isinstance(done, int) and isinstance(total, int) and 0 <= done <= total for _, done, total in said)
    for what in dict.fromkeys(name for name, *_ in said):
        shares = [done / total for name, done, total in said if name == what]
        assert shares == sorted(shares)
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert len(set(shares)) > 2


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(ValueError, match="unknown device 'tpu'; known: auto, cpu, cuda, cuda:N"):
        run_plateau(["softmax"], [3], ["uniform"], ["exact"], [0.4], 5, draws=2, tuning_draws=2, device="tpu")


@pytest.mark.parametrize("name", ["run_study", "StudyResult", "run_plateau", "PlateauResult"])
def test_public_names(name: str) -> None:
    assert getattr(stau_rl, name).__name__ == name
    assert name in dir(stau_rl)


@pytest.mark.parametrize("name", ["study.play", "study.result", "plateau.play", "plateau.result"])
def test_examples_in_docstrings(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"stau_rl.{name}"), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0


def test_both_show_in_a_notebook_what_is_printed(study: StudyResult, plateau: PlateauResult) -> None:
    shown = study._repr_html_()
    tuned = study.table("tuned").iloc[1]
    assert f">{p_value(tuned['p_holm'])}</td>" in shown
    assert f">{percent_text(study.table('raw').iloc[1].to_dict())}</td>" in shown
    assert "s_tau(tau=5) against softmax(beta=1): % of regret, 95 % interval (less is better)</caption>" in shown
    best = plateau.table("best").to_dict("records")
    lines = plateau._repr_markdown_().splitlines()
    row = next(line for line in lines if line.startswith(f"| {best[0]['method']} |"))
    escaped = row.replace("\\[", "[").replace("\\]", "]").replace("\\>", ">")
    assert escaped == "| " + " | ".join([best[0]["method"], *("<br/>".join(cells(one)) for one in best[:2])]) + " |"
