"""What the pages of results begin with, and their tables."""

import re

import pytest

from stau_rl.pages.markdown import WIDEST, table
from stau_rl.pages.paths import DOCS


@pytest.mark.parametrize("name", ["claim", "attention", "rl"])
def test_claims_come_first_then_a_figure_and_three_sentences(name):
    title, claims, figure, answer = (DOCS / f"{name}.md").read_text(encoding="utf-8").split("\n\n")[:4]
    assert title.startswith("# ")
    assert claims.startswith("| claim | published | measured here | verdict |")
    assert figure.startswith("![")
    assert (DOCS / figure.split("(")[1].rstrip(")")).is_file()
    assert [line[:2] for line in answer.splitlines()] == ["- "] * 3


@pytest.mark.parametrize("name", ["claim", "claim_tables", "attention", "attention_tables", "rl"])
def test_no_table_is_wider_than_a_page(name):
    """What is read of it; where a link leads is not."""
    text = re.sub(r"\]\([^)]*\)", "]", (DOCS / f"{name}.md").read_text(encoding="utf-8"))
    lines = text.splitlines()
    assert max(len(line) for line in lines if line.startswith("|")) <= WIDEST


def test_a_wide_table_is_split_and_its_keys_are_repeated():
    wide = "x" * 60
    text = table(("a", "b", "c", "d"), [("1", "2", wide, wide), ("3", "4", "y", "z")], keys=2)
    first, second = text.split("\n\n")
    assert first.splitlines() == ["| a | b | c |", "| --- | --- | --- |", f"| 1 | 2 | {wide} |", "| 3 | 4 | y |"]
    assert second.splitlines()[-1] == "| 3 | 4 | z |"
    assert table(("a", "b"), [("1", wide)]) == f"| a | b |\n| --- | --- |\n| 1 | {wide} |"
