"""Captured scores: tau* of each head against a grid search, weights by hand, and what a bad file gets."""

import io
import math
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import stau_rl
from stau_rl.calibration.score_files import read_scores
from stau_rl.cli.main import main
from stau_rl.heads import STau
from stau_rl.pages.attention_data import TAUS
from stau_rl.pages.paths import RESULTS
from stau_rl.pages.tau_star import sentence, study, trained_scores


def normal(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_tau_star_on_a_trained_transformer(capsys: pytest.CaptureFixture[str]) -> None:
    scores, mask, loss = trained_scores()
    # Better than guessing one of the four values of the context.
    assert loss < math.log(4)
    rows = study(scores, mask)
    assert len(rows) == 24
    # The grid's last step is 11 / 22 / 11^3, and a KL near its minimum is flat.
    np.testing.assert_allclose(rows.tau_newton, rows.tau_grid, atol=1e-3)
    np.testing.assert_allclose(rows.kl_newton, rows.kl_grid, rtol=1e-4, atol=1e-9)
    assert (rows.kl_closed >= rows.kl_newton).all()
    # The closed form weighs all keys alike, the divergence the likely ones: they agree in direction, not in value.
    assert np.corrcoef(rows.tau_closed, rows.tau_grid)[0, 1] > 0.2
    with capsys.disabled():
        print(f"\n{sentence(rows)}")
    # Another processor trains other last digits, but the same kind of heads.
    kept = pd.read_csv(RESULTS / TAUS)
    assert kept[["layer", "head"]].equals(rows[["layer", "head"]])
    assert kept.kl_grid.median() == pytest.approx(rows.kl_grid.median(), rel=0.2)


def test_the_numbers_of_one_head_by_hand() -> None:
    """Softmax of (0, ln 2, ln 5) is (1, 2, 5) / 8; the second row sees two keys: (1/3, 2/3)."""
    scores = torch.tensor([[0.0, math.log(2), math.log(5)], [0.0, math.log(2), math.nan]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    row = stau_rl.analyse(scores[None, None], mask).iloc[0]
    entropy = [-(p * np.log(p)).sum() for p in (np.array([1, 2, 5]) / 8, np.array([1, 2]) / 3)]
    assert row.entropy == pytest.approx(np.mean(entropy), rel=1e-14)
    assert row.mean_weight == pytest.approx(2 / 5, rel=1e-14)
    assert (row.rows, row.sparsity, row.sink_rate, row.top10_mass) == (2, 0.0, 0.5, pytest.approx(1.0))


@pytest.mark.parametrize("fill", [-1e4, -65504.0, -1e9, float(torch.finfo(torch.float32).min)])
@pytest.mark.parametrize("added", [False, True], ids=["in place", "added"])
def test_a_mask_written_as_a_number_is_noticed_and_left_out_on_request(fill: float, added: bool) -> None:
    scores = normal(2, 2, 5, 7)
    lower = torch.ones(5, 7, dtype=torch.bool).tril(2)
    filled = torch.where(lower, scores, scores + fill if added else fill)
    # Of each of the four heads' 35 entries, query i of 5 sees i + 3 of 7 keys: 4 + 3 + 2 + 1 are masked.
    with pytest.warns(
        UserWarning, match=rf"^{4 * 10} of {4 * 35} unmasked scores lie below -1000, down to -"
    ) as caught:
        silent = stau_rl.analyse(filled)
    assert "masked_below=-1000" in str(caught[0].message)
    expected = stau_rl.analyse(scores, lower)
    assert float(silent.tau.max()) > 10 * float(expected.tau.max())
    pd.testing.assert_frame_equal(stau_rl.analyse(filled, masked_below=-1000.0), expected)
    pd.testing.assert_frame_equal(stau_rl.analyse(filled, lower), expected)
    pd.testing.assert_frame_equal(stau_rl.analyse(filled.numpy(), causal=True), expected)


def test_ordinary_scores_give_no_warning_and_low_ones_are_kept() -> None:
    """Scores of a few hundred are large, not masked; NaN is not lower than anything."""
    table = stau_rl.analyse(normal(1, 1, 4, 6, scale=200.0))
    assert table["rows"].tolist() == [4] * 3
    with pytest.raises(ValueError, match="hold 4 NaN"):
        stau_rl.analyse(torch.full((1, 1, 2, 2), math.nan), masked_below=-1000.0)
    for bad in (math.nan, -math.inf):
        with pytest.raises(ValueError, match="masked_below must be finite or None, got "):
            stau_rl.analyse(normal(1, 1, 2, 2), masked_below=bad)


def test_the_command_says_what_looks_masked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = normal(1, 1, 6, 6).float().numpy()
    lower = np.tril(np.ones((6, 6), dtype=bool))
    np.savez(tmp_path / "scores.npz", scores=np.where(lower, scores, np.float32(-1e4)))
    main(["analyse", str(tmp_path / "scores.npz")])
    assert "warning: 15 of 36 unmasked scores lie below -1000, down to -1e+04" in capsys.readouterr().err
    out = tmp_path / "table.csv"
    main(["analyse", str(tmp_path / "scores.npz"), "--masked-below", "-1000", "--out", str(out)])
    assert "warning" not in capsys.readouterr().err
    pd.testing.assert_frame_equal(pd.read_csv(out), stau_rl.analyse(scores, lower))


def test_before_and_after() -> None:
    scores = normal(1, 1, 40, 30, scale=6.0)
    table = stau_rl.analyse(scores).set_index("weights")
    after = STau(float(table.tau.s_tau_kl)).weights(scores[0, 0])
    assert table.top10_mass.s_tau_kl == pytest.approx(float(after.topk(10).values.sum(-1).mean()), rel=1e-12)
    assert table.sparsity.s_tau_kl == pytest.approx(float((after < 1e-6).double().mean()))
    assert table.sparsity.softmax > 0


def test_minus_infinity_is_a_mask_and_causal_is_the_lower_triangle() -> None:
    scores = normal(2, 2, 5, 7)
    lower = torch.ones(5, 7, dtype=torch.bool).tril(2)
    expected = stau_rl.analyse(scores, lower)
    pd.testing.assert_frame_equal(stau_rl.analyse(scores, causal=True), expected)
    pd.testing.assert_frame_equal(stau_rl.analyse(scores.masked_fill(~lower, -math.inf)), expected)
    pd.testing.assert_frame_equal(
        stau_rl.analyse(scores.masked_fill(~lower, math.nan).numpy(), lower.numpy()), expected
    )


@pytest.mark.parametrize("length", [1, 7, 63, 127, 129])
def test_lengths_and_rows_without_keys(length: int) -> None:
    mask = torch.rand(2, 1, 4, length, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[0, :, 1], mask[0, :, 0, 0] = False, True
    mask[1] = False
    table = stau_rl.analyse(normal(2, 2, 4, length).half(), mask)
    first, second = table[table.layer == 0], table[table.layer == 1]
    assert bool(first.drop(columns="tau").notna().all().all())
    assert (second.rows == 0).all()
    assert bool(second.entropy.isna().all())


def test_arrays_that_torch_does_not_take_are_the_same_scores() -> None:
    """Read-only, reversed, of another byte order, of long doubles; a mask that is broadcast, and so read-only."""
    scores = normal(1, 2, 5, 6).numpy()
    expected = stau_rl.analyse(scores)
    locked = scores.copy()
    locked.setflags(write=False)
    for same in (locked, scores[..., ::-1].copy()[..., ::-1], scores.astype(">f8"), scores.astype(np.longdouble)):
        pd.testing.assert_frame_equal(stau_rl.analyse(same), expected)
    mask = np.tril(np.ones((5, 6), dtype=bool), 1)
    pd.testing.assert_frame_equal(
        stau_rl.analyse(scores, np.broadcast_to(mask, scores.shape)), stau_rl.analyse(scores, causal=True)
    )


@pytest.mark.parametrize(
    ("scores", "mask", "message"),
    [
        (torch.zeros(5), None, r"must be \[layers, heads, queries, keys\].*got shape \[5\]"),
        (torch.zeros(0, 1, 2, 2), None, "without empty axes"),
        (torch.zeros(1, 1, 2, 2, dtype=torch.int64), None, "must be floating-point numbers, got torch.int64"),
        (torch.full((1, 2, 2, 2), math.nan), None, "scores of layer 0, head 0 hold 4 NaN or"),
        (torch.zeros(1, 1, 2, 2), torch.ones(2, 2), "mask must be boolean"),
        (torch.zeros(1, 1, 2, 2), torch.ones(3, 3, dtype=torch.bool), r"a mask of shape \[3, 3\] does not fit"),
    ],
)
def test_bad_scores_are_named(scores: torch.Tensor, mask: torch.Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stau_rl.analyse(scores, mask)


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = normal(2, 2, 6, 6).float().numpy()
    mask = np.tril(np.ones((6, 6), dtype=bool))
    np.savez(tmp_path / "scores.npz", scores=scores, mask=mask)
    main(["analyse", str(tmp_path / "scores.npz"), "--out", str(tmp_path / "table.csv")])
    printed = capsys.readouterr().out
    table = pd.read_csv(tmp_path / "table.csv")
    pd.testing.assert_frame_equal(table, stau_rl.analyse(scores, mask))
    for row in table[table.weights == "s_tau_kl"].itertuples():
        assert f"{row.tau:.4g} ({row.kl:.3g})" in printed
    assert {file.name for file in tmp_path.iterdir()} == {"scores.npz", "table.csv"}


def test_a_file_of_another_byte_order_is_read(tmp_path: Path) -> None:
    scores = normal(1, 2, 5, 6).numpy()
    np.savez(tmp_path / "scores.npz", scores=scores.astype(">f4"))
    pd.testing.assert_frame_equal(
        stau_rl.analyse(*read_scores(tmp_path / "scores.npz")), stau_rl.analyse(scores.astype("<f4"))
    )


def test_a_file_whose_every_entry_is_masked_gives_a_table_of_nan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "scores.npz", scores=np.full((1, 2, 3, 3), -np.inf, dtype=np.float32))
    main(["analyse", str(tmp_path / "scores.npz"), "--out", str(tmp_path / "table.csv")])
    assert "nan" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["rows"].tolist() == [0] * 6
    assert table[["entropy", "sparsity", "top10_mass", "sink_rate", "mean_weight"]].isna().all(axis=None)


def saved(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def single(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def archive(name: str, member: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(name, member)
    return buffer.getvalue()


def changed(content: bytes, **places: tuple[int, int]) -> bytes:
    """Bytes of a zip file, with one byte set in its first local header and one in its central directory."""
    data = bytearray(content)
    for offset, value in places.values():
        data[offset if offset >= 0 else data.find(b"PK\x01\x02") - offset] = value
    return bytes(data)


def header(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


GOOD = np.zeros((1, 1, 2, 2))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (None, [], "No such file"),
        (b"", [], "is no .npz file"),
        (b"some text", [], "is no .npz file"),
        (saved(scores=GOOD)[:80], [], "is no .npz file"),
        (single(GOOD), [], "is a single array; name it .npy, or save it with"),
        (saved(), [], "has no array 'scores' (arrays: none)"),
        (saved(a=GOOD, b=GOOD), [], "has no array 'scores' (arrays: a, b); name one with --key"),
        (saved(a=GOOD), ["--key", "b"], "has no array 'b' (arrays: a)"),
        (saved(scores=np.array([object()])), [], "cannot be read"),
        (saved(scores=GOOD).replace(bytes(32), bytes(31) + b"x"), [], "scores cannot be read: Bad CRC-32"),
        (archive("scores.npy", b"\x93NUMPY\x01\x00\x10\x00{broken         \n"), [], "scores cannot be read"),
        (archive("scores.npy", header((10**4, 10**4, 10**5, 10**4))), [], "scores cannot be read"),
        (archive("scores.npy", b"other"), [], "scores is no array"),
        (archive("scores.txt", b"other"), [], "scores.txt is no array"),
        # Bit 0 of the flags: encrypted. Method 99: unknown.
        (changed(saved(scores=GOOD), local=(6, 1), central=(-8, 1)), [], "scores cannot be read: File 'scores.npy' is"),
        (changed(saved(scores=GOOD), local=(8, 99), central=(-10, 99)), [], "scores cannot be read: That compression"),
        (saved(scores=GOOD.astype(int)), [], "must be float16, float32 or float64, got int64"),
        (saved(scores=GOOD[0, 0, 0]), [], "must be [layers, heads, queries, keys]"),
        (saved(scores=GOOD * np.nan), [], "scores of layer 0, head 0 hold 4 NaN or +inf where unmasked"),
        (saved(scores=GOOD, mask=np.ones((2, 2))), [], "mask must be boolean"),
        (saved(scores=GOOD, mask=np.ones((3, 2), bool)), [], "a mask of shape [3, 2] does not fit"),
        (saved(scores=GOOD), ["--key", ""], "has no array '' (arrays: scores)"),
        (saved(scores=GOOD), ["--eps", "-1"], "eps must be finite and >= 0, got -1"),
        (saved(scores=GOOD), ["--out", "nowhere/t.csv"], "there is no folder"),
        (saved(scores=GOOD), ["--head", "sparsemax"], "head='sparsemax' needs a head that it is compared with"),
        (saved(scores=GOOD), ["--against", "s_tua"], "unknown head 's_tua'; did you mean 's_tau'"),
        (saved(scores=GOOD), ["--against", "softmax(beta=0.1*t)"], "against=softmax(beta=0.1*t) changes with t"),
        (saved(scores=GOOD), ["--rows", "1"], "rows must be at least 2, got 1"),
        (saved(scores=GOOD), ["--rows", "2", "--seed", "-1"], "seed must be at least 0, got -1"),
        (saved(scores=GOOD), ["--out", "."], "--out: . is a folder; name a file, such as analysis.csv"),
    ],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "scores.npz").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as stop:
        main(["analyse", "scores.npz", *(["--out", "table.csv"] if "--out" not in options else []), *options])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before
