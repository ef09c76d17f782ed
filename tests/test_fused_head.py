"""The fused head against float64 and its reference, interpreted on a CPU and compiled on a GPU."""

import importlib.util
import inspect
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import pytest
import torch

from stau_rl.heads import STau
from stau_rl.kernels.gpu.fused_head import _fits, fused_log_weights, head_log_weights, reference_log_weights
from stau_rl.speed import fused_head as fused_head_speed

HERE = Path(__file__).parent
HAS_TRITON = importlib.util.find_spec("triton") is not None
MODES = [
    pytest.param("interpreted", marks=pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")),
    pytest.param("compiled", marks=pytest.mark.gpu),
]


# Processes that compile side by side on a GPU.
PARTS = 4


def start_cases(*arguments, interpreted):
    """fused_head_cases.py in a process of its own, as Triton decides at import whether to interpret."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "TRITON_INTERPRET": "1" if interpreted else "0"}
    command = [sys.executable, str(HERE / "fused_head_cases.py"), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def printed_by(process):
    output, complaints = process.communicate()
    assert process.returncode == 0, complaints[-4000:]
    return json.loads(output)


@pytest.fixture(scope="module", params=MODES)
def findings(request):
    interpreted = request.param == "interpreted"
    parts = 1 if interpreted else PARTS
    with ExitStack() as stack:
        started = [stack.enter_context(start_cases(part, parts, interpreted=interpreted)) for part in range(parts)]
        return {name: found for process in started for name, found in printed_by(process).items()}


@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
def test_the_kernels_compile_for_a_gpu_that_is_not_here():
    """The interpreter takes what the compiler may refuse."""
    assert len(printed_by(start_cases("compile", interpreted=False))) == 6


@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
def test_a_remembered_launch_is_the_one_that_triton_makes():
    """Seven calls each way: rows of a multiple of 16, not, and 1, a start not on 16 bytes, bfloat16, a mask, an eps."""
    found = printed_by(start_cases("launches", interpreted=False))
    assert len(found["same"]) == found["remembered"] == 14
    assert all(found["same"].values()), found["same"]
    # The last call needs no kernel of its own: another multiple of 16, another eps.
    assert found["kernels"] == 12
    assert found["other_version"] == 0


def test_the_reference_has_the_same_signature():
    assert inspect.signature(fused_log_weights) == inspect.signature(reference_log_weights)


def test_values_and_gradients_are_as_accurate_as_stated(findings):
    """Nine lengths with each value of three flags: mask or none, one tau or one per row, eps or none; steep scores."""
    cases = {name: found for name, found in findings.items() if name.startswith(("K=", "steep"))}
    assert len(cases) == 73
    for name, found in cases.items():
        assert found["fused"]["finite"], name
        assert found["fused"]["log_weights"] <= 1, name
        assert found["fused"]["scores"] <= 3e-5, name
        assert found["fused"]["scores_of_parts"] <= 1e-5, name
        assert found["fused"]["tau"] <= 3e-6, name


@pytest.mark.parametrize("eps", ["1e-08", "0", "0.1"])
def test_extreme_scores(findings, eps):
    found = findings[f"extremes eps={eps}"]
    assert found["finite"]
    assert max(found["log_weights"]) <= 1
    # The slope of log phi at scores of 1e-4 or less is 1 with eps = 0; the log-weights there are of order 1e4 ulp.
    assert max(found["scores"]) <= 1e-4
    assert found["tau"][0] == pytest.approx(found["tau"][1], rel=1e-5)
    assert found["masked"] == [0.0] * 8


@pytest.mark.parametrize("dtype", ["torch.float16", "torch.bfloat16"])
def test_half_precision_is_read_and_computed_in_single(findings, dtype):
    found = findings[dtype]
    assert found["dtypes"] == ["torch.float32", dtype]
    assert found["same"]
    assert found["grad"] <= 2**-7


def test_further_derivatives_and_what_torch_func_asks_for(findings):
    """The kernel has values and a gradient; the rest comes from plain operations on the same log-weights."""
    found = findings["derivatives"]
    assert len(found) == 9
    assert max(found.values()) < 1e-5, found


def test_one_graph_of_torch_compile_gives_the_same_bits(findings):
    assert findings["compiled"]


def test_any_leading_shape_strides_and_broadcast_masks(findings):
    assert len(findings["shapes"]) == 7
    assert all(findings["shapes"].values()), findings["shapes"]


def test_the_module_takes_the_kernel_for_large_batches_on_a_gpu(findings):
    found = findings["module"]
    assert found["calls"] == found["wanted"]
    assert found["agree"]
    assert found["plain"]


def test_any_alignment_and_number_of_rows(findings):
    assert findings["alignments"] == [True] * 6


def test_two_runs_give_the_same_bits(findings):
    assert findings["repeats"]


@pytest.mark.parametrize(
    ("scores", "eps", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.float64), 1e-8, r"float32, float16 or bfloat16, got torch.float64"),
        (torch.zeros(2, 0), 1e-8, r"1 <= K <= 16384, got \(2, 0\)"),
        (torch.zeros(2, 3), 1e-40, r"eps must be a number, 0 or at least 1e-30, got 1e-40"),
    ],
)
def test_what_the_kernel_has_not_is_named(scores, eps, message):
    with pytest.raises(ValueError, match=message):
        fused_log_weights(scores, torch.tensor(2.0), eps)


@pytest.mark.parametrize("tensors", [("meta", None), ("cpu", "meta")])
def test_tensors_on_another_device_are_named(tensors):
    tau, mask = (None if device is None else torch.ones((), device=device) for device in tensors)
    with pytest.raises(ValueError, match="must be on the device of the scores, cpu"):
        fused_log_weights(torch.zeros(2, 3), tau, mask=mask)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (2, 3), (3, 3), (1, 2, 3), (0,), (4, 1, 3)])
@pytest.mark.parametrize("target", [(), (3,), (2, 3), (2, 0), (4, 2, 3)])
def test_shapes_fit_as_in_broadcasting(shape, target):
    try:
        wanted = torch.broadcast_shapes(shape, target) == target
    except RuntimeError:
        wanted = False
    assert _fits(torch.zeros(shape), torch.device("cpu"), torch.Size(target)) == wanted


def test_other_devices_take_the_reference():
    scores = torch.randn(5000, 18, generator=torch.Generator().manual_seed(0))
    assert torch.equal(head_log_weights(STau(3.0), scores), STau(3.0).log_weights(scores))


def test_the_speed_command_refuses_wrong_values_and_gradients():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(300, 18, generator=generator).requires_grad_()
    case = (scores, torch.tensor(3.0, requires_grad=True), torch.randn(300, 18, generator=generator))
    errors = fused_head_speed.check(fused_head_speed.step(reference_log_weights, *case), *case)
    assert max(errors.values()) < 1e-3
    wrong_values = lambda scores, tau: reference_log_weights(scores, tau * 1.001)  # noqa: E731
    wrong_gradient = lambda scores, tau: reference_log_weights(scores, tau.detach()) + 0 * tau  # noqa: E731
    for wrong in (wrong_values, wrong_gradient):
        with pytest.raises(RuntimeError, match="too large"):
            fused_head_speed.check(fused_head_speed.step(wrong, *case), *case)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize("arguments", [[], ["--sweep"], ["--all", "--out", "rows.csv"]])
def test_the_speed_command_says_in_a_line_that_it_needs_a_gpu(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        fused_head_speed.main(arguments)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("error: this needs a CUDA device and torch sees none")
    assert not list(tmp_path.iterdir())


def test_the_speed_command_adds_rows_shape_by_shape(tmp_path, monkeypatch, capsys):
    """What was timed before an interruption is in the file; max-autotune is for the first shape alone."""
    asked = []

    def compare(rows, entries, tuned):
        asked.append((rows, entries, tuned))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return [{"loop": "fused", "rows": rows, "entries": entries, "bytes": 24 * rows * entries, "repeats": 1}]

    made_on = {"device": "d", "torch": "t", "triton": "t", "commit": "c"}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(fused_head_speed, "compare", compare)
    monkeypatch.setattr(fused_head_speed, "stamped", lambda rows: pd.DataFrame(rows).assign(**made_on))
    path = tmp_path / "rows.csv"
    with pytest.raises(KeyboardInterrupt):
        fused_head_speed.main(["--all", "--out", str(path)])
    assert [tuned for *_, tuned in asked] == [True, False, False]
    kept = pd.read_csv(path)
    assert list(zip(kept["rows"], kept["entries"], strict=True)) == [shape[:2] for shape in asked[:2]]
    assert list(tmp_path.iterdir()) == [path]
    assert "453 MB to move" in capsys.readouterr().out


@pytest.mark.gpu
def test_the_reference_can_be_replayed_and_a_loop_that_cannot_is_said_to(capsys):
    case = fused_head_speed.case(64, 18)
    assert fused_head_speed.device_replay(fused_head_speed.step(reference_log_weights, *case)) is not None
    assert capsys.readouterr().out == ""
    copies = lambda scores, tau: reference_log_weights(scores, tau) + torch.tensor(1.0).to("cuda")  # noqa: E731
    assert fused_head_speed.device_replay(fused_head_speed.step(copies, *case)) is None
    assert "no CUDA graph of this loop" in capsys.readouterr().out
    # What comes after it still works.
    assert fused_head_speed.device_replay(fused_head_speed.step(reference_log_weights, *case)) is not None
