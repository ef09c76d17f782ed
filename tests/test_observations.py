"""Files of observations as people have them, labels as they are written, and tables held in memory."""

import itertools
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from stau_rl.envs.arms import Arms, EmpiricalArms, TableArms, parse_arms
from stau_rl.envs.arms.labels import in_order
from stau_rl.regret.run import run_regret
from stau_rl.spec.grammar import SpecError
from stau_rl.study.play import run_study

ROOT = Path(__file__).resolve().parents[1]


def _file(folder: Path, content: str | bytes, name: str = "a.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def _read(folder: Path, content: str | bytes, name: str = "a.csv") -> EmpiricalArms:
    return EmpiricalArms(_file(folder, content, name), "arm", "reward")


LABELS = {
    "above 2^53": ("9007199254740993", "9007199254740992", "9007199254740991"),
    "above 2^64": ("18446744073709551617", "18446744073709551616", "7"),
    "leading zeros": ("1", "01", "001", "2"),
    "signs": ("+1", "1", "-1", "-01"),
    "decimals": ("0.5", "10.0", "2", "2.0", "1e1"),
    "texts": ("b", "a", "10", "9"),
    "not numbers": ("1", "2", "nan"),
    "others' digits": ("1", "\u0662", "10"),
}
ORDERS = {
    "above 2^53": ("9007199254740991", "9007199254740992", "9007199254740993"),
    "above 2^64": ("7", "18446744073709551616", "18446744073709551617"),
    "leading zeros": ("001", "01", "1", "2"),
    "signs": ("-01", "-1", "+1", "1"),
    "decimals": ("0.5", "2", "2.0", "10.0", "1e1"),
    "texts": ("10", "9", "a", "b"),
    "not numbers": ("1", "2", "nan"),
    "others' digits": ("1", "10", "\u0662"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_have_one_order_whatever_the_order_of_the_rows(kind: str, tmp_path: Path) -> None:
    rows = [(label, float(index)) for index, label in enumerate(LABELS[kind])]
    digests = set()
    for number, some in enumerate(itertools.permutations(rows)):
        text = "arm,reward\n" + "".join(f"{label},{reward}\n" for label, reward in some)
        arms = _read(tmp_path, text, f"{number}.csv")
        assert arms.labels == ORDERS[kind]
        assert arms.fixed_means.tolist() == [dict(rows)[label] for label in ORDERS[kind]]
        digests.add(arms.digest)
    pd.DataFrame(rows, columns=["arm", "reward"]).to_parquet(tmp_path / "a.parquet")
    digests.add(EmpiricalArms(str(tmp_path / "a.parquet"), "arm", "reward").digest)
    assert len(digests) == 1


def test_whole_numbers_in_parquet_are_their_text(tmp_path: Path) -> None:
    ids = np.array([2**64 - 1, 2**63, 2**53 + 1, 2**53], dtype=np.uint64)
    pd.DataFrame({"arm": ids, "reward": [0.0, 1.0, 2.0, 3.0]}).to_parquet(tmp_path / "a.parquet")
    arms = EmpiricalArms(str(tmp_path / "a.parquet"), "arm", "reward")
    assert arms.labels == tuple(map(str, sorted(ids.tolist())))
    assert arms.fixed_means.tolist() == [3.0, 2.0, 1.0, 0.0]


def test_digests_of_files_in_use_stay() -> None:
    # Committed rows and run directories carry it.
    arms = EmpiricalArms(str(ROOT / "notebooks/results/insect_sprays.csv"), "spray", "count")
    assert arms.digest == "473b2abd6e18edbb1c4944b2201b660c9630e5ed22ab353274d805cc6dd413e4"


def test_items_by_number_keep_their_digest(tmp_path: Path) -> None:
    # The digest of labels "2", "10", values 1, 2, 3 and offsets 0, 1, 3, computed by hand with hashlib.
    arms = _read(tmp_path, "arm,reward\n10,2\n2,1\n10,3\n")
    assert arms.digest == "c07052c0ced3fef9856be50c1a86a2127843a77903be6e489e4e1e992196d048"


def test_text_order_is_that_of_code_points() -> None:
    assert [("b", "B", "a", "é")[index] for index in in_order(("b", "B", "a", "é"))] == ["B", "a", "b", "é"]


def test_blanks_around_labels_and_names_are_no_part_of_them(tmp_path: Path) -> None:
    plain = _read(tmp_path, "arm,reward\na,1\nb,0\na,3\n", "plain.csv")
    assert _read(tmp_path, "arm, reward\n a ,1\nb, 0\na,3\n") == plain
    pd.DataFrame({"arm": ["a ", "b", "a"], "reward": [1, 0, 3]}).to_parquet(tmp_path / "a.parquet")
    assert EmpiricalArms(str(tmp_path / "a.parquet"), "arm", "reward") == plain
    assert TableArms.of({" a ": [1, 3], "b": [0]}) == plain


PLAIN = "arm,reward\na,1.5\nb,0\na,3\n"


@pytest.mark.parametrize(
    "content",
    [
        "arm;reward\na;1.5\nb;0\na;3\n",
        "arm\treward\na\t1.5\nb\t0\na\t3\n",
        "name, or both;arm;reward\nx,y;a;1.5\nx;b;0\nx;a;3\n",
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        '"arm","reward"\n"a","1.5"\n"b",0\n"a","3"\n',
    ],
    ids=["semicolons", "tabs", "commas in fields", "byte order mark", "CRLF", "quotes"],
)
def test_files_as_spreadsheets_write_them(content: str, tmp_path: Path) -> None:
    assert _read(tmp_path, content) == _read(tmp_path, PLAIN, "plain.csv")


def test_quoted_fields_may_hold_the_separator(tmp_path: Path) -> None:
    assert _read(tmp_path, 'arm,reward\n"x, y",1\n"x; y",2\n').labels == ("x, y", "x; y")


def test_true_and_false_are_1_and_0(tmp_path: Path) -> None:
    arms = _read(tmp_path, "arm,reward\na,True\na,FALSE\nb,true\nb,1\nb,false\n")
    assert arms.values.tolist() == [0.0, 1.0, 0.0, 1.0, 1.0]
    assert arms.binary
    rewards = [True, False, True, True, False]
    for name, column in (("flags", rewards), ("texts", [str(reward) for reward in rewards])):
        pd.DataFrame({"arm": list("aabbb"), "reward": column}).to_parquet(tmp_path / f"{name}.parquet")
        assert EmpiricalArms(str(tmp_path / f"{name}.parquet"), "arm", "reward") == arms


@pytest.mark.parametrize("index", ["arm", "reward", ["arm", "reward"], ["other", "arm"]])
def test_the_index_of_a_parquet_file_has_columns_too(index: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"arm": ["b", "a", "b"], "reward": [1.0, 2.0, 3.0], "other": 0})
    frame.set_index(index).to_parquet(tmp_path / "a.parquet")
    arms = EmpiricalArms(str(tmp_path / "a.parquet"), "arm", "reward")
    assert arms == TableArms.of({"a": [2.0], "b": [1.0, 3.0]})


def test_an_index_of_consecutive_numbers_is_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"arm": ["b", "a", "b"]}, index=pd.RangeIndex(5, 8, name="reward"))
    frame.to_parquet(tmp_path / "a.parquet")
    arms = EmpiricalArms(str(tmp_path / "a.parquet"), "arm", "reward")
    assert arms == TableArms.of({"a": [6.0], "b": [5.0, 7.0]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<!DOCTYPE html>\n<html></html>\n", "is an HTML page, not a table"),
        ("\n <html><table></table></html>\n", "is an HTML page, not a table"),
        (b"PK\x03\x04rest", "is a workbook or another zip archive; save it as CSV"),
        (b"PAR1rest", "is a Parquet file; give it the ending .parquet"),
        ("arm;reward\na;1,5\n", r"row 1 of column 'reward' .* got '1,5'; write decimals with a point, not a comma"),
        ("arm;value\na;1\n", "has no column 'reward'; it has 'arm', 'value'"),
        ("arm,reward\nä,1\n".encode("latin-1"), "it is not in UTF-8"),
        ("arm,reward\n a\x00b,1\n", "holds a character of value 0"),
    ],
)
def test_files_that_are_no_such_table_are_named(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        _read(tmp_path, content)


ROWS = {"a": [0.0, 1.0, 4.0], "10": [2.0], "c d": [-1.5, 3.0]}


def test_a_table_in_memory_is_arms_like_others(tmp_path: Path) -> None:
    arms = TableArms.of(ROWS)
    assert isinstance(arms, Arms)
    text = "table(observations=[[0, 1, 4], [2], [-1.5, 3]], names=[a, '10', 'c d'])"
    assert str(arms) == text
    assert parse_arms(text) == arms
    assert parse_arms("table(observations=[[0, 1], [1]])").labels == ("0", "1")
    # The noise is that of the rows around their arm's mean: 25/9, 4/9, 49/9; 0; 81/16, 81/16.
    assert arms.noise == pytest.approx(np.sqrt((78 / 9 + 162 / 16) / 6), rel=1e-15)
    assert TableArms.of({"a": [0, 1], "b": [1]}).binary
    frame = pd.DataFrame([(name, value) for name, values in ROWS.items() for value in values])
    frame.to_csv(tmp_path / "a.csv", index=False, header=["arm", "reward"])
    # A file's arms are in their own order: 10, a, c d.
    ordered = TableArms.of({name: ROWS[name] for name in ("10", "a", "c d")})
    assert EmpiricalArms(str(tmp_path / "a.csv"), "arm", "reward") == ordered


def test_a_table_in_memory_plays_as_the_file_does(tmp_path: Path) -> None:
    rows = {name: ROWS[name] for name in ("10", "a", "c d")}
    text = "arm,reward\n" + "".join(f"{name},{value}\n" for name, values in rows.items() for value in values)
    results = [
        run_regret(arms, ["thompson", "ucb | softmax(beta=2)"], 30, 20, engine="torch")
        for arms in (TableArms.of(rows), str(TableArms.of(rows)), _read(tmp_path, text))
    ]
    for result in results[1:]:
        assert_array_equal(result.regret, results[0].regret)
        assert result.spec["arms_sha256"] == results[0].spec["arms_sha256"]
    assert results[0].lai_robbins == results[2].lai_robbins is not None


def test_a_table_in_memory_can_be_studied(tmp_path: Path) -> None:
    families = ["ucb | softmax(beta=1)", "ucb | s_tau(tau=2)"]
    arms = [str(TableArms.of({"a": [0, 1], "b": [1, 1, 0]}))]
    result = run_study(families, arms, 20, 50, out=tmp_path / "s", sweeps=(), engine="torch")
    assert set(result.table()["arms"]) == set(arms)


def test_a_table_in_memory_is_an_environment() -> None:
    made = [gym.make("stau_rl/EmpiricalBandit-v0", observations=one, horizon=5) for one in (ROWS, TableArms.of(ROWS))]
    for env in made:
        env.reset(seed=3)
    rewards = [[env.step(arm)[1] for arm in (0, 1, 2, 0, 2)] for env in made]
    assert rewards[0] == rewards[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table", "table: observations must be of 1 to 1024 arms, got 0"),
        ("table(observations=[[1], []])", "observations of arm '1' must be a list of finite numbers"),
        ("table(observations=[[1, inf]])", "observations of arm '0' must be a list of finite numbers"),
        ("table(observations=[1, 2])", "table: observations must be a list of lists of numbers"),
        ("table(observations=[[1], [2]], names=[a])", "table: names must be 2, one for each arm, got 1"),
        ("table(observations=[[1], [2]], names=[a, 'a '])", "table: two arms are called 'a'"),
    ],
)
def test_bad_tables_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_arms(text)


def test_a_table_too_long_for_a_text_is_its_digest() -> None:
    arms = TableArms.of({"a": np.arange(10_000.0), "b": [1.0]})
    text = f"table(sha256='{arms.digest}')"
    assert str(arms) == text
    with pytest.raises(SpecError, match=r"too many for a text; write them to a file and use empirical\(file="):
        parse_arms(text)
    result = run_regret(arms, ["random"], 5, 3, engine="torch")
    assert result.spec["arms"] == text


def test_a_long_text_is_cut_in_titles() -> None:
    result = run_regret(TableArms.of({"a": range(200), "b": [1.0]}), ["random"], 5, 3, engine="torch")
    assert len(result.spec["arms"]) > 600
    assert len(result.arms_shown) == 203
    assert len(repr(result)) < 350


def test_labels_in_bytes_are_texts_in_utf8(tmp_path: Path) -> None:
    table = pd.DataFrame({"arm": ["é".encode(), b"b", "é".encode()], "reward": [1.0, 2.0, 3.0]})
    table.to_parquet(tmp_path / "a.parquet")
    assert EmpiricalArms(str(tmp_path / "a.parquet"), "arm", "reward").labels == ("b", "é")
    table.assign(arm=[b"a", b"\xff", b"a"]).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"row 2 of column 'arm' in '.*a\.parquet' must name the arm in UTF-8, got b'"):
        EmpiricalArms(str(tmp_path / "a.parquet"), "arm", "reward")
