"""Tasks of your own: registered, looked at item by item, trained on; a task that is wrong is refused by name."""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from doc_blocks import example_task
from stau_rl.cli.main import main
from stau_rl.envs.tasks import TASKS, parse_task
from stau_rl.envs.tasks.check import check_task
from stau_rl.files.finished import read_table
from stau_rl.plugin import plugin_task
from stau_rl.plugin.load import load_plugin
from stau_rl.plugin.plugin_task import Batch, Task, forget_task, one_query, own_source, ranges, task
from stau_rl.probe.choose import choose
from stau_rl.probe.folder import TABLE
from stau_rl.probe.plan import PART, plan

GOOD = example_task()
NAME = "first_wins"


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = set(TASKS)
    yield
    for name in set(TASKS) - before:
        forget_task(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_task.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list(TASKS))
def test_the_tasks_of_the_package_pass_the_look(name: str) -> None:
    check_task(TASKS[name]())


def test_the_example_is_short_and_does_what_it_says(file: Path) -> None:
    """Every item: one key stands twice, and the answer is what followed it first."""
    assert len([line for line in GOOD.splitlines() if line.strip()]) <= 25
    assert load_plugin(file) == [NAME]
    assert load_plugin(file) == [NAME]
    found = parse_task(f"{NAME}(pairs=3)")
    assert (found.length, found.vocabulary, str(found)) == (9, 32, f"{NAME}(pairs=3)")
    batch = found.items(5, torch.arange(20))
    for tokens, slot, target in zip(batch.tokens.tolist(), batch.slot.tolist(), batch.target.tolist(), strict=True):
        *pairs, asked = tokens
        keys = pairs[::2]
        assert keys.count(asked) == 2
        assert sorted(map(keys.count, set(keys))) == [1, 1, 2]
        assert (slot[0], target[0]) == (2 * keys.index(asked) + 1, pairs[2 * keys.index(asked) + 1])


def test_the_command_trains_on_it_and_its_code_is_part_of_the_identity(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    asked = ["probe", "--plugin", str(file), "--task", f"{NAME}(pairs=2)", "--normaliser", "softmax", "--device", "cpu"]
    options = ["--seeds", "2", "--steps", "2", "--batch", "4", "--items", "8", "--width", "8", "--heads", "2"]
    main([*asked, *options, "--layers", "2", "--learning-rate", "1e-3", "--processes", "1", "--out", str(out)])
    assert f"{NAME}(pairs=2)" in capsys.readouterr().out
    rows = read_table(out / TABLE, ["part", "task"])
    assert rows["part"].tolist() == [PART] * 2
    shape = ["steps", "batch", "rate", "width", "layers", "heads", "items", "length"]
    assert rows[shape].to_numpy().tolist() == [[2, 4, 1e-3, 8, 2, 2, 8, 7]] * 2
    (setting,) = choose("small", f"{NAME}(pairs=2)", "softmax")
    (recall,) = [one for one in plan("small", 3) if one.task == "recall"]
    assert (setting.recipe, setting.shape, setting.items) == (recall.recipe, recall.shape, recall.items)
    before = setting.identity("cpu")
    forget_task(NAME)
    file.write_text(f"{GOOD}\n# Changed.\n", encoding="utf-8")
    load_plugin(file)
    assert setting.identity("cpu") != before


def test_the_default_identity_knows_nothing_of_tasks_of_ones_own() -> None:
    """So that rows of the package's tasks keep their names."""
    assert own_source(TASKS["recall"]) is None
    (setting,) = choose("small", "recall", "softmax", 1)
    assert setting.identity("cpu") == "da14f0a0bc35b70b"


class Base(Task):
    """Four values and a mark; the first value is the answer."""

    @property
    def length(self) -> int:
        return 5

    @property
    def kinds(self) -> dict[str, range]:
        return ranges(keys=1, values=8)

    def batch(self, draws: plugin_task.Draws) -> Batch:
        values = 1 + draws.below(0, 4, 8)
        slot = torch.zeros_like(values[..., :1])
        return one_query(torch.cat([values, slot], -1), slot)


def changed(**parts: object) -> type[Task]:
    """A task whose batch has other parts, or functions of the batch and the draws."""

    def items(self: Base, draws: plugin_task.Draws) -> Batch:
        good = self.batch(draws)
        new = {name: part(good, draws) if callable(part) else part for name, part in parts.items()}
        return good._replace(**new)

    return type("Changed", (Base,), {"_items": items})


def other_items(batch: Batch, draws: plugin_task.Draws) -> torch.Tensor:
    return batch.tokens.clone().index_fill(-1, torch.tensor([1]), 1 + batch.tokens.shape[0] % 8)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (changed(tokens=3), "tokens of 32 items must be torch.int64 [32, 5], got int"),
        (changed(loudness=lambda b, d: b.loudness.double()), "loudness of 32 items must be torch.float32 [32, 5]"),
        (
            changed(slot=lambda b, d: b.slot[..., 0]),
            "slot of 32 items must be torch.int64 [32, 1], got torch.int64 [32]",
        ),
        (changed(tokens=lambda b, d: b.tokens + 9), "tokens must lie in [0, 9), got"),
        (changed(target=lambda b, d: b.target - 10), "target must lie in [0, 9), got -"),
        (changed(slot=lambda b, d: b.slot + 5), "slot must lie in [-1, 5), got 5"),
        (changed(slot=lambda b, d: b.slot + 4), "slot 4 is padding, or not before its query 4"),
        (changed(present=lambda b, d: b.present & False), "slot 0 is padding, or not before its query 4"),
        (changed(target=lambda b, d: 1 + b.target % 8), "slot 0 must hold the answer"),
        (changed(loudness=lambda b, d: 0 * b.loudness), "loudness must be finite and > 0"),
        (changed(tokens=other_items), "depends on which other items are made with it"),
        (
            changed(tokens=lambda b, d: 0 * b.tokens + 1, target=lambda b, d: 0 * b.target + 1),
            "all items have the same",
        ),
        (changed(tokens=lambda b, d: 1 / 0), "items of shape [32] fail (ZeroDivisionError: division by zero)"),
        (type("T", (Base,), {"_items": lambda self, draws: None}), "items must be a Batch, got NoneType"),
        (type("T", (Base,), {"_items": Base.batch, "kinds": {"keys": range(2)}}), "with keys and values"),
        (
            type("T", (Base,), {"_items": Base.batch, "kinds": {"keys": range(2), "values": range(1, 9)}}),
            "must be ranges that do not overlap",
        ),
        (type("T", (Base,), {"_items": Base.batch, "length": 1}), "length must be a whole number, at least 2, got 1"),
        (type("T", (Task,), {"_items": Base.batch}), "kinds, length or queries fail (NotImplementedError"),
        (Base, "the class needs a method _items(self, draws)"),
        (int, "decorate a class derived from stau_rl.plugin.Task"),
        (type("T", (Base,), {"_items": Base.batch, "__annotations__": {"size": int}}), "every field needs a default"),
    ],
)
def test_a_task_that_is_wrong_is_refused_by_name(made: type, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        task("wrong")(made)
    assert str(caught.value).startswith("task 'wrong': ")
    assert "wrong" not in TASKS


def test_fields_out_of_range_are_found_before_anything_is_trained(file: Path) -> None:
    load_plugin(file)
    with pytest.raises(ValueError, match=f"task '{NAME}': items of shape"):
        choose("small", f"{NAME}(pairs=99)", "softmax")


def test_a_name_is_taken_once_and_a_file_that_fails_leaves_nothing(file: Path, tmp_path: Path) -> None:
    load_plugin(file)
    other = tmp_path / "other.py"
    other.write_text(GOOD, encoding="utf-8")
    with pytest.raises(ValueError, match=f"task '{NAME}' is already registered from .*my_task.py; take another name"):
        load_plugin(other)
    assert NAME in TASKS
    other.write_text(GOOD.replace(NAME, "second") + "\nraise RuntimeError('late')\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"other.py: line \d+: RuntimeError: late"):
        load_plugin(other)
    assert "second" not in TASKS
    with pytest.raises(ValueError, match="no plug-in task is called 'recall'"):
        forget_task("recall")


def test_examples_in_docstrings() -> None:
    results = doctest.testmod(plugin_task)
    assert (results.attempted > 0, results.failed) == (True, 0)
