"""Arms: their text, their checks, their priors, and tables of real observations with every way they can be wrong."""

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms import Arms, BernoulliArms, EmpiricalArms, GaussianArms, observations, parse_arms
from stau_rl.kernels.engines import ENGINES
from stau_rl.regret.arm_table import arm_table
from stau_rl.spec.grammar import SpecError


@pytest.mark.parametrize(
    ("text", "arms"),
    [
        ("bernoulli(means=[0.9, 0.8])", BernoulliArms(means=(0.9, 0.8))),
        ("bernoulli(means=(0, 1))", BernoulliArms(means=(0.0, 1.0))),
        (" bernoulli( k = 10 ) ", BernoulliArms(k=10)),
        ("gaussian(k=3, loc=4, scale=2, sigma=0)", GaussianArms(k=3, loc=4.0, scale=2.0, sigma=0.0)),
        ("gaussian(means=[-1e4, 1e4], sigma=0.5)", GaussianArms(means=(-1e4, 1e4), sigma=0.5)),
    ],
)
def test_text_parses_and_comes_back(text: str, arms: Any) -> None:
    assert parse_arms(text) == arms
    assert parse_arms(str(arms)) == arms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bernoulli(means=[0.5, 1.5])", r"bernoulli: means must lie in \[0, 1\], got 1.5 for arm 1"),
        ("bernoulli(means=[-0.1])", r"means must lie in \[0, 1\], got -0.1 for arm 0"),
        ("bernoulli(means=[nan, 0.5])", r"means must lie in \[0, 1\], got nan for arm 0"),
        ("bernoulli(k=0)", r"bernoulli: k must be in 1..1024, got 0"),
        ("bernoulli(k=-3)", r"bernoulli: k must be in 1..1024, got -3"),
        ("bernoulli(k=1025)", r"bernoulli: k must be in 1..1024, got 1025"),
        ("bernoulli(k=2.5)", r"bernoulli: k must be a whole number, got 2.5"),
        ("bernoulli(means=[])", r"bernoulli: the number of means must be in 1..1024, got 0"),
        ("bernoulli", r"bernoulli needs either k=NUMBER .* or means=\[...\], and not both"),
        ("bernoulli(k=2, means=[0.1, 0.2])", r"bernoulli needs either k=NUMBER .* and not both"),
        ("gaussian(sigma=1)", r"gaussian needs either k=NUMBER .* and not both"),
        ("gaussian(means=[0, inf])", r"gaussian: means must be at most 1e\+100 in size, got inf for arm 1"),
        ("gaussian(means=[nan])", r"gaussian: means must be at most 1e\+100 in size, got nan for arm 0"),
        ("gaussian(k=2, loc=nan)", r"gaussian: loc must be at most 1e\+100 in size, got nan"),
        ("gaussian(k=2, scale=-1)", r"gaussian: scale must lie in \[0, 1e\+100\], got -1.0"),
        ("gaussian(k=2, sigma=inf)", r"gaussian: sigma must lie in \[0, 1e\+100\], got inf"),
        ("gaussian(means=[0, 1], loc=3)", r"gaussian: loc and scale describe the prior .* do not go with means"),
        ("bernouli(k=2)", r"unknown set of arms 'bernouli'; did you mean 'bernoulli'\?"),
        ("bernoulli(n=2)", r"bernoulli has no argument 'n'"),
        ("bernoulli(means=0.5)", r"bernoulli: means must be a list of numbers, got 0.5"),
        ("bernoulli(k=2", r"cannot read set of arms"),
        ("bernoulli(k=2) | gaussian(k=2)", r"expected one set of arms, got a pipe of 2"),
    ],
)
def test_bad_texts_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_arms(text)


# Error rate: a Kolmogorov-Smirnov p-value is below 1e-4 with that probability; the seed is fixed.
@pytest.mark.parametrize(
    ("arms", "law"),
    [
        (BernoulliArms(k=4), stats.uniform()),
        (GaussianArms(k=4), stats.norm()),
        (GaussianArms(k=4, loc=-3.0, scale=0.25), stats.norm(-3.0, 0.25)),
    ],
    ids=lambda value: str(value) if isinstance(value, Arms) else "law",
)
def test_prior_means_have_their_law(arms: Any, law: Any) -> None:
    means = arm_table(arms, 11, 0, 4000).means
    assert means.shape == (4, 4000)
    for row in means:
        assert stats.kstest(row, law.cdf).pvalue > 1e-4
    assert stats.pearsonr(means[0], means[1]).pvalue > 1e-4
    assert stats.pearsonr(means[0, 1:], means[0, :-1]).pvalue > 1e-4


def test_prior_means_belong_to_the_instance_and_the_seed() -> None:
    arms = GaussianArms(k=3)
    whole = arm_table(arms, 5, 0, 20).means
    assert_array_equal(arm_table(arms, 5, 13, 7).means, whole[:, 13:])
    assert not np.isin(arm_table(arms, 6, 0, 20).means, whole).any()
    # One more arm does not move the others.
    assert_array_equal(arm_table(GaussianArms(k=4), 5, 0, 20).means[:3], whole)


def test_gaps_are_zero_at_the_best_arms_alone() -> None:
    table = arm_table(BernoulliArms(means=(0.5, 0.75, 0.75)), 0, 0, 4)
    assert table.gaps().tolist() == [[0.25], [0.0], [0.0]]
    drawn = arm_table(BernoulliArms(k=5), 0, 0, 50)
    assert_array_equal((drawn.gaps() == 0.0).sum(axis=0), np.ones(50))
    assert drawn.gaps().min() == 0.0


ROWS = (("10", 1.5), ("2", -1.0), ("10", 0.5), ("2", 3.0), ("2", 1.0), ("1", 2.0))


def _csv(folder: Path, text: str, name: str = "observations.csv") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def _frame() -> pd.DataFrame:
    return pd.DataFrame({"noise": 0, "arm": [arm for arm, _ in ROWS], "reward": [reward for _, reward in ROWS]})


def _write_csv(folder: Path) -> str:
    file = folder / "a.csv"
    _frame().to_csv(file, index=False)
    return str(file)


def _write_gzip(folder: Path) -> str:
    file = folder / "a.csv.gz"
    file.write_bytes(gzip.compress(Path(_write_csv(folder)).read_bytes()))
    return str(file)


def _write_parquet(folder: Path) -> str:
    file = folder / "a.parquet"
    _frame().to_parquet(file)
    return str(file)


def _write_parquet_of_numbers(folder: Path) -> str:
    file = folder / "a.pq"
    _frame().astype({"arm": np.int64}).to_parquet(file)
    return str(file)


@pytest.mark.parametrize("write", [_write_csv, _write_gzip, _write_parquet, _write_parquet_of_numbers])
def test_a_table_is_read_by_arm(write: Callable[[Path], str], tmp_path: Path) -> None:
    arms = EmpiricalArms(write(tmp_path), "arm", "reward")
    # All labels are numbers, so 2 comes before 10. Means: 2; (-1 + 3 + 1) / 3 = 1; (1.5 + 0.5) / 2 = 1.
    assert arms.labels == ("1", "2", "10")
    assert arms.size == 3
    assert arms.fixed_means.tolist() == [2.0, 1.0, 1.0]
    assert arms.values.tolist() == [2.0, -1.0, 1.0, 3.0, 0.5, 1.5]
    assert arms.offsets.tolist() == [0, 1, 4, 6]
    assert not arms.binary
    # Squares around the arm's mean: 0; 4, 0, 4; 1/4, 1/4.
    assert arms.noise == pytest.approx(math.sqrt(8.5 / 6), rel=1e-15)
    assert parse_arms(str(arms)) == arms


def test_all_formats_have_one_digest_and_order_of_rows_is_nothing(tmp_path: Path) -> None:
    writers = (_write_csv, _write_gzip, _write_parquet, _write_parquet_of_numbers)
    made = [EmpiricalArms(write(tmp_path), "arm", "reward") for write in writers]
    _frame().iloc[::-1].to_csv(tmp_path / "b.csv", index=False)
    made.append(EmpiricalArms(str(tmp_path / "b.csv"), "arm", "reward"))
    assert len({arms.digest for arms in made}) == 1
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    "text",
    ["arm,reward\na,1\nb,2\n", "arm,reward\na,1\na,3\n", "arm,reward\na,1\nc,3\n", "arm,reward\na,1\nb,3\nb,3\n"],
)
def test_other_observations_have_another_digest(text: str, tmp_path: Path) -> None:
    arms = EmpiricalArms(_csv(tmp_path, "arm,reward\na,1\nb,3\n", "first.csv"), "arm", "reward")
    other = EmpiricalArms(_csv(tmp_path, text), "arm", "reward")
    assert arms != other
    assert arms.digest != other.digest


def test_labels_that_are_not_all_numbers_are_in_text_order(tmp_path: Path) -> None:
    arms = EmpiricalArms(_csv(tmp_path, "arm,reward\n10,1\n9,1\nNA,0\n"), "arm", "reward")
    assert arms.labels == ("10", "9", "NA")


def test_rewards_of_0_and_1_are_binary(tmp_path: Path) -> None:
    assert EmpiricalArms(_csv(tmp_path, "arm,reward\na,0\na,1.0\nb,1\n"), "arm", "reward").binary
    assert not EmpiricalArms(_csv(tmp_path, "arm,reward\na,0\na,1.0\nb,2\n"), "arm", "reward").binary


def test_minus_zero_is_zero(tmp_path: Path) -> None:
    first = EmpiricalArms(_csv(tmp_path, "arm,reward\na,-0.0\na,1\n", "first.csv"), "arm", "reward")
    assert first == EmpiricalArms(_csv(tmp_path, "arm,reward\na,0\na,1\n"), "arm", "reward")


@pytest.mark.parametrize("engine", ["torch", "numba"])
def test_resampling_gives_each_row_its_share(engine: str, tmp_path: Path) -> None:
    # Error rate: each chi-square p-value is below 1e-4 with that probability; the seed is fixed.
    text = "arm,reward\n" + "".join(f"a,{value}\n" for value in range(7)) + "b,100\nb,100\nb,101\n"
    arms = EmpiricalArms(_csv(tmp_path, text), "arm", "reward")
    table = arm_table(arms, 3, 0, 800)
    block = ENGINES[engine].simulate(
        parse_policy("random"), table, seed=3, first_instance=0, horizon=20, checkpoints=np.array([20]), record=True
    )
    for arm, expected in ((0, np.full(7, 1 / 7)), (1, np.array([2 / 3, 1 / 3]))):
        rewards = block.rewards[block.actions == arm]
        values, counts = np.unique(rewards, return_counts=True)
        assert values.tolist() == [list(range(7)), [100, 101]][arm]
        assert stats.chisquare(counts, expected * len(rewards)).pvalue > 1e-4
    assert_allclose(block.reward_sums.sum(), block.rewards.sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"rewards file '.*' is empty"),
        ("arm,reward\n", r"rewards file '.*' has no rows"),
        ("arm,value\na,1\n", r"has no column 'reward'; it has 'arm', 'value'"),
        ("name,reward\na,1\n", r"has no column 'arm'; it has 'name', 'reward'"),
        ("arm,reward\na,1\nb,good\n", r"row 2 of column 'reward' in '.*' must be a finite number, got 'good'"),
        ("arm,reward\na,1\nb,2\nb,nan\n", r"row 3 of column 'reward' in '.*' must be a finite number, got 'nan'"),
        ("arm,reward\na,inf\nb,2\n", r"row 1 of column 'reward' in '.*' must be a finite number, got 'inf'"),
        ("arm,reward\na,-inf\n", r"row 1 of column 'reward' in '.*' must be a finite number, got '-inf'"),
        ("arm,reward\na,\nb,2\n", r"row 1 of column 'reward' in '.*' must be a finite number, got ''"),
        ("arm,reward\na,1\nb\n", r"row 2 of column 'reward' in '.*' must be a finite number"),
        ("arm,reward\na,x\nb,y\nc,\n", r"row 1 of column 'reward' .* got 'x' \(and 2 more such rows\)"),
        ("arm,reward\n,1\n", r"row 1 of column 'arm' in '.*' names no arm"),
        ("arm,reward\na,1\n  ,1\n", r"row 2 of column 'arm' in '.*' names no arm"),
        ("arm,reward\na,1\nb,2,3\n", r"cannot read rewards file"),
        ("arm,reward\na,1,5\nb,2,5\n", r"cannot read rewards file"),
        ("arm,reward,reward\na,1,2\n", r"has two columns 'reward'"),
    ],
)
def test_bad_csv_files_say_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        EmpiricalArms(_csv(tmp_path, text), "arm", "reward")


def test_bad_paths_and_columns_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rewards file '.*no.csv' does not exist"):
        EmpiricalArms(str(tmp_path / "no.csv"), "arm", "reward")
    with pytest.raises(ValueError, match=r"is not a file"):
        EmpiricalArms(str(tmp_path), "arm", "reward")
    with pytest.raises(ValueError, match=r"must be two columns, got 'arm' for both"):
        EmpiricalArms(_write_csv(tmp_path), "arm", "arm")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(ValueError, match=r"cannot read rewards file '.*bad.parquet'"):
        EmpiricalArms(str(tmp_path / "bad.parquet"), "arm", "reward")
    (tmp_path / "bad.csv").write_bytes(b"arm,reward\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match=r"cannot read rewards file '.*bad.csv'"):
        EmpiricalArms(str(tmp_path / "bad.csv"), "arm", "reward")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"arm": ["a", None], "reward": [1.0, 2.0]}, r"row 2 of column 'arm' in '.*' names no arm"),
        ({"arm": ["a", "b"], "reward": [1.0, None]}, r"row 2 of column 'reward' in '.*' must be a finite number"),
        ({"arm": ["a", "b"], "reward": ["1", "x"]}, r"row 2 of column 'reward' .* must be a finite number, got 'x'"),
        ({"arm": ["a"], "reward": [pd.Timestamp("2020-01-01")]}, r"column 'reward' in '.*' must hold numbers"),
        ({"arm": ["a"], "value": [1.0]}, r"has no column 'reward'; it has 'arm', 'value'"),
        ({"arm": [], "reward": []}, r"has no rows"),
        (
            {"arm": pd.Categorical(["a", "c"], categories=["a", "b", "c"]), "reward": [1.0, 2.0]},
            r"arm 'b' of column 'arm' in '.*' has no rows",
        ),
    ],
)
def test_bad_parquet_files_say_what_is_wrong(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pd.DataFrame(columns).to_parquet(file)
    with pytest.raises(ValueError, match=message):
        EmpiricalArms(str(file), "arm", "reward")


def test_long_files_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{'ab'[row % 2]},{row}\n" for row in range(11))
    whole = EmpiricalArms(_csv(tmp_path, "arm,reward\n" + rows), "arm", "reward")
    assert whole.values.tolist() == [0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9]
    monkeypatch.setattr(observations, "CSV_ROWS", 3)
    assert EmpiricalArms(_csv(tmp_path, "arm,reward\n" + rows), "arm", "reward") == whole
    with pytest.raises(ValueError, match=r"cannot read rewards file .*Expected 2 fields in line 13, saw 3"):
        EmpiricalArms(_csv(tmp_path, "arm,reward\n" + rows + "a,1,2\n"), "arm", "reward")
    with pytest.raises(ValueError, match=r"row 12 of column 'reward' .* got '-'"):
        EmpiricalArms(_csv(tmp_path, "arm,reward\n" + rows + "a,-\n"), "arm", "reward")


def test_as_many_arms_as_there_are_streams(tmp_path: Path) -> None:
    def rows(count: int) -> str:
        return "arm,reward\n" + "".join(f"{arm},1\n" for arm in range(count))

    assert EmpiricalArms(_csv(tmp_path, rows(1024), "fit.csv"), "arm", "reward").size == 1024
    with pytest.raises(ValueError, match=r"column 'arm' of '.*' names 1025 arms; at most 1024 fit"):
        EmpiricalArms(_csv(tmp_path, rows(1025)), "arm", "reward")
