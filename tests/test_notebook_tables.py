"""What results show in a notebook: the tables that a console prints, as HTML and Markdown."""

import io
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from rich.console import Console, Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

import stau_rl
from stau_rl import RLStudyResult, TrainResult
from stau_rl.pages.paths import RESULTS
from stau_rl.regret.report import render
from stau_rl.rl_study.table import printed
from stau_rl.terminal import notebook
from stau_rl.terminal.notebook import ShownAsTables, html, markdown


def tables(text: str) -> list[list[list[str]]]:
    """Tables of a result's HTML, header first; it must be well-formed."""
    rows = [table.iter("tr") for table in ElementTree.fromstring(text).iter("table")]
    return [[["\n".join(cell.itertext()) for cell in row] for row in table] for table in rows]


def small(*cells: object) -> Table:
    table = Table("name", title="a < b")
    table.add_column("two\nwords", justify="right")
    table.add_row(*cells)
    return table


def test_html_escapes_and_keeps_captions_lines_and_sides() -> None:
    text = html(Group(small(Text("<script>[tau]"), "[bold]1[/bold] [0, 2]\nx"), Text("p < 1\n\nq & r")))
    assert tables(text) == [[["name", "two\nwords"], ["<script>[tau]", "1 [0, 2]\nx"]]]
    root = ElementTree.fromstring(text)
    assert "".join(root.find(".//caption").itertext()) == "a < b"
    assert [cell.get("style") for cell in root.iter("td")] == ["text-align: left", "text-align: right"]
    assert "<p>p &lt; 1<br/>\nq &amp; r</p>" in text
    assert "<script>" not in text


def test_markdown_escapes_what_markdown_would_read() -> None:
    text = markdown(Group(small(Text("ucb1 | s_tau(tau=[x])"), "1\n2"), Text("a * b")))
    assert text.split("\n\n") == [
        "**a \\< b**",
        "| name | two<br/>words |\n| --- | ---: |\n| ucb1 \\| s\\_tau(tau=\\[x\\]) | 1<br/>2 |",
        "a \\* b",
    ]


def test_long_tables_are_cut_and_say_so_and_long_texts_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "ROWS", 2)
    table = Table("n")
    for number in range(5):
        table.add_row(str(number))
    assert tables(html(table)) == [[["n"], ["0"], ["1"]]]
    assert "<p>3 more rows.</p>" in html(table)
    assert markdown(table).endswith("| 1 |\n\n3 more rows.")
    lines = "\n".join("abcdefg")
    assert "<details>" in html(Text(lines))
    assert "<details>" not in html(Text(lines[:-2]))


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match="made of rich's Table, Text, str and Group, got Rule"):
        html(Group(Rule()))


def test_regret_shows_the_first_table_that_is_printed() -> None:
    heads = ["centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)", "random"]
    result = stau_rl.run_regret("bernoulli(k=3)", heads, horizon=50, instances=8, engine="torch", device="cpu")
    header, *rows = tables(result._repr_html_())[0]
    assert header == ["policy", "regret", "raw: % vs baseline", "matched: % vs softmax", "p (Holm)"]
    assert [row[0] for row in rows] == heads
    console = Console(file=io.StringIO(), width=200)
    console.print(render(result))
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    for row in rows:
        assert " ".join(cell for cell in row if cell) in lines
    last = result.summary().query("step == 50").set_index("policy").loc["random"]
    assert rows[2][1] == f"{last.regret:.4g} [{last.regret_low:.4g}, {last.regret_high:.4g}]"
    assert "Pseudo-regret after 50 steps on bernoulli(k=3), 8 instances, seed 0" in result._repr_html_()
    assert "arm-steps/s" not in result._repr_html_()
    assert repr(result).startswith("RegretResult(3 policies on bernoulli(k=3)")
    # A spec need not name its baseline.
    del result.spec["baseline"]
    assert tables(result._repr_html_())[0][1][2] == "baseline"


def test_a_training_shows_its_seeds_and_their_mean() -> None:
    settings = {"env": "CartPole-v1", "head": "softmax", "learn": [], "steps": 64, "episodes": 5}
    runs = [{"agent": "a2c", "seed": n, "sampled": 10.0 * n, "deterministic": 7.0, "curve": []} for n in range(3)]
    for run in runs:
        run["curve"] = [{"step": 64, "train_episodes": 1, "train_return": 1.0, "sampled_return": 1.0}]
    result = TrainResult({"agent": "a2c", "settings": settings, "seeds": [0, 1, 2]}, runs)
    # Student's quantile t_2(.975) = 4.302653, s = 10: 10 -/+ 4.302653 * 10 / sqrt(3).
    assert tables(result._repr_html_()) == [
        [
            ["seed", "sampled", "deterministic"],
            ["mean [95 %]", "10.0 [-14.8, 34.8]", "7.0 [7.0, 7.0]"],
            ["0", "0.0", "7.0"],
            ["1", "10.0", "7.0"],
            ["2", "20.0", "7.0"],
        ]
    ]
    title = "Mean return of 5 episodes after training, a2c on CartPole-v1, softmax"
    assert f"{title}; 3 seeds of 64 steps" in result._repr_html_()
    assert str(result).startswith(f"{title}:\n seed")
    assert tables(TrainResult(result.spec, runs[:1])._repr_html_())[0][1] == ["mean [95 %]", "0.0", "7.0"]
    assert tables(TrainResult(result.spec, [runs[0] | {"sampled": np.inf}])._repr_html_())[0][1][1] == "-"


def test_a_study_of_agents_shows_what_is_printed() -> None:
    result = RLStudyResult.load(RESULTS)
    lines = [line.split() for line in printed(result).splitlines()]
    (shown,) = tables(result._repr_html_())
    assert len(shown) == 1 + len(result.tasks) * len(result.families)
    assert [[word for cell in row for word in cell.split()] for row in shown[1:]] == lines[1 : len(shown)]
    assert repr(result) == "RLStudyResult(5 tasks, 4 families, 10 seeds)"


@pytest.mark.parametrize("name", [name for name in stau_rl.__all__ if name.endswith("Result")])
def test_every_result_shows_itself(name: str) -> None:
    assert issubclass(getattr(stau_rl, name), ShownAsTables)
