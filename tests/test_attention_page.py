"""docs/attention.md: the same bytes from the committed rows, and verdicts that follow numbers."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
import seaborn

from stau_rl.agents.attention.attention_spec import parse_attention
from stau_rl.figures.save import both
from stau_rl.pages import attention as attention_page
from stau_rl.pages.attention_claims import EXPECTED, Expected, expected_rows, family, length_sentences
from stau_rl.pages.attention_data import MAPS, MASSES, ROWS, SECONDS, AttentionData, publish
from stau_rl.pages.attention_figures import figures, save_figures
from stau_rl.pages.attention_tables import tables_page
from stau_rl.pages.attention_text import page
from stau_rl.pages.notebook_outputs import without_outputs
from stau_rl.pages.notebooks import ATTENTION, notebook
from stau_rl.pages.paths import RESULTS, ROOT
from stau_rl.probe.model import Shape
from stau_rl.probe.plan import Setting
from stau_rl.probe.run import run_settings
from stau_rl.probe.train import Recipe


@pytest.fixture(scope="module")
def data() -> AttentionData:
    return AttentionData.load()


def test_page_and_notebook_are_those_of_the_committed_rows(data: AttentionData) -> None:
    for path, text in ((attention_page.PAGE, page(data)), (attention_page.TABLES, tables_page(data))):
        assert path.read_text(encoding="utf-8") == text, "run python -m stau_rl.pages.attention"
    kept = json.loads(attention_page.NOTEBOOK.read_text(encoding="utf-8"))
    assert without_outputs(kept) == notebook(ATTENTION), "run python -m stau_rl.pages.attention"


def test_figures_are_those_of_the_committed_rows(data: AttentionData, tmp_path: Path) -> None:
    save_figures(data, tmp_path)
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name in figures(data):
        for path in both(tmp_path / name):
            fresh, committed = path.read_bytes(), (attention_page.PAGE.parent / path.name).read_bytes()
            assert len(committed) < 250_000
            if f"matplotlib=={mpl.__version__}" in pins and f"seaborn=={seaborn.__version__}" in pins:
                assert fresh == committed, f"{path.name}: run python -m stau_rl.pages.attention"
        pages = (attention_page.PAGE, attention_page.TABLES)
        assert any(f"]({name})" in path.read_text(encoding="utf-8") for path in pages)


def test_the_rows_are_small_and_say_where_they_come_from(data: AttentionData) -> None:
    for name in (ROWS, MAPS, MASSES, SECONDS):
        assert (RESULTS / name).stat().st_size < 1_000_000
    assert data.rows["commit"].str.fullmatch("[0-9a-f]{40}").all()
    assert data.rows["versions"].str.contains("torch=").all()
    assert data.rows["seed"].nunique() >= 5


def test_the_names_of_the_rows_mean_what_was_trained(data: AttentionData) -> None:
    pairs = data.rows[["normaliser", "spec"]].drop_duplicates()
    assert len(pairs) == 79
    for name, spec in pairs.itertuples(index=False):
        assert parse_attention(name) == parse_attention(spec), name
    assert {*data.maps["normaliser"], *data.masses["normaliser"]} <= {*pairs["normaliser"]}


def test_a_verdict_turns_with_the_number(data: AttentionData) -> None:
    rows = data.rows.copy()
    mine = (rows["part"] == "recall") & (rows["normaliser"] == "sm_fir")
    assert mine.any()
    claim = next(claim for claim in EXPECTED if (claim.normaliser, claim.metric) == ("sm_fir", "decoded"))
    for value, holds in ((0.995, True), (0.985, False)):
        rows.loc[rows.index[mine][0], "decoded"] = value
        rows.loc[rows.index[mine][1:], "decoded"] = 1.0
        changed = replace(data, rows=rows)
        assert claim.holds(changed) == holds
        (line,) = [line for line in expected_rows(changed) if line[:3] == ("recall", "`sm_fir`", "decoded")]
        assert line[-1] == ("yes" if holds else "**no**")


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (Expected("recall", "x", "decoded", 0.1, 0.35, every=False), "0.1 to 0.35 in the median"),
        (Expected("recall", "x", "decoded", low=0.99), ">= 0.99 on every seed"),
        (Expected("silence", "x", "mass_unanswerable", low=1.0), "1 on every seed"),
        (Expected("silence", "x", "false_refusal", high=0.05), "<= 0.05 on every seed"),
    ],
)
def test_expectations_read_as_they_are_checked(expected: Expected, text: str) -> None:
    assert expected.text == text


def length_data(data: AttentionData, table: dict[str, tuple[float, float]]) -> AttentionData:
    base = {"part": "length", "task": "passkey", "seed": 0}
    rows = [
        base | {"normaliser": name, "factor": factor, "decoded": value}
        for name, pair in table.items()
        for factor, value in zip((1, 16), pair, strict=True)
    ]
    return replace(data, rows=pd.DataFrame(rows))


def test_sentences_on_length_follow_the_numbers(data: AttentionData) -> None:
    table = {
        "softmax": (1.0, 0.5),
        "lssa": (1.0, 0.6),
        "lssar_p3": (1.0, 0.99),
        "lssar": (1.0, 0.98),
        "reweight_softmax(scores=dot)": (1.0, 0.7),
    }
    good = list(length_sentences(length_data(data, table)))
    assert len(good) == 4
    assert all('" reproduces on' in sentence for sentence in good)
    table |= {
        "softmax": (1.0, 0.9),
        "lssa": (0.9, 0.6),
        "lssar": (1.0, 0.9),
        "reweight_softmax(scores=dot)": (1.0, 0.99),
    }
    bad = list(length_sentences(length_data(data, table)))
    assert all('" does not reproduce on' in sentence for sentence in bad)
    assert "behind softmax (plain scores, a second difference) keeps 99 % (99 %)" in bad[-1]
    # Where there is re-weighted softmax of the same scores, that is what counts.
    same = list(length_sentences(length_data(data, table | {"reweight_softmax": (1.0, 0.6)})))
    assert '" reproduces on' in same[-1]
    assert "behind softmax (the same scores) keeps 60 % (60 %)" in same[-1]
    # A claim is judged on every seed, not on medians: three seeds keep all, one loses a quarter.
    seeds = [length_data(data, table | {"lssar": (1.0, 1.0), "lssar_p3": (1.0, last)}).rows for last in (1, 1, 1, 0.75)]
    mixed = pd.concat([rows.assign(seed=number) for number, rows in enumerate(seeds)])
    (kept,) = [text for text in length_sentences(replace(data, rows=mixed)) if "keeps the recall" in text]
    assert '" reproduces on 3 of 4 seeds on' in kept
    assert "p = 3 keeps 100 % (75 %)" in kept
    # What was never learned can be neither kept nor lost.
    unlearned = dict.fromkeys(table, (0.1, 0.1))
    none = list(length_sentences(length_data(data, unlearned)))
    assert all('" cannot be judged on' in sentence for sentence in none)
    assert family("sm_fir") == family("softmax") == "softmax"
    assert family("lssar_p3(fir_taps=7)") == "lssar_p3"


def test_multi_query_recall_is_held_to_what_is_expected(data: AttentionData) -> None:
    data = plain(data)
    like = data.seeds("recall", "recall", "softmax").iloc[0].to_dict() | {"part": "mqar", "task": "mqar"}
    for value, holds in ((0.995, "yes"), (0.985, "**no**")):
        rows = pd.concat([data.rows, pd.DataFrame([like | {"decoded": value}])], ignore_index=True)
        (line,) = [line for line in expected_rows(replace(data, rows=rows)) if line[0] == "mqar"]
        assert line[1:4] == ("`softmax`", "decoded", ">= 0.99 on every seed")
        assert line[-1] == holds


def plain(data: AttentionData) -> AttentionData:
    """Recall and silence alone, which a page needs."""
    return replace(data, asked=None, trained=None, rows=data.rows[data.rows["part"].isin(("recall", "silence"))])


def changed(data: AttentionData, part: str, numbers: dict[str, list[float]], normaliser: str) -> AttentionData:
    """The silence rows of one head, a row per value, as rows of another part with some numbers of its own."""
    like = data.seeds("silence", "silence", "pn_fir_tau_hill_calibrated").iloc[0].to_dict()
    count = len(next(iter(numbers.values())))
    own = [
        like | {"part": part, "normaliser": normaliser, "seed": seed} | {name: of[seed] for name, of in numbers.items()}
        for seed in range(count)
    ]
    return replace(data, rows=pd.concat([data.rows, pd.DataFrame(own)], ignore_index=True))


def test_sentences_on_thresholds_follow_the_numbers(data: AttentionData) -> None:
    data = plain(data)
    for start, worst, mass in (("0", 0.97, 0.002), ("2", 0.3, 0.001), ("-2", 0.99, 0.8)):
        numbers = {"decoded": [1.0, worst], "mass_unanswerable": [mass, mass]}
        data = changed(data, "threshold", numbers, f"pn_fir_tau(threshold={start})")
    data = changed(data, "threshold", {"decoded": [0.981, 1.0]}, "pn_fir_tau(threshold=2, calibrate=threshold)")
    text = tables_page(data)
    assert "less than .96 of the answers right from `pn_fir_tau(threshold=2)`; the median mass" in text
    assert "is above .01 from `pn_fir_tau(threshold=-2)`." in text
    assert "the worst seed of all starts gives 0.981 right answers" in text


def test_sentences_on_silence_follow_the_numbers(data: AttentionData) -> None:
    data = plain(data)
    for name, auroc in (("sm_fir", 0.5), ("pn_fir", 0.93)):
        data = changed(data, "null label", {"auroc": [auroc, auroc]}, name)
    assert "AUROC of row mass goes from 0.500 (`sm_fir`) to 0.930 (`pn_fir`):" in (text := tables_page(data))
    assert "may leave a key unlearned" in text
    assert "`pn_fir_tau_hill_calibrated` 1 of 5 seeds" in text
    rows = data.rows.copy()
    rows.loc[rows["part"] == "silence", "decoded_worst_key"] = 1.0
    assert "may leave a key unlearned" not in tables_page(replace(data, rows=rows))


def test_a_folder_that_cannot_be_published_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        attention_page.main(["--publish", str(tmp_path / "none")])
    assert "No such file" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        attention_page.main(["--claims", str(tmp_path / "none")])
    assert "has no finished group" in capsys.readouterr().err
    run_settings([Setting("recall", "recall", ("softmax",), (0,), Shape(8), Recipe(1, 4, warm_up=1), 8)], out=tmp_path)
    results = tmp_path / "results"
    results.mkdir()
    with pytest.raises(ValueError, match="holds none of sm_fir"):
        publish(tmp_path, results)
    assert not list(results.iterdir())


def test_a_run_becomes_rows_and_a_page(tmp_path: Path) -> None:
    recipe = Recipe(steps=2, batch=4, warm_up=1)
    heads = ("sm_fir", "pn_fir_tau_calibrated")
    settings = [Setting(task, task, heads, (0, 1), Shape(8), recipe, 32) for task in ("recall", "silence")]
    run_settings(settings, out=tmp_path / "run")
    results = tmp_path / "results"
    results.mkdir()
    publish(tmp_path / "run", results)
    shutil.rmtree(tmp_path / "run")
    small = AttentionData.load(results)
    text = tables_page(small)
    assert "2 steps of 4 fresh items" in text
    assert "## Length" not in text
    assert page(small).startswith("# Attention heads")
    save_figures(small, tmp_path)
    assert (tmp_path / "attention_silence.png").stat().st_size > 1000
    assert len(small.maps) == 2 * 8 * 17
