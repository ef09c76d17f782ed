"""Captured scores in files of several kinds: the same table from each, and what a bad file gets."""

import importlib.util
import io
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import stau_rl
from stau_rl.calibration.score_files import ScoreFile, open_scores
from stau_rl.cli.main import main

HAS_SAFETENSORS = importlib.util.find_spec("safetensors") is not None
SCORES = 2 * torch.randn(2, 3, 6, 7, generator=torch.Generator().manual_seed(0))
MASK = torch.ones(6, 7, dtype=torch.bool).tril(1)


def torch_bytes(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("ndim", [2, 3, 4])
def test_an_array_of_fewer_axes_is_of_layer_0_and_is_mapped(tmp_path: Path, ndim: int) -> None:
    part = SCORES.numpy()[(0,) * (4 - ndim)]
    np.save(tmp_path / "scores.npy", part)
    found, mask = open_scores(tmp_path / "scores.npy")
    assert mask is None
    assert isinstance(found, ScoreFile)
    assert (found.ndim, found.shape) == (ndim, (*(1,) * (4 - ndim), *part.shape))
    assert isinstance(found[0, 0], np.memmap)
    table = stau_rl.analyse(found, causal=True)
    pd.testing.assert_frame_equal(table, stau_rl.analyse(part, causal=True))
    whole = stau_rl.analyse(SCORES, causal=True)
    heads = {2: whole["head"].eq(0) & whole["layer"].eq(0), 3: whole["layer"].eq(0), 4: whole["layer"].ge(0)}[ndim]
    pd.testing.assert_frame_equal(table, whole[heads])


def test_files_of_tensors_give_the_table_of_the_array(tmp_path: Path) -> None:
    expected = stau_rl.analyse(SCORES, MASK)
    torch.save({"scores": SCORES, "mask": MASK}, tmp_path / "named.pt")
    torch.save({"scores": SCORES, "mask": MASK}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("named.pt", "old.pth"):
        pd.testing.assert_frame_equal(stau_rl.analyse(*open_scores(tmp_path / name)), expected)
    torch.save(SCORES.bfloat16(), tmp_path / "single.pt")
    found, mask = open_scores(tmp_path / "single.pt")
    assert mask is None
    pd.testing.assert_frame_equal(stau_rl.analyse(found), stau_rl.analyse(SCORES.bfloat16().double()))


@pytest.mark.skipif(not HAS_SAFETENSORS, reason="safetensors is not installed")
def test_a_safetensors_file_gives_the_table_of_the_array(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"layer0": SCORES, "mask": MASK}, tmp_path / "scores.safetensors")
    pd.testing.assert_frame_equal(
        stau_rl.analyse(*open_scores(tmp_path / "scores.safetensors")), stau_rl.analyse(SCORES, MASK)
    )
    (tmp_path / "bad.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match=r"bad.safetensors is no .safetensors file"):
        open_scores(tmp_path / "bad.safetensors")


def test_without_safetensors_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    (tmp_path / "scores.safetensors").write_bytes(b"")
    with pytest.raises(SystemExit, match="2"):
        main(["analyse", str(tmp_path / "scores.safetensors")])
    assert "this needs the package safetensors, which is not installed" in capsys.readouterr().err


class Other:
    """Code that a file of tensors may not bring."""


@pytest.mark.parametrize(
    ("name", "content", "key", "message"),
    [
        ("a.npy", None, None, "No such file"),
        ("a.npy", b"", None, "is no .npy file of numbers"),
        ("a.npy", b"some text", None, "is no .npy file of numbers"),
        ("a.pt", None, None, "No such file"),
        ("a.pt", b"some text", None, "is no file of tensors, as torch.save writes"),
        ("a.pt", b"", None, "is no file of tensors, as torch.save writes"),
        ("a.pt", torch_bytes(Other()), None, "holds more than tensors, which is not read"),
        ("a.pt", torch_bytes([SCORES]), None, "holds more than tensors by name"),
        ("a.pt", torch_bytes({"a": {"b": SCORES}}), None, "holds more than tensors by name"),
        ("a.pt", torch_bytes({"a": SCORES, "b": SCORES}), None, "(arrays: a, b); name one with --key"),
        ("a.pt", torch_bytes(SCORES.long()), None, "must be float16, bfloat16, float32 or float64, got torch.int64"),
        ("a.pt", torch_bytes(SCORES), "x", "is a single tensor, so it has no array 'x'"),
        ("a.npy", b"", "x", "is a single array, so it has no array 'x'"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, content: bytes | None, key: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        open_scores(tmp_path / name, key)
    assert name in str(caught.value)


def test_arrays_that_are_no_scores_are_named(tmp_path: Path) -> None:
    for array, message in ((np.zeros((2, 2), int), "must be float16"), (np.zeros(3), r"got shape \[3\]")):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(ValueError, match=message):
            open_scores(tmp_path / "a.npy")
