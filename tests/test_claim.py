"""docs/claim.md: the same bytes from the committed rows, the rows from their seeds, and words that follow numbers."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import seaborn
from numpy.testing import assert_allclose

from stau_rl.figures.save import both
from stau_rl.pages import claim
from stau_rl.pages import claim_text as claim_page
from stau_rl.pages.claim_data import COMPARISONS, CURVES, ClaimData
from stau_rl.pages.claim_figures import figures, save_figures
from stau_rl.pages.claim_settings import ARMS, BONUSES, SEED, claim_settings
from stau_rl.pages.claim_verdict import verdict
from stau_rl.pages.notebooks import CLAIM, notebook
from stau_rl.pages.paths import RESULTS, ROOT
from stau_rl.regret.lai_robbins import bernoulli_constant
from stau_rl.regret.report import interval
from stau_rl.regret.run import run_regret
from stau_rl.statistics.robust import Estimate
from stau_rl.study.compare import play_setting
from stau_rl.study.folder import rounded


@pytest.fixture(scope="module")
def data() -> ClaimData:
    return ClaimData.load()


def test_page_and_notebook_are_those_of_the_committed_rows(data: ClaimData) -> None:
    assert claim.PAGE.read_text(encoding="utf-8") == claim_page.page(data), "run python -m stau_rl.pages.claim"
    assert claim.NOTEBOOK.read_text(encoding="utf-8") == notebook(CLAIM), "run python -m stau_rl.pages.claim"


def test_figures_are_those_of_the_committed_rows(data: ClaimData, tmp_path: Path) -> None:
    save_figures(data, tmp_path)
    for name in figures():
        for path in both(tmp_path / name):
            fresh, committed = path.read_bytes(), (claim.PAGE.parent / path.name).read_bytes()
            assert len(committed) < 200_000
            if (mpl.__version__, seaborn.__version__) == (_pinned("matplotlib"), _pinned("seaborn")):
                assert fresh == committed, f"{path.name}: run python -m stau_rl.pages.claim"
        assert f"]({name})" in claim.PAGE.read_text(encoding="utf-8")


def _pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{package}=="))


def test_the_rows_are_small_and_say_where_they_come_from(data: ClaimData) -> None:
    for name in (COMPARISONS, CURVES):
        assert (RESULTS / name).stat().st_size < 1_000_000
    for rows in (data.comparisons, data.curves):
        assert (rows["seed"] == SEED).all()
        assert (rows["instances"] >= 100).all()
        assert (rows["commit"].str.fullmatch("[0-9a-f]{40}")).all()
        assert rows["versions"].str.contains("numba=").all()
    planned = {setting.identity for setting in claim_settings()}
    assert set(data.comparisons["setting"]) == planned


def test_a_setting_comes_again_from_its_seed(data: ClaimData, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole one, tuning included. Another processor may round a draw the other way now and then."""
    # Seconds of resampling that nothing here looks at.
    monkeypatch.setattr("stau_rl.study.compare.interquartile_interval", lambda values, **_: Estimate(0.0, 0.0, 0.0))
    setting = next(setting for setting in claim_settings() if setting.value == "gaussian(k=10) horizon 100")
    fresh = rounded(play_setting(setting))
    for committed, again in (
        (data.curves, fresh[fresh["comparison"] == "curve"]),
        (data.comparisons, fresh[fresh["comparison"] != "curve"]),
    ):
        mine = committed[committed["setting"] == setting.identity]
        assert list(mine["policy"]) == list(again["policy"])
        for name in ("regret", "regret_low", "regret_high"):
            assert_allclose(mine[name], again[name], rtol=2e-4)
        if "percent" in mine:
            for name in ("percent", "percent_low", "percent_high"):
                assert_allclose(mine[name], again[name], atol=0.05, rtol=1e-3)


def test_one_setting_has_one_number_in_whichever_sweep_it_stands() -> None:
    """Softmax and s^tau at their best at c = 0.25: in the sweep over c, at offset 0 and at scale 1."""
    few = [replace(one, coarse=4, fine=2, horizon=100) for one in claim_settings(share=0.002)]
    for arms in ARMS.values():
        same = [f"{arms} c 0.25", f"{arms} offset 0", f"{arms} scale 1"]
        tables = [play_setting(one) for one in few if one.value in same and one.sweep != "limit"]
        assert len(tables) == (3 if arms == ARMS["Gaussian"] else 2)
        shown = [
            "policy",
            "baseline",
            "regret",
            "regret_low",
            "percent",
            "percent_low",
            "percent_high",
            "p_value",
            "edge",
        ]
        tuned = [table.loc[table["comparison"] == "tuned", shown].reset_index(drop=True) for table in tables]
        for other in tuned[1:]:
            pd.testing.assert_frame_equal(tuned[0], other, check_exact=True)
    with pytest.raises(ValueError, match="share"):
        claim_settings(0.0)


def test_parts_put_together_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes' parts, gathered, give the rows of one process, without playing anything again."""
    few = [replace(one, coarse=3, fine=0, horizon=50, instances=20) for one in claim_settings(share=0.001)[:3]]
    monkeypatch.setattr(claim, "claim_settings", lambda share=1.0: few)
    for number in (1, 2):
        claim.play(tmp_path / "run", engine="numba", part=(number, 2))
    claim.play(tmp_path / "whole", engine="numba")
    monkeypatch.setattr("stau_rl.study.play.play_setting", lambda *_: pytest.fail("it was played already"))
    claim.play(tmp_path / "run", engine="numba")
    for name in ("run", "whole"):
        claim.publish(tmp_path / name, tmp_path / f"{name}-rows")
    for name in (COMPARISONS, CURVES):
        assert (tmp_path / "run-rows" / name).read_bytes() == (tmp_path / "whole-rows" / name).read_bytes()
    timing = pd.read_csv(tmp_path / "run-rows" / "claim_timing.csv")
    assert timing["seconds"][0] >= 0


@pytest.mark.parametrize(
    ("sweep", "value", "comparison", "head"),
    [
        ("horizon", "bernoulli(k=10) horizon 1000", "tuned", "s_tau"),
        ("horizon", "gaussian(k=10) horizon 1000", "raw", "s_tau"),
        ("empirical", "insect sprays", "raw", "softmax"),
        ("c", "bernoulli(k=10) c 0.25", "reference", "random"),
    ],
)
def test_a_sample_of_rows_comes_again_from_their_seed(data: ClaimData, sweep, value, comparison, head) -> None:
    row = data.row(sweep, value, comparison, head)
    # The first 512 instances are enough to see another seed, other arms or another policy: their mean lies within
    # the row's standard error, widened for the smaller number, five times over.
    with contextlib.chdir(ROOT):
        few = run_regret(row["arms"], [row["policy"]], row["horizon"], 512, SEED, checkpoints=[row["horizon"]])
    error = (row["regret_high"] - row["regret_low"]) / 3.92 * np.sqrt(row["instances"] / 512)
    assert abs(few.regret[0, 0].mean() - row["regret"]) < 5 * error


def test_two_numbers_that_the_page_must_give(data: ClaimData) -> None:
    """Uniform Bernoulli at c = 0.25: tuned, under 3 % apart. Gaussian at c = 0: the page names the winner."""
    bernoulli = data.row("c", f"{ARMS['Bernoulli']} c 0.25", "tuned")
    assert abs(bernoulli["percent"]) < 3
    gaussian = data.row("c", f"{ARMS['Gaussian']} c 0", "tuned")
    text = claim.PAGE.read_text(encoding="utf-8")
    for row in (bernoulli, gaussian):
        assert f"{interval(row['percent'], row['percent_low'], row['percent_high'])} %" in text
    assert ("softmax wins" in text) == (gaussian["percent_low"] > 0)


def _changed(data: ClaimData, changes: dict[str, tuple[float, float, float]]) -> ClaimData:
    """The data with (percent, half-width, p) of whole kinds of comparison replaced."""
    rows = data.comparisons.copy()
    for kind, (percent, half, p) in changes.items():
        mine = (rows["comparison"] == kind) & rows["percent"].notna() & (rows["sweep"] == "c")
        rows.loc[mine, ["percent", "percent_low", "percent_high"]] = [percent, percent - half, percent + half]
        rows.loc[mine, "p_holm"] = p
    return replace(data, comparisons=rows)


def test_the_verdict_has_three_sentences_and_follows_the_numbers(data: ClaimData) -> None:
    real = verdict(data)
    assert len(real) == 3
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in real)
    great = verdict(
        _changed(data, {"raw": (-40, 1, 0), "slope": (-30, 1, 0), "entropy": (-30, 1, 0), "tuned": (-20, 1, 0)})
    )
    assert "the claim reproduces:" in great[0]
    assert "in 8 of 8 settings" in great[0]
    assert "most of the raw gain remains" in great[1]
    assert "s^tau wins 8 of 8 settings" in great[2]
    poor = verdict(_changed(data, {"raw": (5, 1, 0), "slope": (5, 1, 0), "entropy": (5, 1, 0), "tuned": (4, 1, 0)}))
    assert "does not reproduce" in poor[0]
    assert "no raw gain to explain" in poor[1]
    assert "softmax wins 8 of 8 settings" in poor[2]
    even = verdict(_changed(data, {"raw": (-40, 1, 0), "slope": (1, 2, 1), "entropy": (0, 2, 1), "tuned": (0, 2, 1)}))
    assert "mostly that of a sharper temperature" in even[1]
    assert "neither head wins anywhere" in even[2]
    rows = data.comparisons.assign(edge="")
    assert "steep end of the grid" not in verdict(replace(data, comparisons=rows))[2]
    softmax = (rows["sweep"] == "c") & (rows["comparison"] == "tuned") & rows["policy"].str.contains("softmax")
    rows.loc[softmax, "edge"] = "high"
    assert "in 8 of the 8 a best parameter lies at the steep end" in verdict(replace(data, comparisons=rows))[2]
    assert len({*real, *great, *poor, *even}) > 6
    # Two matches that disagree: the smaller gain of one does not hide the larger of the other, nor does a mean of them.
    split = verdict(_changed(data, {"raw": (-40, 1, 0), "slope": (50, 1, 0), "entropy": (-30, 1, 0)}))[1]
    assert "most of the raw gain remains" in split
    assert "is +50.0 % at equal slope and -30.0 % at equal entropy where raw it is -40.0 %" in split
    # An interval without 0 is not measurable yet where Holm's p-value says otherwise.
    loose = verdict(_changed(data, {"raw": (-40, 1, 0.2), "slope": (5, 1, 0.2), "entropy": (-5, 1, 0.2)}))
    assert "measurably less regret in 0 of 8" in loose[0]
    assert loose[1].count("measurably better in 0 of 8 settings, worse in 0") == 2


def test_the_page_says_where_the_limit_of_both_heads_beats_them(data: ClaimData) -> None:
    """A best within a grid that ends too early is no best; the limit needs no grid."""
    table = data.comparisons
    main = [f"{arms} c {c:g}" for arms in ARMS.values() for c in BONUSES]
    beaten = []
    for value in main:
        mine = table[table["value"] == value]
        tuned = mine[(mine["comparison"] == "tuned") & (mine["sweep"] == "c")]
        limit = mine[(mine["sweep"] == "limit") & mine["policy"].str.contains("argmax", regex=False)].iloc[0]
        if limit["regret_high"] < tuned["regret_low"].min():
            beaten.append(value)
    assert [row["value"] for row in data.limit_wins()] == beaten
    assert f"in {len(beaten)} argmax, the limit of both, has less regret than either" in verdict(data)[2]
    assert f"In {len(beaten)} settings (" in claim_page.page(data)
    worse = table.copy()
    limits = (worse["sweep"] == "limit") & worse["policy"].str.contains("argmax", regex=False)
    worse.loc[limits, ["regret", "regret_low", "regret_high"]] = 1e6
    other = replace(data, comparisons=worse)
    assert "argmax, the limit" not in verdict(other)[2]
    assert "below those of both heads" not in claim_page.page(other)


def test_rates_and_interquartile_means_of_the_page_have_intervals(data: ClaimData) -> None:
    """Gaussian arms at c = 0; Wilson's interval solves (p - rate)^2 = z^2 p (1 - p) / n for both ends p."""
    row = data.row("c", f"{ARMS['Gaussian']} c 0", "tuned")
    text = claim_page.page(data)
    # A wide table is split into several that begin alike.
    line = " ".join(line for line in text.splitlines() if line.startswith("| Gaussian | 0 |"))
    n, rate, z = row["instances"], row["stuck_rate"], 1.959963985
    ends = sorted(np.roots([1 + z * z / n, -2 * rate - z * z / n, rate * rate]).real)
    assert f"{100 * rate:.2f} [{100 * ends[0]:.2f}, {100 * ends[1]:.2f}]" in line
    assert f"{row['iqm']:.4g} [{row['iqm_low']:.4g}, {row['iqm_high']:.4g}]" in line


def test_the_conclusion_agrees_with_the_table_beside_it(data: ClaimData) -> None:
    """Counts in the sentences, made again from the rows by another way."""
    table = data.comparisons[(data.comparisons["sweep"] == "c") & data.comparisons["percent"].notna()]
    raw, tuned = (table[table["comparison"] == kind] for kind in ("raw", "tuned"))
    sentences = verdict(data)
    assert f"35 % less or better in {int((raw['percent'] <= -35).sum())} of them" in sentences[0]
    assert f"from {raw['percent'].min():+.1f} to {raw['percent'].max():+.1f} %" in sentences[0]
    undecided = int((tuned["p_holm"] > 0.05).sum())
    assert f"{undecided} remain" in sentences[2]
    assert len(raw) == len(tuned) == len(ARMS) * len(BONUSES)


def test_random_policies_have_the_regret_of_their_prior(data: ClaimData) -> None:
    """T (E max - E mean): 10 000 (10/11 - 1/2) for uniform means, 10 000 x 1.53875 for ten standard normal ones."""
    for arms, expected in (("bernoulli", 10_000 * (10 / 11 - 0.5)), ("gaussian", 15_387.5)):
        row = data.row("c", f"{arms}(k=10) c 0", "reference", "random")
        half = (row["regret_high"] - row["regret_low"]) / 2
        assert abs(row["regret"] - expected) < 2 * half


def test_the_notebook_is_a_notebook() -> None:
    import nbformat

    nbformat.validate(nbformat.reads(notebook(CLAIM), as_version=4))
    assert all(not cell.get("outputs") for cell in json.loads(notebook(CLAIM))["cells"])


def test_the_sprays_are_the_published_ones() -> None:
    """Beall's counts: totals per spray, and all of them."""
    table = pd.read_csv(RESULTS / "insect_sprays.csv")
    assert table.groupby("spray")["count"].sum().to_dict() == {"A": 174, "B": 184, "C": 25, "D": 59, "E": 42, "F": 200}
    assert (table.groupby("spray").size() == 12).all()
    # The constant of arms that resample them exists, unlike for means drawn from a prior.
    assert np.isfinite(bernoulli_constant(table.groupby("spray")["count"].mean().to_numpy() / 26))
