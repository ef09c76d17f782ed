"""The plateau benchmark end to end: plans, folders, tables, page, command lines."""

import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from stau_rl.cli.main import main
from stau_rl.files.finished import TIMING
from stau_rl.pages.plateau import findings, is_remedy, plateau_section, publish
from stau_rl.plateau import play as plateau
from stau_rl.plateau.cell import same_grid
from stau_rl.plateau.folder import CURVES, FIGURE, TABLE, read_rows
from stau_rl.plateau.methods import DEFAULT_METHODS
from stau_rl.plateau.play import STEP_SIZES, plan_plateau, play_cells
from stau_rl.plateau.report import render, share_text, steps_text
from stau_rl.plugin.plugin_head import forget, head

ROOT = Path(__file__).resolve().parents[1]
SMALL = {"arms": (5,), "starts": ("each(p=0.02)",), "gradients": ("exact",), "step_sizes": (4.0, 40.0), "updates": 40}
SMALL |= {"draws": 12, "tuning_draws": 6}
FLAGS = ["--arms", "5", "--start", "each(p=0.02)", "--gradient", "exact", "--step-size", "40"]
FLAGS += ["--updates", "30", "--draws", "6", "--tuning-draws", "4"]


def small(methods=("softmax", "s_tau(tau=2)"), **changes):
    return plan_plateau(methods, **{**SMALL, **changes})


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return play_cells(small(DEFAULT_METHODS, starts=("uniform", "each(p=0.02)", "shared(p=0.02)")))


def test_the_plan_is_every_combination_on_one_grid():
    cells = plan_plateau()
    # 100 arms at 0.01 each are the uniform start.
    assert len(cells) == 2 * (5 + 4) * len(DEFAULT_METHODS)
    assert same_grid(cells)
    assert {cell.step_sizes for cell in cells} == {STEP_SIZES}
    assert 0.4 in STEP_SIZES
    assert len({cell.identity for cell in cells}) == len(cells) == len({cell.file_name for cell in cells})
    assert not same_grid([*cells, *small()])
    assert {cell.start for cell in plan_plateau(arms=(100,))} == {
        "uniform", "each(p=0.001)", "shared(p=0.01)", "shared(p=0.001)",
    }  # fmt: skip


def test_every_method_is_tried_on_the_whole_grid_and_measured_on_other_draws(rows):
    for _, group in rows.groupby(["start", "method"]):
        grid, best = group[group["kind"] == "grid"], group[group["kind"] == "best"]
        assert grid["step_size"].tolist() == [4.0, 40.0]
        assert grid["draws"].tolist() == [6, 6]
        assert best["draws"].tolist() == [12]
        assert best["step_size"].iloc[0] == grid.loc[grid["failed"].idxmin(), "step_size"] or (
            grid["failed"].nunique() == 1
        )
        curve = group[group["kind"] == "curve"]
        assert curve["step"].tolist()[0] == 0
        assert curve["step"].tolist()[-1] == 40
        assert (curve["gap_q10"] <= curve["gap_q50"]).all()
        assert (curve["gap_q50"] <= curve["gap_q90"]).all()
    assert rows["failed"].dropna().between(0, 1).all()
    assert rows["versions"].str.contains("torch=").all()


def test_all_methods_start_at_the_same_distance(rows):
    first = rows[(rows["kind"] == "curve") & (rows["step"] == 0)]
    assert (first.groupby("start")["gap_q50"].agg(lambda gaps: gaps.max() - gaps.min()) < 1e-9).all()


def test_an_interrupted_benchmark_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    cells = small(("softmax", "escort", "s_tau(tau=2)"))
    play_cells(cells, tmp_path / "whole")

    def stop(title, done, total):
        if title == cells[1].title and 2 * done >= total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_cells(cells, tmp_path / "cut", report=stop)
    assert len(list((tmp_path / "cut" / "cells").iterdir())) == 1
    with pytest.raises(ValueError, match="pass --resume"):
        play_cells(cells, tmp_path / "cut")
    damaged = tmp_path / "cut" / "cells" / cells[1].file_name
    damaged.write_text("kind,arms\n", encoding="utf-8")
    play_cells(cells, tmp_path / "cut", resume=True)
    names = {path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.csv")}
    assert len(names) == 3 + 2
    for name in names:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    monkeypatch.setattr(plateau, "play_cell", lambda *_: pytest.fail("a finished cell was played again"))
    again = play_cells(cells, tmp_path / "cut", resume=True)
    assert again["method"].unique().tolist() == ["softmax(beta=1)", "escort(p=2)", "s_tau(tau=2)"]


def test_a_folder_in_use_or_of_another_kind_is_refused(tmp_path):
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match="is a file"):
        play_cells(small(), tmp_path / "file")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": (1,)}, "2 ... 1024, got 1"),
        ({"updates": 0}, "updates must be an integer >= 1, got 0"),
        ({"within": math.nan}, "within must be finite"),
        ({"step_sizes": (0.0,)}, "step sizes must be finite and > 0"),
        ({"gradients": ("exakt",)}, "did you mean 'exact'"),
        ({"starts": ("each(p=2)",)}, r"p must lie in \(0, 1\), got 2"),
        ({"starts": ("each(p=0.2)",)}, "leaves the second best arm no more"),
        ({"seed": -1}, "seed"),
        ({"methods": ("argmax",)}, "no scores up to"),
        ({"methods": ()}, "nothing to play"),
    ],
)
def test_plans_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_a_plug_in_head_takes_part_and_its_code_is_part_of_the_cell():
    @head("cubic", p=3.0, sharpness="p")
    def cubic(scores, p):
        """|s|^p"""
        return p * scores.abs().clamp(min=1e-30).log()

    try:
        cells = small(("cubic", "learned(cubic)", "escort(p=3)"))
        rows = play_cells(cells)
    finally:
        forget("cubic")
    assert len(cells[0].content) == 64
    assert cells[2].content == ""
    best = rows[rows["kind"] == "best"].set_index("method")
    assert best.loc["cubic(p=3)", "steps"] == best.loc["escort(p=3)", "steps"]


def test_texts_of_a_row():
    row = {"failed": 0.5, "failed_low": 0.25, "failed_high": 0.75, "updates": 40}
    row |= {"steps": 7.0, "steps_low": 3.0, "steps_high": math.inf}
    assert share_text(row) == "50 [25, 75]"
    assert steps_text(row) == "7 [3, >40]"
    assert steps_text(row | {"steps": math.inf, "steps_low": math.inf}) == ">40"


def test_the_section_says_what_the_rows_say(rows, tmp_path):
    play_cells(small(DEFAULT_METHODS, starts=("uniform", "each(p=0.02)", "shared(p=0.02)")), tmp_path / "run")
    (tmp_path / "results").mkdir()
    publish(tmp_path / "run", tmp_path / "results", tmp_path)
    assert (tmp_path / FIGURE).read_bytes().startswith(b"\x89PNG")
    section = plateau_section(tmp_path / "results" / TABLE)
    assert section.startswith("## The plateau of policy gradients\n")
    best = rows[(rows["kind"] == "best") & (rows["start"] == "each(p=0.02)")]
    for row in best.to_dict("records"):
        assert f"`{row['method']}` {share_text(row)} %" in section
    good = best[best["method"].map(is_remedy) & (best["failed"] <= 0.1)]["method"].tolist()
    (verdict,) = [line for line in findings(rows) if line.startswith("There, ")]
    assert ("no remedy" in verdict) == (not good)
    assert all(f"`{text}`" in verdict for text in good)
    publish(None, tmp_path / "results", tmp_path)
    with pytest.raises(ValueError, match="no rows of a plateau benchmark"):
        plateau_section(tmp_path / "results" / CURVES)
    assert read_rows(tmp_path / "results" / CURVES)["method"].nunique() == len(DEFAULT_METHODS)
    assert render(rows) is not None


def test_only_learned_heads_with_a_remedy_are_remedies():
    assert [is_remedy(text) for text in DEFAULT_METHODS] == [False] * 5 + [True] * 3


def test_the_command_prints_the_table_and_writes_the_files(tmp_path, capsys):
    main(
        ["plateau", *FLAGS, "--head", "softmax", "--head", "learned(s_tau, rate=0.01)", "--out", str(tmp_path / "run")]
    )
    out = capsys.readouterr().out
    assert "exact gradient, K = 5" in out
    assert "rate=0.01)" in out
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"cells", TABLE, CURVES, FIGURE, TIMING}
    main(["plateau", *FLAGS, "--head", "softmax", "--out", str(tmp_path / "run"), "--resume"])
    assert "1 cells in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--head", "s_tua"], "did you mean 's_tau'"),
        (["--head", "learned(s_tau, rate=-1)"], "rate must be finite and > 0, got -1"),
        (["--start", "each(p=0.5)"], "leaves the second best arm no more than the best"),
        (["--step-size", "-1"], "step sizes must be finite and > 0"),
        (["--updates", "0"], "updates must be an integer >= 1"),
        (["--plugin", "nowhere.py"], "nowhere.py"),
        (["--device", "tpu"], "unknown device 'tpu'; known: auto, cpu, cuda, cuda:N"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(extra, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["plateau", *FLAGS, "--head", "softmax", *extra, "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "run").exists()


def test_resume_needs_a_folder(capsys):
    with pytest.raises(SystemExit):
        main(["plateau", "--resume"])
    assert "--resume needs --out DIR" in capsys.readouterr().err


def test_the_module_runs_without_the_command_lines_dependencies(tmp_path):
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('gymnasium', 'matplotlib')))\n"
        "sys.modules.update(tyro=None)\n"
        "from stau_rl.cli.main import main\n"
        f"main({['plateau', *FLAGS, '--head', 'softmax', '--out', str(tmp_path / 'run')]!r})\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "no figure" in run.stdout
    assert (tmp_path / "run" / TABLE).is_file()
