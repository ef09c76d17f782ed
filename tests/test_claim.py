"""docs/claim.md and its tables: the same bytes from the committed rows, and words that follow numbers."""

import json
import re
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import seaborn

from stau_rl.figures.save import both
from stau_rl.pages import claim
from stau_rl.pages.claim_data import ClaimData, adjusted, bonus
from stau_rl.pages.claim_effect import counts, effect, views, views_text
from stau_rl.pages.claim_figures import figures, save_figures
from stau_rl.pages.claim_lines import anchor, claim_lines, claim_table
from stau_rl.pages.claim_settings import ARMS, BONUSES, claim_settings
from stau_rl.pages.claim_tables import tables_page
from stau_rl.pages.claim_text import page
from stau_rl.pages.claim_verdict import verdict
from stau_rl.pages.notebook_outputs import without_outputs
from stau_rl.pages.notebooks import CLAIM, notebook
from stau_rl.pages.paths import RESULTS, ROOT
from stau_rl.regret.lai_robbins import bernoulli_constant
from stau_rl.study.report import percent_text


@pytest.fixture(scope="module")
def data() -> ClaimData:
    return ClaimData.load()


def test_pages_and_notebook_are_those_of_the_committed_rows(data: ClaimData) -> None:
    for path, text in ((claim.PAGE, page(data)), (claim.TABLES, tables_page(data))):
        assert path.read_text(encoding="utf-8") == text, "run python -m stau_rl.pages.claim"
    kept = json.loads(claim.NOTEBOOK.read_text(encoding="utf-8"))
    assert without_outputs(kept) == notebook(CLAIM), "run python -m stau_rl.pages.claim"


def test_the_page_is_short_and_its_links_lead_somewhere(data: ClaimData) -> None:
    text = page(data)
    assert len(text.splitlines()) < 150
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    anchors = {anchor(heading) for heading in headings}
    assert set(re.findall(r"\]\((#[^)]*)\)", text)) <= anchors
    for section in text.split("\n## "):
        assert section.count("\n| --- ") <= 1, section[:40]


def test_figures_are_those_of_the_committed_rows(data: ClaimData, tmp_path: Path) -> None:
    save_figures(data, tmp_path)
    text = "".join(path.read_text(encoding="utf-8") for path in (claim.PAGE, claim.TABLES))
    for name in figures():
        for path in both(tmp_path / name):
            fresh, committed = path.read_bytes(), (claim.PAGE.parent / path.name).read_bytes()
            assert len(committed) < 200_000
            if (mpl.__version__, seaborn.__version__) == (_pinned("matplotlib"), _pinned("seaborn")):
                assert fresh == committed, f"{path.name}: run python -m stau_rl.pages.claim"
        assert f"]({name})" in text


def _pinned(package: str) -> str:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{package}=="))


def _changed(data: ClaimData, changes: dict[str, tuple[float, float, float]], *sweeps: str) -> ClaimData:
    """The data with (percent, half-width, p) of whole kinds of comparison replaced."""
    rows = data.comparisons.copy()
    for kind, (percent, half, p) in changes.items():
        mine = (rows["comparison"] == kind) & rows["percent"].notna() & rows["policy"].str.contains("s_tau")
        mine &= rows["sweep"].isin(sweeps) | (len(sweeps) == 0)
        rows.loc[mine, ["percent", "percent_low", "percent_high"]] = [percent, percent - half, percent + half]
        rows.loc[mine, "p_holm"] = p
    return replace(data, comparisons=rows)


@pytest.mark.parametrize(
    ("low", "high", "p", "found"),
    [
        (-3.0, -1.01, 0.01, "s_tau"),
        (1.01, 3.0, 0.01, "softmax"),
        (-3.0, -0.99, 0.01, "open"),
        (-3.0, -1.01, 0.06, "open"),
        (-1.0, 1.0, 1.0, "equal"),
        # Measurably different, and by less than matters.
        (0.2, 0.9, 1e-9, "equal"),
        (-1.01, 0.5, 1.0, "open"),
        (float("nan"), float("nan"), 1.0, "open"),
    ],
)
def test_a_difference_counts_from_one_percent_on(low: float, high: float, p: float, found: str) -> None:
    assert effect({"percent_low": low, "percent_high": high, "p_holm": p}) == found


def test_the_verdict_has_three_sentences_and_follows_the_numbers(data: ClaimData) -> None:
    real = verdict(data)
    assert len(real) == 3
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in real)
    pairs = len(data.pairs())
    great = verdict(_changed(data, {"raw": (-40, 1, 0), "entropy": (-30, 1, 0), "tuned": (-20, 1, 0)}))
    assert "makes such a gap" in great[0]
    assert "in 8 of 8 settings" in great[0]
    assert "most of it remains" in great[1]
    assert f"only s^tau wins: of {pairs} pairs on grids of equal reach s^tau wins {pairs}, softmax 0" in great[2]
    poor = verdict(_changed(data, {"raw": (5, 1, 0), "entropy": (5, 1, 0), "tuned": (4, 1, 0)}))
    assert "makes no gap of 35 % here" in poor[0]
    assert "no gap that sharpness could explain" in poor[1]
    assert f"only softmax wins: of {pairs} pairs on grids of equal reach s^tau wins 0, softmax {pairs}" in poor[2]
    even = verdict(_changed(data, {"raw": (-40, 1, 0), "entropy": (0, 2, 1), "tuned": (0, 0.5, 1)}))
    assert "most of it is gone" in even[1]
    assert "neither head wins" in even[2]
    assert f"{pairs} are equal within 1 %, 0 open" in even[2]
    mixed = verdict(_changed(_changed(data, {"tuned": (9, 1, 0)}), {"tuned": (-9, 1, 0)}, "k"))
    assert "either head may win" in mixed[2]
    assert f"s^tau wins 6, softmax {pairs - 6}" in mixed[2]
    assert len({*real, *great, *poor, *even, *mixed}) > 8
    # An interval beyond one percent is no win yet where Holm's p-value says otherwise.
    assert (
        f"s^tau wins 0, softmax 0, 0 are equal within 1 %, {pairs} open"
        in verdict(_changed(data, {"tuned": (-20, 1, 0.2)}))[2]
    )


def test_the_conclusion_agrees_with_the_rows(data: ClaimData) -> None:
    """Counts in the sentences, made again from the rows by another way."""
    table = data.comparisons[data.comparisons["percent"].notna()]
    raw = table[(table["sweep"] == "c") & (table["comparison"] == "raw")]
    sentences = verdict(data)
    assert f"less regret or better in {int((raw['percent'] <= -35).sum())} of {len(raw)}" in sentences[0]
    assert f"from {raw['percent'].min():+.1f} to {raw['percent'].max():+.1f} %" in sentences[0]
    assert len(raw) == len(ARMS) * len(BONUSES)
    tuned = table[(table["comparison"] == "tuned") & table["policy"].str.contains("s_tau")]
    once = tuned.groupby(["arms", "horizon", "policy", "baseline"]).first()
    # Bonus 0.25 stands again at offset 0 (twice) and at scale 1.
    assert len(tuned) - len(once) >= 3
    wins = int(((once["percent_low"] > 1) & (once["p_holm"] <= 0.05)).sum())
    equal = int(((once["percent_low"] >= -1) & (once["percent_high"] <= 1)).sum())
    assert f"of {len(once)} pairs" in sentences[2]
    assert f"softmax {wins}, {equal} are equal within 1 %" in sentences[2]
    assert page(data).count("| bonus c | 8 |") == 1


def test_pairs_that_argmax_beats_carry_no_information(data: ClaimData) -> None:
    """A best within a grid that ends too early is no best; the limit needs no grid."""
    table = data.comparisons
    beaten = []
    for value in [f"{arms} c {c:g}" for arms in ARMS.values() for c in BONUSES]:
        mine = table[table["value"] == value]
        tuned = mine[(mine["comparison"] == "tuned") & (mine["sweep"] == "c")]
        limit = mine[(mine["sweep"] == "limit") & mine["policy"].str.contains("argmax", regex=False)].iloc[0]
        if limit["regret_high"] < tuned["regret_low"].min():
            beaten.append(value)
    assert [pair["value"] for pair in data.main("tuned") if data.silent(pair)] == beaten
    # An offset moves no argmax, so a pair at another offset has the limit of the scores without.
    moved = data.row("offset", f"{ARMS['Bernoulli']} offset 8", "tuned")
    limit = data.limit(moved)
    assert limit is not None
    assert (limit["value"], bonus(moved["policy"])) == (f"{ARMS['Bernoulli']} c 0.25", 0.25)
    silent = sum(data.silent(pair) for pair in data.pairs())
    assert f"; {silent} carry no information" in verdict(data)[2]
    worse = table.copy()
    limits = worse["policy"].str.contains("argmax", regex=False)
    worse.loc[limits, ["regret", "regret_low", "regret_high"]] = 1e9
    other = replace(data, comparisons=worse)
    assert "no information" not in verdict(other)[2]
    assert "**No information**" not in page(other)
    assert "unlike argmax" in tables_page(data)
    assert "unlike argmax" not in tables_page(other)


def test_mean_and_typical_run_are_told_apart_in_words(data: ClaimData) -> None:
    """Bernoulli c = 0: softmax is ahead by mean; s^tau by interquartile mean and on more instances."""
    pair = data.row("c", f"{ARMS['Bernoulli']} c 0", "tuned")
    softmax = data.softmax(pair)
    assert views(pair, softmax) == {"mean": 1, "interquartile mean": -1, "P(better)": -1}
    words = "softmax by mean, s^tau by interquartile mean and P(better)"
    assert views_text(pair, softmax) == words
    assert f"- {words}: Bernoulli c = 0 (mean {percent_text(pair)} %;" in page(data)
    rows = data.comparisons.copy()
    rows.loc[rows["comparison"] == "tuned", ["improvement_low", "improvement_high"]] = [0.4, 0.6]
    rows.loc[rows["comparison"] == "tuned", ["iqm_low", "iqm_high"]] = [0.0, 1e9]
    flat = replace(data, comparisons=rows)
    assert "## Mean and typical run" not in page(flat)
    assert "middle half" not in verdict(flat)[2]


def test_the_table_of_claims_follows_the_rows(data: ClaimData, tmp_path: Path) -> None:
    def verdicts(changed: ClaimData) -> list[str]:
        return [line.verdict for line in claim_lines(changed)]

    assert verdicts(data)[:2] == ["not reproduced", "another cause"]
    pairs = len(data.pairs())
    assert verdicts(_changed(data, {"tuned": (-36, 1, 0)}))[0] == "reproduced"
    assert verdicts(_changed(data, {"tuned": (-36, 1, 0)}, "k"))[0] == f"reproduced in 6 of {pairs}"
    # Less regret, and not by what is claimed.
    assert verdicts(_changed(data, {"tuned": (-20, 1, 0)}))[0] == "not reproduced"
    assert verdicts(_changed(data, {"entropy": (-60, 1, 0)}))[1] == "reproduced"
    assert verdicts(_changed(data, {"raw": (5, 1, 0)}))[1] == "not reproduced"
    text = claim_table(claim_lines(data))
    low, high = (pick(data.pairs(), key=lambda pair: pair["percent"]) for pick in (min, max))
    for pair in (low, high):
        assert f"{pair['percent']:+.1f} [{pair['percent_low']:+.1f}, {pair['percent_high']:+.1f}]" in text
    assert "[another cause](#equally-sharp)" in text


def _with_later(data: ClaimData, percent: float, *sweeps: str) -> ClaimData:
    """The data with rows of the later studies, made from those of bonus 0.25: every difference as given."""
    # What is committed of these sweeps gives way.
    table = data.comparisons[~data.comparisons["sweep"].isin(sweeps)]
    tuned = table[(table["comparison"] == "tuned") & (table["value"] == f"{ARMS['Bernoulli']} c 0.25")]
    first, other = (tuned[tuned["policy"].str.contains(head)] for head in ("softmax", "s_tau"))
    made = []
    for setting in claim_settings(only=sweeps):
        texts = [text.replace("{x}", "2.0") for text in setting.families]
        for family, text in zip(setting.families, texts, strict=True):
            row = (first if family == setting.families[0] else other).assign(
                family=family, policy=text, baseline=texts[0]
            )
            moved = percent + 30 * ("escort" in family)
            if family != setting.families[0]:
                row = row.assign(percent=moved, percent_low=moved - 2, percent_high=moved + 2, p_value=1e-9)
            shared = {"sweep": setting.sweep, "value": setting.value, "arms": setting.arms}
            made.append(row.assign(**shared, horizon=setting.horizon, setting=setting.identity))
    return replace(data, comparisons=adjusted(pd.concat([table, *made], ignore_index=True)))


def test_later_studies_have_their_sections_once_they_are_played(data: ClaimData) -> None:
    more = _with_later(data, -20.0, "annealed", "positive", "baselines", "entmax")
    text = page(more)
    assert len(text.splitlines()) < 150
    for heading in ("Annealed schedules", "Scores that are all positive", "What one would pick instead"):
        assert f"\n## {heading}\n" in text
        for section in text.split("\n## "):
            assert section.count("\n| --- ") <= 1, section[:40]
    assert "| Gaussian | 0.5 | -20.0 [-22.0, -18.0] | s^tau wins |" in text
    assert "| boltzmann_gumbel, tuned | -20.0 [-22.0, -18.0] | -20.0 [-22.0, -18.0] | 8 of 8 |" in text
    assert "| entmax, tuned | -20.0 [-22.0, -18.0] | -20.0 [-22.0, -18.0] | 2 of 2 |" in text
    assert "| annealed softmax |" in text
    # Beside them stands s^tau, as it is in the main settings.
    assert "| s_tau, tuned | -0.3 [-1.2, +1.2] | +12.4 [+11.7, +13.2] | 0 of 8 |" in text
    lines = {line.heading: line for line in claim_lines(more)}
    assert lines["Annealed schedules"].verdict == "reproduced"
    # Escort's differences lie 30 % higher in these rows, so it does not play as s^tau does.
    assert lines["Scores that are all positive"].verdict == "not reproduced"
    worse = {line.heading: line for line in claim_lines(_with_later(data, 20.0, "annealed"))}
    assert worse["Annealed schedules"].verdict == "not reproduced"
    assert counts(more.pairs("annealed"))["s_tau"] == 8
    assert "| Gaussian c = 1 | thompson | -20.0 [-22.0, -18.0] |" in tables_page(more)


def test_rates_and_interquartile_means_of_the_tables_have_intervals(data: ClaimData) -> None:
    """Gaussian arms at c = 0; Wilson's interval solves (p - rate)^2 = z^2 p (1 - p) / n for both ends p."""
    row = data.row("c", f"{ARMS['Gaussian']} c 0", "tuned")
    text = tables_page(data)
    # A wide table is split into several that begin alike.
    line = " ".join(line for line in text.splitlines() if line.startswith("| Gaussian | 0 |"))
    n, rate, z = row["instances"], row["stuck_rate"], 1.959963985
    ends = sorted(np.roots([1 + z * z / n, -2 * rate - z * z / n, rate * rate]).real)
    assert f"{100 * rate:.2f} [{100 * ends[0]:.2f}, {100 * ends[1]:.2f}]" in line
    assert f"{row['iqm']:.4g} [{row['iqm_low']:.4g}, {row['iqm_high']:.4g}]" in line
    assert percent_text(row) in line


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
