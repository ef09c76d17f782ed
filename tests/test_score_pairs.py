"""Any head against any other on captured scores, in parts, pooled, and on drawn rows: by hand and by other ways."""

import math
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import stau_rl
from stau_rl.calibration import mean_entropy, score_analysis, score_source, tau_star
from stau_rl.calibration.score_source import drawn_rows
from stau_rl.cli.main import main
from stau_rl.heads import HEADS, parse_head
from stau_rl.plugin.plugin_head import forget

NUMBERS = ["kl", "entropy", "sparsity", "top10_mass", "sink_rate", "mean_weight"]


def normal(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_two_heads_by_hand() -> None:
    """Softmax of (0, ln 2, ln 5) is (1, 2, 5) / 8; relu_norm's weights are (0, ln 2, ln 5) / ln 10."""
    scores = torch.tensor([[0.0, math.log(2), math.log(5)]], dtype=torch.float64)
    table = stau_rl.analyse(scores, head="relu_norm", against="softmax").set_index("role")
    p, q = np.array([0.0, math.log(2), math.log(5)]) / math.log(10), np.array([1, 2, 5]) / 8
    given = table.loc["given"]
    assert given["kl"] == pytest.approx((p[1:] * np.log(p[1:] / q[1:])).sum(), rel=1e-13)
    assert given["distance"] == pytest.approx(np.abs(p - q).sum() / 2, rel=1e-13)
    assert (given["mass"], given["silent"], given["sink_rate"]) == (pytest.approx(1.0), 0.0, 0.0)
    assert table.loc["reference", ["kl", "distance"]].tolist() == [0.0, 0.0]
    matched = parse_head(table.loc["as sharp", "weights"])
    assert mean_entropy(matched, scores) == pytest.approx(-(p[1:] * np.log(p[1:])).sum(), rel=1e-12)
    # The other way round a key has weight 1/8 and share 0.
    assert stau_rl.analyse(scores, against="relu_norm")["kl"].tolist() == [0.0, math.inf]


def test_silent_rows_have_a_mass_but_no_shares() -> None:
    scores = torch.tensor([[-1.0, -2.0], [2.0, -1.0]], dtype=torch.float64)
    table = stau_rl.analyse(scores, against="power_norm(p=2)")
    given = table.iloc[1]
    first = 1 / (1 + math.exp(-3))
    assert (given["mass"], given["silent"], given["rows"]) == (0.5, 0.5, 2)
    assert given["distance"] == pytest.approx(1 - first, rel=1e-12)
    # Its mass may be less than 1, so that no sharpness makes it as sharp.
    assert table["role"].tolist() == ["reference", "given"]


@pytest.mark.parametrize("name", list(HEADS))
def test_every_head_on_either_side(name: str) -> None:
    """The distance is the same both ways, and a head has none from itself."""
    scores, mask = normal(9, 7), torch.rand(9, 7, generator=torch.Generator().manual_seed(1)) < 0.8
    there = stau_rl.analyse(scores, mask, head=name, against="softmax").set_index("role")
    back = stau_rl.analyse(scores, mask, against=name).set_index("role")
    np.testing.assert_allclose(there.loc["given", "distance"], back.loc["given", "distance"], rtol=1e-12)
    assert there.loc["reference", ["kl", "distance"]].tolist() == [0.0, 0.0]
    weights, mass = parse_head(name).weights_and_mass(scores, mask=mask)
    alive = mass > 1e-6
    assert back.loc["given", "mass"] == pytest.approx(float(mass.mean()), abs=1e-12)
    shares = weights[alive] / weights[alive].sum(-1, keepdim=True)
    assert back.loc["given", "entropy"] == pytest.approx(float(torch.special.entr(shares).sum(-1).mean()), abs=1e-12)
    assert back.loc["given", "silent"] == pytest.approx(float((~alive).double().mean()))


def test_where_no_value_is_as_sharp_the_row_is_empty() -> None:
    table = stau_rl.analyse(normal(3, 5), head="softmax(beta=0)", against="s_tau(tau=2)").set_index("role")
    assert table.loc["as sharp", NUMBERS].isna().all()
    assert table.loc["given", NUMBERS].notna().all()


@pytest.mark.parametrize("against", [None, "s_tau(tau=4)"])
def test_the_size_of_parts_and_the_cores_change_nothing_but_rounding(
    monkeypatch: pytest.MonkeyPatch, against: str | None
) -> None:
    scores, mask = normal(1, 2, 18, 5), torch.rand(18, 5, generator=torch.Generator().manual_seed(3)) < 0.7
    whole = stau_rl.analyse(scores, mask, against=against, pooled=True).drop(columns="weights")
    # Of many parts a few find where to begin; of few all do.
    for entries, kept in ((5, 0), (33, 1 << 20)):
        monkeypatch.setattr(score_source, "ENTRIES", entries)
        monkeypatch.setattr(score_source, "KEPT", kept)
        monkeypatch.setattr(score_analysis, "KEPT", 0)
        parts = stau_rl.analyse(scores, mask, against=against, pooled=True)
        pd.testing.assert_frame_equal(parts.drop(columns="weights"), whole, rtol=1e-12)
        monkeypatch.setattr(score_analysis, "on_all_cores", lambda function, items: [function(one) for one in items])
        pd.testing.assert_frame_equal(stau_rl.analyse(scores, mask, against=against, pooled=True), parts, rtol=0)


def test_little_work_takes_one_thread_and_none_of_torch_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    look = score_source.Source._look

    def watched(self: score_source.Source, place: tuple[int, int], rows: torch.Tensor) -> object:
        seen.append((threading.current_thread().name, torch.get_num_threads()))
        return look(self, place, rows)

    monkeypatch.setattr(score_source.Source, "_look", watched)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        stau_rl.analyse(normal(4, 4))
        assert seen == [("MainThread", 1)]
        monkeypatch.setattr(score_analysis, "KEPT", 0)
        stau_rl.analyse(normal(4, 4))
        assert seen[1][0].startswith("ThreadPool")
        assert (seen[1][1], torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


def test_pooled_heads_are_one_head_of_all_their_rows() -> None:
    scores = normal(3, 20, 9)
    table = stau_rl.analyse(scores, causal=True, pooled=True)
    mask = torch.ones(20, 9, dtype=torch.bool).tril(9 - 20)
    found = tau_star(scores[:, mask.any(-1)], mask=mask[mask.any(-1)], pool="all")
    last = table.iloc[-3:]
    assert last["head"].tolist() == ["all"] * 3
    assert last["tau"].tolist()[1:] == pytest.approx([float(found.closed_form), float(found.newton)], rel=1e-13)
    assert last["rows"].tolist() == [3 * 9] * 3
    # As many rows in each head, so that means are means of means.
    each = table.iloc[:-3].query("weights == 'softmax'")
    for name in NUMBERS:
        assert last[name].iloc[0] == pytest.approx(each[name].mean(), rel=1e-13)


def test_drawing_every_row_leaves_no_interval() -> None:
    scores = normal(40, 12)
    for against in (None, "s_tau(tau=4)"):
        whole, drawn = stau_rl.analyse(scores, against=against), stau_rl.analyse(scores, against=against, rows=99)
        pd.testing.assert_frame_equal(drawn[whole.columns], whole, rtol=1e-12)
        for name in NUMBERS:
            np.testing.assert_allclose(drawn[f"{name}_high"], drawn[name], atol=1e-12)
            np.testing.assert_allclose(drawn[f"{name}_low"], drawn[name], atol=1e-12)


def test_rows_are_drawn_by_seed_without_replacement() -> None:
    first = drawn_rows(100, 30, 0, 0)
    assert torch.equal(first, drawn_rows(100, 30, 0, 0))
    assert first.unique().tolist() == first.tolist()
    assert not torch.equal(first, drawn_rows(100, 30, 1, 0))
    assert not torch.equal(first, drawn_rows(100, 30, 0, 1))


@pytest.mark.parametrize("against", [None, "s_tau(tau=4)"])
def test_the_intervals_of_drawn_rows_cover_what_all_rows_give(against: str | None) -> None:
    """60 draws of 50 of 400 rows whose scale differs; below 50 of 60 has probability 3e-4 if coverage is 0.95."""
    scale = torch.linspace(0.5, 3.0, 400, dtype=torch.float64)[:, None]
    scores = scale * normal(400, 16, scale=1.0)
    whole = stau_rl.analyse(scores, against=against)
    names = ["kl", "entropy", "sparsity", "top10_mass", *(["tau"] if against is None else [])]
    hits = pd.DataFrame(0, index=whole.index, columns=names)
    widths = []
    for seed in range(60):
        drawn = stau_rl.analyse(scores, against=against, rows=50, seed=seed)
        for name in names:
            near = (drawn[f"{name}_low"] <= whole[name] + 1e-12) & (whole[name] <= drawn[f"{name}_high"] + 1e-12)
            hits[name] += near | whole[name].isna()
        widths.append(float((drawn["entropy_high"] - drawn["entropy_low"]).iloc[0]))
    assert hits.to_numpy().min() >= 50
    # The spread of the draws themselves: an interval is 2 t(49) = 4.02 standard errors wide.
    means = [float(stau_rl.analyse(scores, rows=50, seed=seed)["entropy"].iloc[0]) for seed in range(60)]
    assert np.mean(widths) == pytest.approx(4.02 * np.std(means, ddof=1), rel=0.3)


def test_a_share_of_no_row_at_all_has_an_interval() -> None:
    """Wilson's of 0 in 20 of 40 rows: z^2 (1 - f) / n = 3.84 / 40, divided by 1 plus that."""
    row = stau_rl.analyse(normal(40, 30, scale=0.1), rows=20).iloc[0]
    ratio = 1.959964**2 / 40
    assert (row["sink_rate"], row["sink_rate_low"]) == (0.0, 0.0)
    assert row["sink_rate_high"] == pytest.approx(ratio / (1 + ratio), rel=1e-6)


def test_the_command_compares_a_head_of_ones_own_and_pools_three_axes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my_head.py"
    file.write_text(
        "from stau_rl.plugin import head\n\n\n"
        '@head("cubic_pair")\ndef cubic(scores):\n    """|s|^3"""\n    return 3 * scores.abs().log()\n'
    )
    np.save(tmp_path / "scores.npy", normal(2, 30, 8).numpy())
    out = tmp_path / "table.csv"
    asked = ["analyse", str(tmp_path / "scores.npy"), "--against", "cubic_pair", "--plugin", str(file)]
    try:
        main([*asked, "--rows", "20", "--out", str(out)])
    finally:
        forget("cubic_pair")
    printed = capsys.readouterr().out
    table = pd.read_csv(out)
    assert table["weights"].tolist() == ["softmax(beta=1)", "cubic_pair"] * 3
    assert table["head"].tolist() == ["0", "0", "1", "1", "all", "all"]
    # |s|^3 over its sum is the escort of p = 3.
    escort = stau_rl.analyse(normal(2, 30, 8), against="escort(p=3)", rows=20, pooled=True).query("role != 'as sharp'")
    for name in (*NUMBERS, "distance", "kl_low", "kl_high"):
        np.testing.assert_allclose(table[name], escort[name], rtol=1e-9, err_msg=name)
    assert f"[{table.kl_low[1]:.3g}, {table.kl_high[1]:.3g}]" in printed
    main([*asked[:2], "--against", "escort"])
    assert " all: " in capsys.readouterr().out
