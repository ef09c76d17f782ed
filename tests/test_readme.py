"""README.md: its tables are those of the registries, and what it prints is what comes out."""

import doctest
import re

import pytest

from stau_rl.pages import readme


def test_tables_are_up_to_date() -> None:
    text = readme.README.read_text(encoding="utf-8")
    assert readme.rewrite(text) == text, "run python -m stau_rl.pages.readme"


def test_a_missing_marker_is_named() -> None:
    with pytest.raises(ValueError, match="table: heads"):
        readme.rewrite("no markers here")


def test_transcripts() -> None:
    text = readme.README.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(>>> .*?)```", text, flags=re.S)
    assert len(blocks) >= 2
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    parser = doctest.DocTestParser()
    for number, block in enumerate(blocks):
        runner.run(parser.get_doctest(block, {}, f"README block {number}", "README.md", 0))
    assert runner.failures == 0
