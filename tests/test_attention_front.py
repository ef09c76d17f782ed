"""docs/attention.md: claims, sentences and figure from the committed rows, and words that follow them."""

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.figures.save import both
from stau_rl.pages import attention as attention_page
from stau_rl.pages.attention_asked import ROWS, Asked, gate, passes, publish, share_text
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.attention_front import FIGURE, INNER, frame, page, sentences
from stau_rl.pages.attention_front_figure import save_claims
from stau_rl.pages.attention_lines import lines
from stau_rl.pages.paths import DOCS, RESULTS, ROOT
from stau_rl.pages.trained_claims import TrainedScores
from stau_rl.probe.claims_plan import claims


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked.load()


@pytest.fixture(scope="module")
def data() -> AttentionData:
    return AttentionData.load()


@pytest.fixture(scope="module")
def trained() -> TrainedScores:
    return TrainedScores.load()


def _verdicts(data: AttentionData, asked: Asked, trained: TrainedScores) -> dict[str, str]:
    return {line.claim: line.verdict for line in lines(data, asked, trained)}


def _changed(asked: Asked, part: str, normaliser: str, metric: str, value: float, factor: int | None = None) -> Asked:
    rows = asked.rows.copy()
    mine = rows["part"].str.startswith(part) & (rows["normaliser"] == normaliser)
    if factor is not None:
        mine &= rows["factor"] == factor
    assert mine.any()
    rows.loc[mine, metric] = value
    return replace(asked, rows=rows)


def test_the_page_is_that_of_the_committed_rows(data: AttentionData, asked: Asked, trained: TrainedScores) -> None:
    text = attention_page.PAGE.read_text(encoding="utf-8")
    assert text == page(data, asked, trained), "run python -m stau_rl.pages.attention"
    assert len(text.splitlines()) < 130
    assert (RESULTS / ROWS).stat().st_size < 2_000_000


def test_the_figure_is_that_of_the_committed_rows(asked: Asked, tmp_path: Path) -> None:
    save_claims(asked, tmp_path / FIGURE)
    if f"matplotlib=={mpl.__version__}" in (ROOT / "constraints.txt").read_text(encoding="utf-8"):
        for path in both(tmp_path / FIGURE):
            assert path.read_bytes() == (DOCS / path.name).read_bytes(), "run python -m stau_rl.pages.attention"


def test_rows_are_those_of_the_plan_on_seeds_of_their_own(asked: Asked) -> None:
    for part in ("gates", "calibrated", "silence share", "lssar", "mqar grid, 64 places 16 pairs, 2 layers"):
        for setting in claims(part):
            mine = asked.rows[(asked.rows["part"] == setting.part) & (asked.rows["task"] == setting.task)]
            assert set(mine["seed"]) == set(setting.seeds), setting.part
            assert set(setting.normalisers) <= set(mine["normaliser"])
    assert asked.rows["commit"].str.fullmatch("[0-9a-f]{40}").all()
    pairs = asked.rows[["normaliser", "spec"]].drop_duplicates()
    assert all(str(parse_attention(name)) == spec for name, spec in pairs.itertuples(index=False))
    assert asked.rows["seed"].min() >= 1000


def test_passing_by_hand() -> None:
    rows = pd.DataFrame(
        {
            "mass_unanswerable": [0.01, 0.011, 0.0, 0.0, 0.0],
            "decoded": [0.96, 1.0, 0.95, 1.0, 1.0],
            "recall": [0.96, 1.0, 1.0, 0.95, 1.0],
            "false_refusal": [0.05, 0.0, 0.0, 0.0, 0.06],
        }
    )
    assert passes(rows) == (1, 5)
    # Wilson's interval of 35 of 40.
    assert share_text(35, 40) == "35 of 40 [0.74, 0.95]"


def test_verdicts_follow_the_rows(data: AttentionData, asked: Asked, trained: TrainedScores) -> None:
    now = _verdicts(data, asked, trained)
    assert now["gate by the largest score, learned from 0"] == "reproduced on 35 of 40"
    assert now["other heads make it up"] == now["pn_fir_tau makes nothing up"] == "another cause"
    assert now["only normalised heads decode"] == now["calibrated heads alone stand noise"] == "not reproduced"
    assert now["p = 15 for long items"] == now["softplus is the best inner map"] == "not reproduced"
    silent = _changed(asked, "gates", gate("clamp", 0.0), "mass_unanswerable", 0.5)
    moved = _verdicts(data, silent, trained)
    assert moved["gate by the largest score, learned from 0"] == "not reproduced"
    assert "on 0 of 40 seeds" in sentences(silent)[0]
    all_pass = _changed(silent, "gates", gate("hill", 0.0), "mass_unanswerable", 0.0)
    for metric, value in (("decoded", 1.0), ("recall", 1.0), ("false_refusal", 0.0)):
        all_pass = _changed(all_pass, "gates", gate("hill", 0.0), metric, value)
    assert _verdicts(data, all_pass, trained)["the same, read as m^p / (1 + m^p)"] == "reproduced"
    longer = _changed(asked, "lssar, smoothed keys", INNER["lssa"], "decoded", 0.1, factor=16)
    assert _verdicts(data, longer, trained)["p = 15 for long items"] == "reproduced"
    up = _changed(asked, "silence share", "sm_fir", "hallucination", 0.3)
    assert _verdicts(data, up, trained)["other heads make it up"] == "reproduced"
    weak = _changed(asked, "mqar grid", "softmax_conv", "decoded", 0.2)
    assert _verdicts(data, weak, trained)["smoothed keys are what recall needs"] == "reproduced"
    dead = _changed(asked, "lssar", INNER["p = 15, relu inside"].replace(", fir_taps=7", ""), "dead_row_rate", 0.0)
    assert _verdicts(data, dead, trained)["relu inside dies"] == "not reproduced"


def test_the_figures_shares_are_those_of_the_table(asked: Asked) -> None:
    table = frame(asked)
    assert len(table) == 16
    best = table.loc[(table["held"] / table["of"]).idxmax()]
    assert (best["gate"], best["start"], best["held"]) == ("hill", -0.5, 39)


def test_a_power_of_fifteen_overflows_float32_unless_it_is_divided_first() -> None:
    with np.errstate(over="ignore"):
        assert np.isfinite(np.float32(369) ** np.float32(15))
        assert np.isinf(np.float32(371) ** np.float32(15))


def test_finished_groups_become_the_committed_rows(asked: Asked, tmp_path: Path) -> None:
    rows = asked.of("calibrated")
    (tmp_path / "run" / "groups").mkdir(parents=True)
    rows.assign(group="g").to_csv(tmp_path / "run" / "groups" / "g.csv", index=False)
    (tmp_path / "run" / "timing.json").write_text('{"g": 2.4}', encoding="utf-8")
    publish([tmp_path / "run"], tmp_path)
    back = Asked.load(tmp_path)
    pd.testing.assert_frame_equal(back.rows.reset_index(drop=True), rows.reset_index(drop=True), check_dtype=False)
    assert back.timing["seconds"].tolist() == [2]
    with pytest.raises(ValueError, match="no finished groups"):
        publish([tmp_path / "nothing"], tmp_path)
