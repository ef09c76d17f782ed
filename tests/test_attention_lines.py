"""The table of claims of docs/attention.md: words that turn with the rows, numbers by hand, rows that are added."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.pages import lssar_training
from stau_rl.pages.attention_asked import KEYS, ROWS, SECONDS, Asked, publish_claims
from stau_rl.pages.attention_asked_tables import gate_table, smoothed
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.attention_evidence import (
    MAIN_CELL,
    Share,
    above,
    best_rate,
    gate_text,
    grid_cells,
    grid_rows,
    mean_text,
    overflow,
    passing,
    short,
    starving,
    taught,
)
from stau_rl.pages.attention_lines import ROTARY, SMOOTHED, attention_lines
from stau_rl.pages.attention_text import sentences
from stau_rl.pages.lssar_training import MOST, TRAINED, training_rows
from stau_rl.pages.paths import RESULTS
from stau_rl.probe.claims_plan import LSSAR, LSSAR_FIR, MQAR, claims
from stau_rl.probe.folder import read_probe
from stau_rl.probe.model import Shape
from stau_rl.probe.plan import Setting
from stau_rl.probe.run import run_settings
from stau_rl.probe.train import Recipe


@pytest.fixture(scope="module")
def data() -> AttentionData:
    """Without the trained scores, which have tests of their own."""
    return replace(AttentionData.load(), trained=None)


@pytest.fixture(scope="module")
def asked(data: AttentionData) -> Asked:
    assert data.asked is not None
    return data.asked


def changed(
    data: AttentionData, part: str, normaliser: str, factor: int | None = None, **values: float
) -> AttentionData:
    """The rows with other numbers for one head in a part."""
    assert data.asked is not None
    rows = data.asked.rows.copy()
    mine = rows["part"].str.startswith(part) & (rows["normaliser"] == normaliser)
    if factor is not None:
        mine &= rows["factor"] == factor
    assert mine.any()
    for name, value in values.items():
        rows.loc[mine, name] = value
    return replace(data, asked=replace(data.asked, rows=rows))


def verdict(data: AttentionData, claim: str) -> str:
    (line,) = [line for line in attention_lines(data) if line.claim.startswith(claim)]
    return line.verdict


def test_the_rows_are_those_of_the_plan_and_say_where_they_come_from(asked: Asked) -> None:
    rows = asked.rows
    assert (RESULTS / ROWS).stat().st_size < 2_000_000
    assert rows["commit"].str.fullmatch("[0-9a-f]{40}").all()
    assert asked.why["commit"].str.fullmatch("[0-9a-f]{40}").all()
    assert not rows.duplicated(KEYS).any()
    for setting in (setting for name in ("gates", "calibrated", "silence share", "lssar") for setting in claims(name)):
        own = rows[(rows["part"] == setting.part) & (rows["task"] == setting.task)]
        assert set(own["normaliser"]) == set(setting.normalisers)
        assert (own.groupby("normaliser")["seed"].nunique() == len(setting.seeds)).all()
    assert grid_cells(asked)[0] == MAIN_CELL
    for cell in grid_cells(asked):
        own = grid_rows(asked, cell=cell)
        each = own.groupby(["rate", "normaliser"])["seed"].nunique().unstack()
        assert {*each.columns} == {*MQAR}
        assert (each == 16).all(axis=None)
        assert len(each) >= 3
    assert set(asked.timing["part"]) == set(rows["part"])
    for name, spec in rows[["normaliser", "spec"]].drop_duplicates().itertuples(index=False):
        assert parse_attention(name) == parse_attention(spec), name
    assert {smoothed(name) for name in LSSAR} == {*LSSAR_FIR}


def test_shares_of_seeds_by_hand(asked: Asked) -> None:
    rows = asked.of("gates", gate_text("clamp", 0.0))
    by_hand = sum(
        row["mass_unanswerable"] <= 0.01
        and row["decoded"] >= 0.96
        and row["recall"] >= 0.96
        and row["false_refusal"] <= 0.05
        for row in rows.to_dict("records")
    )
    assert passing(rows) == Share(by_hand, 40)
    assert starving(rows).held == sum(row["decoded_worst_key"] < 0.5 for row in rows.to_dict("records"))
    assert "| min(1, m) |" in gate_table(asked)
    # Wilson's interval of 8 of 10 is known.
    assert Share(8, 10).text == "8 of 10 [.49, .94]"
    assert (Share(39, 40).verdict, Share(20, 40).verdict, Share(1, 40).verdict) == (
        "reproduced",
        "reproduced in part",
        "not reproduced",
    )


def test_numbers_read_as_they_are() -> None:
    assert (short(0.5), short(1.0), short(0.999, 2)) == (".500", "1.000", "1.00")
    assert mean_text(np.array([0.5, 0.5])) == ".500"
    # Student's t for one degree of freedom is 12.706: cut to [0, 1].
    assert mean_text(np.array([0.4, 0.6])) == ".500 [.000, 1.000]"
    first = np.array([0.9, 0.91, 0.92])
    assert (above(first, first - 0.2), above(first - 0.2, first), above(first, first - 0.001)) == (1, -1, 0)
    assert overflow(2, torch.float16) == pytest.approx(255.94, abs=0.01)


def test_means_over_seeds_are_those_of_the_rows(asked: Asked) -> None:
    rows = asked.rows[(asked.rows["part"] == "silence share") & (asked.rows["normaliser"] == "sm_fir")]
    for share, task in ((0.0, "silence(unanswerable=0)"), (0.5, "silence(unanswerable=0.5)")):
        assert taught(asked).of("sm_fir", share) == pytest.approx(rows[rows["task"] == task]["hallucination"].mean())
    rate, values = best_rate(asked, "softmax_conv")
    means = grid_rows(asked, "softmax_conv").groupby("rate")["decoded"].mean()
    assert values.mean() == pytest.approx(means.max())
    assert means[rate] == means.max()


MUTE, LOW = {"hallucination": 0.0}, {"decoded": 0.1}
SILENT = {"mass_unanswerable": 0.0, "decoded": 1.0, "recall": 1.0, "false_refusal": 0.0}


@pytest.mark.parametrize(
    ("claim", "part", "head", "factor", "values", "before", "after"),
    [
        ("pn_fir_tau falls", "gates", gate_text("clamp", 0.0), None, {"decoded": 0.9}, "reproduced", "not reproduced"),
        ("the same, gate", "gates", gate_text("hill", 0.0), None, SILENT, "not reproduced", "reproduced"),
        (
            "its threshold",
            "gates",
            gate_text("clamp", None),
            None,
            {"recall": 0.5},
            "not reproduced",
            "reproduced",
        ),
        (
            *("learned, it starves", "gates", gate_text("clamp", 0.0), None, {"decoded_worst_key": 0.1}),
            *("not reproduced", "not reproduced, more"),
        ),
        ("calibrated start, min", "calibrated", "pn_fir_tau_calibrated", None, SILENT, "not reproduced", "reproduced"),
        (
            "pn_fir_tau makes",
            "silence share",
            "pn_fir_tau",
            None,
            {"hallucination": 0.0},
            "another cause",
            "reproduced",
        ),
        ("recall needs", "mqar grid", "softmax_conv", None, {"decoded": 0.2}, "another cause", "reproduced"),
        ("16 pairs", "mqar grid", "pn_fir_tau", None, {"decoded": 0.2}, "reproduced", "not reproduced"),
        (
            "LSSAR: p = 15",
            SMOOTHED,
            "lssar_p3(fir_taps=7)",
            16,
            {"decoded": 0.1},
            "not reproduced",
            "reproduced in part",
        ),
        ("LSSAR: p = 3", SMOOTHED, "lssar_p3(fir_taps=7)", 1, {"decoded": 0.1}, "reproduced", "not reproduced"),
        ("p = 15 is as good", "lssar, one value", "lssar", 1, {"decoded": 1.0}, "not reproduced", "reproduced"),
        ("p = 3 keeps", ROTARY, "lssar_p3(fir_taps=7)", None, {"decoded": 1.0}, "not reproduced", "reproduced"),
        ("softplus inside", SMOOTHED, "lssar(fir_taps=7)", 16, {"decoded": 1.0}, "reproduced in part", "reproduced"),
    ],
)
def test_a_verdict_turns_with_the_rows(
    data: AttentionData,
    claim: str,
    part: str,
    head: str,
    factor: int | None,
    values: dict[str, float],
    before: str,
    after: str,
) -> None:
    assert verdict(data, claim) == before
    assert verdict(changed(data, part, head, factor, **values), claim) == after


def test_verdicts_of_the_first_study_turn_too(data: AttentionData) -> None:
    rows = data.rows.copy()
    rows.loc[rows["normaliser"].isin(("sigmoid_fir", "sm_fir")), "decoded"] = 0.3
    other = replace(data, rows=rows)
    assert (verdict(data, "only normalised"), verdict(other, "only normalised")) == ("not reproduced", "reproduced")
    assert (verdict(data, "noise"), verdict(other, "noise")) == ("not reproduced", "reproduced")


def test_sentences_turn_with_the_rows(data: AttentionData, asked: Asked) -> None:
    first, second, third = sentences(asked)
    assert first.startswith("Silence is taught:")
    held = passing(asked.of("gates", gate_text("clamp", 0.0))).held
    assert f"the gate keeps {held} of 40 seeds silent" in second
    mute = changed(data, "silence share", "pn_fir_tau", hallucination=0.0).asked
    assert mute is not None
    assert sentences(mute)[0].startswith("Silence comes with the head:")
    assert "it is training that fails" in third
    why = asked.why.copy()
    why.loc[why["trained"] == "lssa", "decoded"] = 0.4
    assert "training alone does not explain it" in sentences(replace(asked, why=why))[2]


def test_only_published_numbers_stand_as_published(data: AttentionData) -> None:
    """What the papers say, as far as it is known here; all other claims have none."""
    published = {line.published for line in attention_lines(data)}
    assert published == {"-", "27.2-34.4 %", "0.0 %", "44.5 %"}


def test_x_to_the_15_overflows_where_it_says(data: AttentionData) -> None:
    (line,) = [line for line in attention_lines(data) if line.claim == "x^15 overflows"]
    limit = int(line.measured.rpartition(" ")[2])
    assert torch.tensor(limit - 1.0).pow(15).isfinite()
    assert torch.tensor(limit + 1.0).pow(15).isinf()
    assert line.verdict == "reproduced; not here"


def test_probes_are_added_to_the_committed_rows(tmp_path: Path) -> None:
    recipe = Recipe(1, 4, warm_up=1)

    def played(name: str, part: str, heads: tuple[str, ...]) -> Path:
        run_settings([Setting(part, "silence", heads, (0, 1), Shape(8), recipe, 16)], "cpu", tmp_path / name)
        return tmp_path / name

    results = tmp_path / "results"
    results.mkdir()
    first, second = played("a", "x, one", ("sm_fir",)), played("b", "x, two", ("sm_fir", "pn_fir"))
    publish_claims([first], results)
    before = read_probe(results / ROWS)
    publish_claims([second], results)
    rows = read_probe(results / ROWS)
    pd.testing.assert_frame_equal(rows.iloc[:2], before, check_dtype=False)
    assert rows["part"].tolist() == ["x, one"] * 2 + ["x, two"] * 4
    # The same again adds nothing; a stopped probe has groups and no table.
    (second / "probe.csv").unlink()
    publish_claims([first, second], results)
    assert len(read_probe(results / ROWS)) == 6
    assert pd.read_csv(results / SECONDS)["part"].tolist() == ["x, one", "x, two"]
    assert "group" not in rows
    with pytest.raises(ValueError, match="has no finished group; name a folder"):
        publish_claims([tmp_path / "none"], results)


def test_the_small_study_trains_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lssar_training, "ITEMS", 128)
    rows = pd.DataFrame(training_rows(1, 2, (3,)))
    assert set(rows["trained"]) == {*TRAINED}
    assert set(rows.loc[rows["steps"] == 2, "trained"]) == {MOST}
    # One step teaches nothing, and re-weighting gives all places below their fair share nothing.
    zero = rows.groupby("trained")["zero"].first()
    assert zero["lssa"] == 0.0
    assert 0.3 < zero[MOST] < 0.9
    assert zero[[name for name in TRAINED if name.startswith("lssar")]].nunique() <= 2
