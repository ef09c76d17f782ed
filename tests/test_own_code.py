"""Policies and arms of a user's own: their code decides which run a folder holds, their names are their own."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import stau_rl
from stau_rl.agents.bandit import Pipe, Policy, Score, Thompson
from stau_rl.envs.arms import BernoulliArms
from stau_rl.heads import Softmax
from stau_rl.plugin.source import own_code

POLICY = """
from dataclasses import dataclass
from typing import ClassVar
from stau_rl.agents.bandit import Policy

@dataclass(frozen=True, slots=True)
class Stubborn(Policy):
    name: ClassVar[str] = "stubborn"
    formula: ClassVar[str] = "one arm for ever"

    def choose(self, state, draws):
        return state.counts[0] * 0 + ARM
"""


def _load(file: Path, arm: int) -> Any:
    file.write_text(POLICY.replace("ARM", str(arm)), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module.Stubborn()


def _run(policy: Policy, out: Path | None = None, **changes: Any) -> stau_rl.RegretResult:
    given: dict[str, Any] = {"arms": "bernoulli(means=[0.9, 0.2])", "horizon": 10, "instances": 4, "engine": "torch"}
    return stau_rl.run_regret(policies=[policy], out=out, **(given | changes))


def test_a_policy_that_was_edited_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "stubborn_policy.py"
    try:
        first = _run(_load(file, 0), tmp_path / "run")
        assert first.regret[0, -1].tolist() == [0.0] * 4
        assert list(first.spec["own_code"]) == ["Stubborn"]
        # The same code goes on; other code is refused, and nothing is written over.
        assert _run(_load(file, 0), tmp_path / "run", resume=True).regret[0, -1].tolist() == [0.0] * 4
        with pytest.raises(ValueError, match=r"own_code\.Stubborn"):
            _run(_load(file, 1), tmp_path / "run", resume=True)
        assert _run(_load(file, 1)).regret[0, -1].tolist() == pytest.approx([7.0] * 4)
    finally:
        sys.modules.pop(file.stem, None)


def test_code_of_ones_own_is_that_of_bases_too_and_of_no_built_in() -> None:
    @dataclass(frozen=True, slots=True)
    class Mine(BernoulliArms):
        name: ClassVar[str] = "mine"

    class More(Mine):
        pass

    assert own_code(BernoulliArms(k=2), Thompson(), Softmax()) == {}
    names = [name.rpartition(".")[2] for name in own_code(More(k=2))]
    assert names == ["More", "Mine"]


def test_classes_without_a_file_count_with_their_code() -> None:
    hashes = []
    for arm in (0, 1, 1):
        space: dict[str, Any] = {"__name__": "typed"}
        exec(POLICY.replace("ARM", str(arm)), space)
        hashes.append(own_code(space["Stubborn"]())["Stubborn"])
    assert hashes[0] != hashes[1] == hashes[2]


@dataclass(frozen=True, slots=True)
class MyThompson(Thompson):
    """Inherits the name, with which a compiled engine would play the built-in."""


@dataclass(frozen=True, slots=True)
class MyScore(Score):
    name: ClassVar[str] = "ucb"


@dataclass(frozen=True, slots=True)
class MyHead(Softmax):
    pass


@dataclass(frozen=True, slots=True)
class MyArms(BernoulliArms):
    pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": MyThompson()}, "policy MyThompson of .* is called 'thompson', as the built-in Thompson is"),
        ({"policy": Pipe(MyScore(), Softmax())}, "score MyScore of .* is called 'ucb', as the built-in Ucb is"),
        ({"policy": Pipe(stau_rl.parse_policy("mean | softmax").score, MyHead())}, "head MyHead .* 'softmax'"),
        ({"arms": MyArms(k=2)}, "arms MyArms of .* is called 'bernoulli'"),
    ],
)
def test_the_name_of_a_built_in_is_refused(changes: dict[str, Any], message: str) -> None:
    changes = {"policy": stau_rl.parse_policy("random"), **changes}
    with pytest.raises(ValueError, match=message):
        _run(changes.pop("policy"), **changes)
