"""README.md and docs/: tables follow the registries, every block of code runs, every name and link is there."""

import doctest
import re
import shlex
import tomllib
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import stau_rl
from doc_blocks import PAGES, ROOT, blocks
from stau_rl.agents.policy_gradient import AGENTS
from stau_rl.cli.main import commands
from stau_rl.cli.plain import read_command
from stau_rl.envs.tasks import TASKS
from stau_rl.pages import site, tables
from stau_rl.pages.markdown import code
from stau_rl.pages.site import link_faults
from stau_rl.plugin.load import load_plugin
from stau_rl.plugin.plugin_head import forget
from stau_rl.plugin.plugin_task import forget_task

each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
# Blocks that need a library which no extra brings; docs/integrations.md says how each was run.
NOT_RUN = {"skrl", "tianshou", "rllib"}
# First words of shell lines that are no command of ours.
OTHERS = {".", "bash", "pip", "python3", "pytest", "ruff", "mypy"}


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return tables.tables()


@each_page
def test_tables_are_up_to_date(path: Path, made: dict[str, str]) -> None:
    text = path.read_text(encoding="utf-8")
    assert tables.rewrite(text, made, path.name) == text, "run python -m stau_rl.pages.tables"


def test_every_table_is_shown(made: dict[str, str]) -> None:
    shown = {name for path in PAGES for name in re.findall(r"<!-- table: (.*?) -->", path.read_text(encoding="utf-8"))}
    assert shown == set(made)


def test_a_table_that_is_not_there_or_does_not_end_is_named() -> None:
    with pytest.raises(ValueError, match=r"x\.md: there is no table 'nothing'; there are heads"):
        tables.rewrite("<!-- table: nothing -->\n<!-- end -->", {"heads": ""}, "x.md")
    with pytest.raises(ValueError, match=r"x\.md: a table begins without an end"):
        tables.rewrite("<!-- table: heads -->\n", {"heads": ""}, "x.md")


def test_a_bar_in_code_stays_a_bar() -> None:
    assert code("mean | argmax") == "<code>mean &#124; argmax</code>"
    assert code("argmax") == "`argmax`"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


@each_page
def test_transcripts(path: Path) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for number, (_, text) in enumerate(blocks(path, "python")):
        if text.startswith(">>>"):
            runner.run(doctest.DocTestParser().get_doctest(text, {}, f"{path.name} {number}", str(path), 0))
    assert runner.failures == 0


@each_page
def test_blocks_of_code_run(path: Path, tmp_path: Path) -> None:
    """Examples inside other libraries run in test_integrations, where those are installed."""
    for name, text in blocks(path, "python"):
        program = compile(text, path.name, "exec") if not text.startswith(">>>") else None
        if name:
            assert name in NOT_RUN or f'example("{name}")' in (ROOT / "tests/test_integrations.py").read_text("utf-8")
        elif program is not None and "from stau_rl.plugin import" in text:
            (tmp_path / "plugin.py").write_text(text, encoding="utf-8")
            for head in load_plugin(tmp_path / "plugin.py"):
                if head in TASKS:
                    own = stau_rl.run_probe(head, "softmax", seeds=1, steps=2, items=8, device="cpu")
                    assert own.settings == [("probe", head)]
                    forget_task(head)
                    continue
                assert stau_rl.parse_head(head).weights(torch.zeros(4)).tolist() == [0.25] * 4
                forget(head)
        elif program is not None:
            exec(program, {})


@each_page
def test_shell_lines_parse(path: Path) -> None:
    for _, text in blocks(path, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                check_shell(shlex.split(part, comments=True))


def check_shell(words: list[str]) -> None:
    """Fail unless a command of ours parses, its module or file is there, or it is another program's."""
    if not words:
        return
    first = words[0].rpartition("/")[2]
    if first == "stau-rl":
        check_command(words[1:])
    elif first in ("python", "torchrun") and "-m" in words[1:]:
        module, *rest = words[words.index("-m") + 1 :]
        if module == "stau_rl":
            check_command(rest)
        else:
            assert find_spec(module) is not None, module
    elif first == "python":
        assert (ROOT / words[1]).is_file(), words[1]
    else:
        assert first in OTHERS, words
    for extras in re.findall(r"\.\[(.*?)\]", " ".join(words)):
        known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        assert set(extras.split(",")) <= set(known)


def check_command(words: list[str]) -> None:
    if len(words) < 2:
        assert set(words) <= {*commands(), "--help", "--version"}, words
    elif "--help" not in words:
        read_command(commands(), "stau-rl", "", words)


def test_a_wrong_shell_line_is_seen() -> None:
    for line in ("stau-rl regret --polcy ucb1", "python -m stau_rl.nothing", "pip install '.[nothing]'", "frobnicate"):
        with pytest.raises((AssertionError, ModuleNotFoundError, SystemExit)):
            check_shell(shlex.split(line))


@each_page
def test_names_in_prose_are_there(path: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    for text in (" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose)):
        if re.fullmatch(r"stau_rl/\w+-v\d", text):
            import gymnasium

            assert text in gymnasium.registry
        elif re.fullmatch(r"stau_rl(\.\w+)+", text):
            check_name(text)
        elif re.fullmatch(r"(\.ci|stau_rl|kernels|envs|agents|tests|docs|notebooks)/[\w/.]*", text):
            assert (ROOT / text).exists() or (ROOT / "stau_rl" / text).exists(), text
        elif re.match(r"(stau-rl|python -m stau_rl)[ .]", text) and "COMMAND" not in text:
            check_shell(shlex.split(text))


def check_name(name: str) -> None:
    """Fail unless a dotted name is a module, or something in one."""
    module, _, rest = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        assert hasattr(import_module(module), rest), name


@each_page
def test_links_lead_somewhere_on_disk(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#\s]+)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)):
        assert "://" not in link
        assert (path.parent / link).exists(), link


def test_the_version_is_one() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {stau_rl.__version__}\n" in text
    assert f"version = {{{stau_rl.__version__}}}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"## {stau_rl.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert [name for name in stau_rl._LAZY if f"::: stau_rl.{name}\n" not in page] == []


def test_settings_of_agents_have_their_defaults(made: dict[str, str]) -> None:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in made["agent settings"].splitlines()]
    assert cells[0] == ["setting", "reinforce", "a2c", "ppo", "what it is"]
    rows = {row[0].strip("`"): row[1:4] for row in cells[2:]}
    assert rows["rollout"] == ["-", "8", "128"]
    assert rows["hidden"] == ["64,64"] * 3
    assert rows["normalise"] == ["true", "false", "true"]
    # What --set refuses, because it is an option, is not in the table; all the rest is.
    settings = {field.name for agent in AGENTS.values() for field in fields(agent.Settings)}
    assert set(rows) == settings - {"env", "env_args", "head", "steps"}
    for agent, column in (("reinforce", 0), ("a2c", 1), ("ppo", 2)):
        texts = {name: row[column] for name, row in rows.items() if row[column] not in ("-", "nothing")}
        assert AGENTS[agent].Settings.from_texts(texts | {"head_rate": "0.1"}) == AGENTS[agent].Settings()


def test_a_site_without_its_extra_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site, "NEEDED", ("json", "no_such_module"))
    monkeypatch.setattr(site, "write_pages", lambda: pytest.fail("pages were written"))
    monkeypatch.setattr("sys.argv", ["site"])
    with pytest.raises(SystemExit) as stop:
        site.main()
    assert stop.value.code == 2
    assert "no_such_module missing; install the extra docs: pip install -e '.[docs]'" in capsys.readouterr().err


def test_dead_links_of_a_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "index.html").write_text('<h1 id="top">x</h1>', encoding="utf-8")
    (tmp_path / "index.html").write_text(
        '<a href="sub/#top">good</a><a href="sub/#bottom">no anchor</a><a href="gone/">no page</a>'
        '<a href="https://example.org">leads away</a><script src="https://example.org/x.js"></script>',
        encoding="utf-8",
    )
    assert link_faults(tmp_path) == [
        "index.html links to sub/#bottom, an anchor that is not there",
        "index.html links to gone/, which is not there",
        "index.html loads https://example.org/x.js from elsewhere",
    ]
