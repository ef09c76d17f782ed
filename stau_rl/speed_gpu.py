"""Speed of the Triton engine on the GPU at hand, beside the loops that a user of torch or JAX would write.

`python -m stau_rl.speed_gpu [--quick]` checks the engine against the reference, then prints arm-steps per second
(median, 20 % and 80 % quantiles of warmed-up repeats), and of the main loop the registers, spilled bytes and
instructions per arm-step by the pipe that runs them.
"""

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stau_rl.agents import parse_policy
from stau_rl.kernels import torch_loop, triton_loop
from stau_rl.kernels.contract import ArmTable
from stau_rl.kernels.triton_plan import make_plan

SOFTMAX, S_TAU = "centred_ucb | softmax(beta=1)", "centred_ucb | s_tau(tau=5)"
SIZES = {2: 1 << 20, 10: 1 << 18, 32: 1 << 17, 128: 1 << 15, 1024: 1 << 12}
HORIZON = 1000
PIPES = {
    "special": ("MUFU", "I2F", "F2I", "F2F"),
    "multiply-add": ("FFMA", "FADD", "FMUL", "IMAD"),
    "float64": ("DADD", "DMUL", "DFMA", "DSETP"),
    "memory": ("LDG", "STG", "LDS", "STS", "SHFL", "LDC", "ULDC", "LDL", "STL"),
}


def bernoulli(arms: int, instances: int, seed: int = 0) -> ArmTable:
    """Bernoulli arms with uniform means per instance."""
    means = np.random.default_rng(seed).random((arms, instances))
    return ArmTable("bernoulli", means, 0.5, np.empty(0), np.empty(0, np.int64), True, instances)


def check(policy: str, arms: int = 10, instances: int = 2048, horizon: int = 200) -> float:
    """Share of histories identical to the float64 reference; raises an error below 99 %."""
    options: dict[str, Any] = {"seed": 1, "first_instance": 0, "horizon": horizon, "record": True}
    options["checkpoints"] = np.array([horizon])
    table = bernoulli(arms, instances)
    ours = triton_loop.simulate(parse_policy(policy), table, device="cuda", **options)
    theirs = torch_loop.simulate(parse_policy(policy), table, dtype="float64", device="cuda", **options)
    assert ours.actions is not None
    assert theirs.actions is not None
    same = float((ours.actions == theirs.actions).all(axis=0).mean())
    if same < 0.99:
        raise RuntimeError(f"{policy}: only {same:.4f} of the histories agree with the reference")
    return same


def time_engine(policy: str, arms: int, instances: int, horizon: int, repeats: int) -> dict[str, Any]:
    """Arm-steps per second of the engine, launches and tables included, transfers to and from the host not."""
    plan = make_plan(parse_policy(policy).lowered(), bernoulli(arms, 1), horizon)
    run = triton_loop.Run(
        plan, bernoulli(arms, instances), torch.device("cuda"), 0, 0, horizon, np.array([horizon]), False
    )
    begun = time.perf_counter()
    run.run()
    torch.cuda.synchronize()
    first = time.perf_counter() - begun

    def again() -> None:
        run.count.zero_()
        run.gain.zero_()
        run.run()

    row = _rates(again, arms * instances * horizon, repeats)
    kernel = run.launch(horizon - 2 - horizon % 2, horizon - horizon % 2, True)
    row |= {"compile_s": first, "registers": kernel.n_regs, "spilled_bytes": kernel.n_spills * 4}
    row["instructions"] = loop_instructions(kernel.asm["cubin"], 2 * plan.variant.slots)
    return row


def _rates(play: Callable[[], Any], work: int, repeats: int) -> dict[str, Any]:
    """Median and quantiles of the rate over repeats, from device events."""
    play()
    rates = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        play()
        stop.record()
        torch.cuda.synchronize()
        rates.append(work / start.elapsed_time(stop) / 1e6)
    low, high = np.quantile(rates, [0.2, 0.8])
    return {"median_G": statistics.median(rates), "p20_G": float(low), "p80_G": float(high)}


def loop_instructions(cubin: bytes, arm_steps: int) -> dict[str, float]:
    """Instructions per arm-step of the longest loop, without its blocks that store (checkpoints), by pipe."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "kernel.cubin")
        binary.write_bytes(cubin)
        command = [str(tool) if tool.exists() else "nvdisasm", "-c", str(binary)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    labels: dict[str, int] = {}
    code: list[str] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            code.append(instruction[1])
    jumps = [(i, labels[m[1]]) for i, op in enumerate(code) if (m := re.search(r"BRA.*(\.L_x_\d+)", op))]
    begin, end = max(((target, i) for i, target in jumps if target <= i), key=lambda span: span[1] - span[0])
    hot = set(range(begin, end + 1))
    for i, target in jumps:
        if begin <= i < target <= end and any("STG" in op for op in code[i:target]):
            hot -= set(range(i + 1, target))
    names = [re.sub(r"^@!?U?P\w+\s+", "", code[i]).split()[0].split(".")[0] for i in sorted(hot)]
    pipes = Counter(
        next((pipe for pipe, members in PIPES.items() if name in members), "compare/logic") for name in names
    )
    return {"all": len(names) / arm_steps, **{pipe: count / arm_steps for pipe, count in pipes.items()}}


def torch_step(counts: Any, sums: Any, means: Any, width: float, tau: float) -> tuple[Any, Any]:
    """One step of centred UCB | s_tau as a torch user would write it, layout [arms, instances]."""
    scores = sums / counts + width * counts.rsqrt()
    weights = (torch.nn.functional.softplus(scores - scores.mean(0)) + 1e-8) ** tau
    cdf = weights.cumsum(0)
    u = torch.rand(2, counts.shape[1], device=counts.device)
    arm = (cdf <= u[0] * cdf[-1]).sum(0)[None]
    pulled = torch.arange(len(counts), device=counts.device)[:, None] == arm
    return counts + pulled, sums + pulled * (u[1] < means)


def time_torch(step: Callable[..., Any], arms: int, instances: int, steps: int, repeats: int) -> dict[str, Any]:
    """Arm-steps per second of a torch step called in a Python loop."""
    means = torch.rand(arms, instances, device="cuda")
    width = torch.tensor(3.0, device="cuda")

    def play() -> None:
        counts, sums = torch.ones_like(means), torch.zeros_like(means)
        for _ in range(steps):
            counts, sums = step(counts, sums, means, width, 5.0)

    return _rates(play, arms * instances * steps, repeats)


def time_jax(arms: int, instances: int, horizon: int, repeats: int) -> list[dict[str, Any]]:
    """Arm-steps per second of JAX scans (`stau_rl.jax_peer`), for several ways of writing them."""
    peer = import_module("stau_rl.jax_peer")
    base = peer.Settings(chunk=None, vector_width=None, cache_rsqrt=True, softplus="log")
    variants: list[dict[str, Any]] = [
        {},
        {"power": "exp_log"},
        {"rng": "unsafe_rbg"},
        {"rng": "unsafe_rbg", "unroll": 4},
        {"rng": "unsafe_rbg", "draw": "step", "unroll": 4},
        {"rng": "unsafe_rbg", "softplus": "log1p", "power": "pow"},
    ]
    rows = peer.sweep(arms=arms, horizon=horizon, repeats=repeats, instances=(instances,), variants=variants, base=base)
    return [
        {"variant": v, "median_G": row["arm_steps_per_second"] / 1e9} for v, row in zip(variants, rows, strict=True)
    ]


def main(quick: bool) -> None:
    """Check, time, print."""
    repeats = 3 if quick else 9
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for policy in (SOFTMAX, S_TAU):
        print(f"{policy}: {check(policy):.4f} of histories identical to the float64 reference")
    for horizon in (HORIZON, 10 * HORIZON):
        for arms, instances in SIZES.items():
            if horizon > HORIZON and arms != 10:
                continue
            for policy in (SOFTMAX, S_TAU):
                row = time_engine(policy, arms, instances, horizon, repeats)
                by_pipe = " ".join(f"{pipe} {count:.2f}" for pipe, count in row.pop("instructions").items())
                numbers = " ".join(f"{name} {value:.4g}" for name, value in row.items())
                print(
                    f"triton {policy} K={arms} n={instances} T={horizon}: {numbers}; instructions {by_pipe}", flush=True
                )
    work = (10, SIZES[10])
    print("torch eager", time_torch(torch_step, *work, 50, repeats), flush=True)
    print("torch.compile", time_torch(torch.compile(torch_step), *work, 200, repeats), flush=True)
    try:
        for row in time_jax(*work, 200 if quick else HORIZON, repeats):
            print("jax scan", row, flush=True)
    except ImportError as error:
        print("jax scan: not here:", error)


if __name__ == "__main__":
    main("--quick" in sys.argv)
