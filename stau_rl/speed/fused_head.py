"""Speed of the fused s^tau head on the GPU at hand: `python -m stau_rl.speed.fused_head`.

Forward and backward on float32 scores, learned tau. First the gradients are compared with float64, then four loops are
timed in turns: the kernels, the reference under torch.compile (default mode, and `max-autotune-no-cudagraphs` for the
first shape), compiled for the shape at hand, and eager. Two times each: of the device (a replayed CUDA graph) and as
called from Python. The bandwidth is that of the bytes that must move, each array read or written once, beside that of a
copy measured in the same run. Rows are added to `--out` shape by shape and printed as CSV at the end.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stau_rl.files.whole import whole_file
from stau_rl.heads import log_s_tau
from stau_rl.kernels.gpu import fused_head
from stau_rl.machine.stamp import current_commit, device_name

MAIN = (1 << 20, 18)
OTHERS = ((1 << 20, 6), (1 << 18, 64), (1 << 14, 1024), (4096, 18))
BYTES_PER_SCORE = 24
"""float32: scores in, log-weights out; then scores, log-weights and their gradient in, gradient of the scores out."""
REPEATS = 60

Step = Callable[[], tuple[Tensor, ...]]


def step(function: Callable[..., Tensor], scores: Tensor, tau: Tensor, grad: Tensor) -> Step:
    """One forward and backward: log-weights, gradient of the scores, gradient of tau."""

    def play() -> tuple[Tensor, ...]:
        out = function(scores, tau)
        return (out.detach(), *torch.autograd.grad(out, (scores, tau), grad))

    return play


def case(rows: int, entries: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and tau that require gradients, and the gradient of the log-weights."""
    generator = torch.Generator("cuda").manual_seed(0)
    scores = 2 * torch.randn(rows, entries, device="cuda", generator=generator)
    grad = torch.randn(rows, entries, device="cuda", generator=generator)
    return scores.requires_grad_(), torch.tensor(3.0, device="cuda", requires_grad=True), grad


def check(play: Step, scores: Tensor, tau: Tensor, grad: Tensor) -> dict[str, float]:
    """Largest absolute errors of log-weights and gradients against float64; an error if too large.

    Raises:
        RuntimeError: log-weights are off by more than 2e-5, or a gradient by more than 1e-5 of the largest.
    """
    found = play()
    double = (scores.detach().double().requires_grad_(), tau.detach().double().requires_grad_(), grad.double())
    exact = step(log_s_tau, *double)()
    errors = [float((one.double() - other).abs().max()) for one, other in zip(found, exact, strict=True)]
    sizes = [1.0, float(exact[1].abs().max()), float(grad.abs().sum()) * 1e-2]
    if errors[0] > 2e-5 or errors[1] > 1e-5 * sizes[1] or errors[2] > 1e-5 * sizes[2]:
        raise RuntimeError(f"errors {errors} of log-weights, scores' gradient and tau's are too large")
    return dict(zip(("log_weights_error", "scores_error", "tau_error"), errors, strict=True))


def device_replay(play: Step) -> Callable[[], None] | None:
    """The step as a CUDA graph, so that its time is the device's alone; None, with a line, if it cannot be one."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            play()
    torch.cuda.current_stream().wait_stream(side)
    graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            play()
    except RuntimeError as error:
        # A capture that fails leaves its own stream in place, and its end fails once more.
        torch.cuda.set_stream(current)
        cause = error.__context__ or error
        print(f"no CUDA graph of this loop: {str(cause).partition(chr(10))[0]}", flush=True)
        return None
    return graph.replay


def microseconds(play: Callable[[], Any], calls: int = 10) -> float:
    """Time of a call, over `calls` of them one after the other, by device events."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        play()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) * 1e3 / calls


def copy_bandwidth() -> float:
    """GB/s of a device copy of 1 GiB, read and write counted; the best of twenty."""
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    best = min(microseconds(lambda: target.copy_(source), 3) for _ in range(20))
    return 2 * source.numel() * 4 / best / 1e3


def compare(rows: int, entries: int, *, tuned: bool, repeats: int = REPEATS) -> list[dict[str, Any]]:
    """A row per loop, with one of `max-autotune` or not: times in turns, bytes, bandwidth and its share of a copy's."""
    scores, tau, grad = case(rows, entries)
    torch.compiler.reset()
    reference = fused_head.reference_log_weights
    loops = {
        "fused": fused_head.fused_log_weights,
        "torch.compile": torch.compile(reference, fullgraph=True),
        "torch.compile max-autotune": torch.compile(reference, fullgraph=True, mode="max-autotune-no-cudagraphs"),
        "eager": reference,
    }
    if not tuned:
        del loops["torch.compile max-autotune"]
    called = {name: step(function, scores, tau, grad) for name, function in loops.items()}
    for name, play in called.items():
        begun = time.perf_counter()
        play()
        torch.cuda.synchronize()
        print(f"[{rows}, {entries}] {name}: first call {time.perf_counter() - begun:.1f} s", flush=True)
    errors = {name: check(play, scores, tau, grad) for name, play in called.items()}
    replayed = {name: device_replay(play) for name, play in called.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
    for _ in range(repeats):
        for name in loops:
            replay = replayed[name]
            alone = math.nan if replay is None else microseconds(replay)
            times[name].append((alone, microseconds(called[name])))
    copied = copy_bandwidth()
    moved = BYTES_PER_SCORE * rows * entries
    table: list[dict[str, Any]] = []
    for name in loops:
        device, call = np.array(times[name]).T
        rate = moved / float(np.median(device)) / 1e3
        table.append(
            {
                "loop": name, "rows": rows, "entries": entries,
                "device_us": float(np.median(device)), "device_us_p20": float(np.quantile(device, 0.2)),
                "device_us_p80": float(np.quantile(device, 0.8)), "called_us": float(np.median(call)),
                "bytes": moved, "GB_per_s": rate, "copy_GB_per_s": copied, "percent_of_copy": 100 * rate / copied,
                "repeats": repeats, **errors[name],
            }
        )  # fmt: skip
    slow = {row["loop"]: row["device_us"] for row in table}
    for row in table:
        row["fused_is_faster_by"] = row["device_us"] / slow["fused"]
    return table


def sweep(rows: int, entries: int) -> None:
    """Print the device time of the kernels over sizes of a program."""
    scores, tau, grad = case(rows, entries)
    kept = fused_head.TILE, fused_head.WARPS
    for tile in (256, 512, 1024, 2048, 4096, 8192):
        for warps in (1, 2, 4, 8):
            fused_head.TILE, fused_head.WARPS = tile, warps
            replay = device_replay(step(fused_head.fused_log_weights, scores, tau, grad))
            best = "n/a" if replay is None else f"{min(microseconds(replay) for _ in range(20)):.1f} us"
            print(f"tile {tile} warps {warps}: {best}", flush=True)
    fused_head.TILE, fused_head.WARPS = kept


def stamped(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows with where and from what they come."""
    import triton

    return pd.DataFrame(rows).assign(
        device=device_name("cuda"), torch=torch.__version__, triton=triton.__version__, commit=current_commit()
    )


def append(path: Path, made: pd.DataFrame) -> None:
    """Add rows to a CSV file."""
    whole = pd.concat([pd.read_csv(path), made]) if path.exists() else made
    with whole_file(path) as temporary:
        whole.to_csv(temporary, index=False, lineterminator="\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Check, time, print, and append where asked."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.speed.fused_head", description=__doc__)
    parser.add_argument("--all", action="store_true", help="other shapes as well")
    parser.add_argument("--sweep", action="store_true", help="time the kernels over tile sizes and warps instead")
    parser.add_argument("--out", type=Path, metavar="CSV", help="file to add the rows to")
    given = parser.parse_args(arguments)
    if given.out is not None and not given.out.parent.is_dir():
        parser.exit(2, f"{parser.prog}: error: --out {given.out}: there is no folder {given.out.parent}\n")
    if not torch.cuda.is_available():
        parser.exit(2, f"{parser.prog}: error: this needs a CUDA device and torch sees none\n")
    if given.sweep:
        sweep(*MAIN)
        return
    made = []
    for shape in (MAIN, *(OTHERS if given.all else ())):
        rows = stamped(compare(*shape, tuned=shape == MAIN))
        made.append(rows)
        if given.out is not None:
            append(given.out, rows)
        shown = rows.drop(columns=["rows", "entries", "bytes", "repeats", "device", "torch", "triton", "commit"])
        print(f"[{shape[0]}, {shape[1]}] float32, {rows['bytes'][0] / 1e6:.0f} MB to move")
        print(shown.to_string(index=False, na_rep="n/a", float_format=lambda number: f"{number:.4g}"), flush=True)
    print(pd.concat(made).to_csv(index=False, lineterminator="\n"), end="", flush=True)


if __name__ == "__main__":
    main()
