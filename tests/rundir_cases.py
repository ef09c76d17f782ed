"""A run that costs nothing, played into a run directory."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from stau_rl.kernels.contract import Block
from stau_rl.regret.directory import RunDirectory
from stau_rl.regret.result import RegretResult

SPEC_A: dict[str, Any] = {
    "format": 2,
    "version": "0.1.0",
    "arms": "bernoulli(0.9, 0.8)",
    "policies": ["ucb | argmax", "centred_ucb(c=1) | s_tau(tau=5)"],
    "horizon": 1000,
    "instances": 40,
    "seed": 3,
    "checkpoints": [1, 10, 1000],
    "baseline": "ucb | argmax",
}
SIZE = 10


def simulate(spec: dict, policy: str, first: int) -> Block:
    """Stands for an engine: a block that depends on its arguments alone."""
    key = spec["policies"].index(policy) * 1000 + first
    generator = np.random.Generator(np.random.PCG64(spec["seed"] * 100_000 + key))
    return Block(
        regret=np.cumsum(generator.random((3, SIZE)), axis=0),
        optimal=generator.random((3, SIZE)) < 0.5,
        late_optimal=generator.integers(0, 100, SIZE),
        pulls=generator.integers(0, 500, (2, SIZE)),
        reward_sums=generator.random((2, SIZE)),
    )


def play(path: Path, spec: dict, resume: bool, pause: float = 0.0) -> int:
    """Run as a benchmark does: parts, then the result. Returns the number of blocks that were computed."""
    computed = 0
    with RunDirectory.open(path, spec, resume) as run:
        if run.finished:
            return 0
        result = RegretResult.allocate(spec, np.full(spec["instances"], 0.9), 2, 2.25)
        for policy in spec["policies"]:
            for first in range(0, spec["instances"], SIZE):
                block = run.read_part(policy, first, SIZE)
                if block is None:
                    time.sleep(pause)
                    block = simulate(spec, policy, first)
                    run.write_part(policy, first, block)
                    computed += 1
                result.put(policy, first, block)
        result.timing["seconds"] = time.perf_counter()
        run.finish(result)
    return computed


def contents(path: Path) -> dict[str, bytes]:
    """Every file below a folder, but for what may differ between two runs."""
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "timing.json")
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import rundir_cases as t
from pathlib import Path
print("go", flush=True)
t.play(Path(sys.argv[2]), t.SPEC_A, resume=True, pause=0.02)
"""
