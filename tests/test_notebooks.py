"""Every notebook runs from top to bottom, and its file keeps what it shows."""

import json
from pathlib import Path

import pytest

from stau_rl.pages import notebook_outputs, notebook_pages
from stau_rl.pages.notebook_outputs import digest, is_current, paths, play, without_outputs, write_notebook
from stau_rl.pages.notebooks import ROWS, notebook
from stau_rl.pages.paths import NOTEBOOKS, RESULTS

NAMES = [path.stem for path in paths()]
LARGEST = 400_000
MADE_OF_ROWS = {"claim_35_percent", "rl"}
"""Nothing is played or trained in them, so what they show is the same everywhere."""
CELLS = (("markdown", "# Title"), ("code", "print(1)\n2"))


def body(name: str) -> dict:
    return json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))


def outputs(notebook: dict) -> list[dict]:
    return [output for cell in notebook["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]


def tables(notebook: dict) -> list[str]:
    found = [output.get("data", {}).get("text/html", "") for output in outputs(notebook)]
    return ["".join(text) for text in found if text]


def test_there_are_notebooks_and_rows_of_those_alone() -> None:
    assert set(ROWS) < set(NAMES)
    assert all(list(RESULTS.glob(pattern)) for patterns in ROWS.values() for pattern in patterns)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_keeps_the_outputs_of_its_cells_and_rows(name: str) -> None:
    import nbformat

    path, kept = NOTEBOOKS / f"{name}.ipynb", body(name)
    assert is_current(name, kept), f"run python -m stau_rl.pages.notebook_outputs {name}"
    nbformat.validate(nbformat.reads(path.read_text(encoding="utf-8"), as_version=4))
    code = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert any("image/png" in output.get("data", {}) for output in outputs(kept)), "no figure"
    assert tables(kept), "no table"
    assert {output["output_type"] for output in outputs(kept)} <= {"execute_result", "display_data", "stream"}
    assert not [output for output in outputs(kept) if output.get("name") == "stderr"]
    # Neither times nor versions nor places: a second execution gives the same bytes.
    assert set(kept["metadata"]) == {"kernelspec", "language_info", "outputs_of"}
    assert kept["metadata"]["language_info"] == {"name": "python"}
    assert all(cell["metadata"] == {} for cell in kept["cells"])
    text = path.read_text(encoding="utf-8")
    assert " at 0x" not in text
    assert str(Path.home()) not in text
    assert len(text.encode()) < LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs(name: str) -> None:
    import nbformat

    played = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    play(played)
    found, kept = json.loads(nbformat.writes(played)), body(name)
    assert not [output for output in outputs(found) if output.get("name") == "stderr"]
    kinds = [[sorted(output.get("data", {})) for output in outputs(one)] for one in (found, kept)]
    # The page of a figure shows the figure alone.
    assert [["image/png"] if "image/png" in kind else kind for kind in kinds[0]] == kinds[1]
    if name in MADE_OF_ROWS:
        assert tables(found) == tables(kept)


def test_other_cells_or_rows_have_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook_outputs, "RESULTS", tmp_path)
    (tmp_path / "rl_runs.csv").write_text("a\n1\n")
    bare = json.loads(notebook(CELLS))
    first = digest("rl", bare)
    shown = json.loads(notebook(CELLS))
    shown["cells"][1] |= {"execution_count": 1, "outputs": [{"output_type": "stream", "name": "stdout", "text": "1"}]}
    assert digest("rl", shown) == first
    assert without_outputs(shown) == notebook(CELLS)
    assert digest("rl", json.loads(notebook((*CELLS[:1], ("code", "print(2)"))))) != first
    (tmp_path / "other.csv").write_text("b\n")
    assert digest("rl", bare) == first
    (tmp_path / "rl_runs.csv").write_text("a\n2\n")
    assert digest("rl", bare) != first


def test_executing_keeps_outputs_and_writing_anew_drops_those_of_other_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "small.ipynb"
    write_notebook(path, CELLS)
    assert "run python -m stau_rl.pages.notebook_outputs small" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == notebook(CELLS)
    with pytest.raises(ValueError, match=r"the outputs in small.ipynb are of other cells or rows; run python"):
        notebook_pages.write_page(path, tmp_path)
    monkeypatch.setattr(notebook_outputs, "NOTEBOOKS", tmp_path)
    notebook_outputs.main(["small"])
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert outputs(kept) == [
        {"name": "stdout", "output_type": "stream", "text": ["1\n"]},
        {"data": {"text/plain": ["2"]}, "execution_count": 1, "metadata": {}, "output_type": "execute_result"},
    ]
    before = path.read_bytes()
    write_notebook(path, CELLS)
    assert path.read_bytes() == before
    page = notebook_pages.write_page(path, tmp_path).read_text(encoding="utf-8")
    assert page == "# Title\n\n```python\nprint(1)\n2\n```\n\n```text\n1\n```\n\n```text\n2\n```\n"
    write_notebook(path, CELLS[:1])
    assert path.read_text(encoding="utf-8") == notebook(CELLS[:1])
    with pytest.raises(SystemExit):
        notebook_outputs.main(["smal"])
    assert "NAME must be one of small, got 'smal'" in capsys.readouterr().err


def test_pages_of_the_site_have_the_figures_and_tables(tmp_path: Path) -> None:
    page = notebook_pages.write_page(NOTEBOOKS / "regret_curves.ipynb", tmp_path).read_text(encoding="utf-8")
    (figure,) = tmp_path.glob("*.png")
    assert f"]({figure.name})" in page
    assert "<caption" in page
    assert "](../guide/regret.md)" in page
    assert "<style" not in page
