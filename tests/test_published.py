"""The published experiment: played by name, told by its rule, its page and figure from the committed rows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import stau_rl
from stau_rl.cli.main import main
from stau_rl.figures.save import both
from stau_rl.pages import claim
from stau_rl.pages.claim_published import BEST, CURVE, FIGURE, Published
from stau_rl.pages.paths import DOCS, RESULTS, ROOT
from stau_rl.pages.published import ladder, play
from stau_rl.pages.published_figure import save_published
from stau_rl.regret.problems import PROBLEMS
from stau_rl.regret.rivals import best_against_best


@pytest.fixture(scope="module")
def rows() -> Published:
    found = Published.load()
    assert found is not None
    return found


def test_the_published_number_comes_again() -> None:
    """-35.2 % on 50 runs; 286.9 and 443.5 on 4 000 runs of another implementation, whose errors are about 0.35."""
    result = stau_rl.problem("power_35").run(400, engine="numba", checkpoints=[3000])
    means = dict(zip(result.policies, result.regret[:, -1].mean(axis=1), strict=True))
    # A run has a standard deviation of about 23; three errors of 400 runs are 3.5.
    assert means["reward_centred_ucb | clamp_power(tau=15)"] == pytest.approx(286.9, abs=4.5)
    assert means["reward_centred_ucb | softmax(beta=20)"] == pytest.approx(443.5, abs=4.5)
    same = best_against_best(result, ("clamp_power", "softmax")).iloc[0]
    assert same["percent_low"] <= -35.2 + 0.5
    assert same["percent_high"] >= -35.2 - 0.5


def test_the_rules_by_hand() -> None:
    # On all four runs p = 1 has 4 and p = 2 has 5; on the first two p = 2 has 3, and then 7 on the others.
    values = [[4.0, 4.0, 4.0, 4.0], [3.0, 3.0, 7.0, 7.0], [8.0, 8.0, 8.0, 8.0], [10.0, 10.0, 10.0, 10.0]]

    texts = ["mean | escort(p=1)", "mean | escort(p=2)", "mean | softmax(beta=1)", "mean | softmax(beta=2)"]
    four: Any = SimpleNamespace(regret=np.array(values)[:, None, :], policies=texts, spec={"seed": 0})
    table = best_against_best(four, ("escort", "softmax"))
    assert table["policy"].tolist() == ["mean | escort(p=1)", "mean | escort(p=2)"]
    assert table["baseline"].tolist() == ["mean | softmax(beta=1)"] * 2
    assert table["percent"].tolist() == pytest.approx([-50.0, -12.5])
    assert table["instances"].tolist() == [4, 2]
    with pytest.raises(ValueError, match="no policy of this result has the head 's_tau'; it has escort, softmax"):
        best_against_best(four, ("s_tau", "softmax"))


def test_the_command_plays_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["regret", "--problem", "power_35", "--instances", "12", "--horizon", "40", "--out", str(tmp_path / "run")])
    shown = capsys.readouterr().out
    assert "12 instances" in shown
    assert "after 40 steps" in shown
    assert "Best against best, chosen on the runs reported (12): reward_centred_ucb | clamp_power(tau=" in shown
    assert "reported on the other (6)" in shown
    main(["problems"])
    assert all(name in capsys.readouterr().out for name in PROBLEMS)
    main(["problems", "--name", "power_35"])
    assert "reward_centred_ucb | clamp_power(tau=15)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["problems", "--name", "power_53"])
    assert "unknown problem 'power_53'; did you mean 'power_35'?" in capsys.readouterr().err


def test_the_ladder_holds_both_grids_and_ends_at_argmax() -> None:
    known = ladder()
    published = [policy for policy, (_, _, grid) in known.items() if grid]
    assert sorted(published) == sorted(stau_rl.problem("power_35").policies)
    assert list(known)[-1] == "reward_centred_ucb | argmax"


def test_a_small_play_writes_both_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = dict(list(ladder().items())[6:7] + list(ladder().items())[-9:-6])
    monkeypatch.setattr("stau_rl.pages.published.ladder", lambda: few)
    play(60, "numba", "cpu", tmp_path)
    found = Published.load(tmp_path)
    assert found is not None
    assert list(found.curve["policy"]) == list(few)
    assert set(found.best["engine"]) >= {"numba cpu float32", "torch cpu float64"}
    # Equal histories, so equal numbers, on every engine.
    assert found.best[found.best["runs"] == 50].groupby("rule")["regret"].nunique().eq(1).all()


def test_page_and_figure_are_those_of_the_committed_rows(rows: Published, tmp_path: Path) -> None:
    text = claim.PAGE.read_text(encoding="utf-8")
    for sentence in rows.sentences():
        assert f"- {sentence}\n" in text, "run python -m stau_rl.pages.claim"
    assert rows.line().claim in text
    assert f"]({FIGURE})" in text
    save_published(pd.read_csv(RESULTS / CURVE), tmp_path / FIGURE)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for path in both(tmp_path / FIGURE):
        if f"matplotlib=={mpl.__version__}" in pins:
            assert path.read_bytes() == (DOCS / path.name).read_bytes(), "run python -m stau_rl.pages.published --draw"
    assert (RESULTS / BEST).stat().st_size < 20_000


def test_words_follow_the_numbers(rows: Published) -> None:
    real, reach, other = rows.sentences()
    assert real.startswith("The number is real")
    assert "both winners stand at the steep end" in reach
    assert "34 % more than softmax's best" in other
    assert rows.line().verdict == "reproduced; unequal grids"
    moved = Published(rows.curve, rows.best.assign(percent=-20.0, percent_low=-21.0, percent_high=-19.0))
    assert moved.sentences()[0].startswith("The number does not come again")
    assert moved.line().verdict == "not reproduced"
    curve = rows.curve.copy()
    curve.loc[curve["head"] == "s_tau", "regret"] = 300.0
    assert "less than softmax's best" in Published(curve, rows.best).sentences()[2]
    best = rows.best.assign(policy="reward_centred_ucb | clamp_power(tau=8)")
    assert "the grids end" in Published(rows.curve, best).sentences()[1]
