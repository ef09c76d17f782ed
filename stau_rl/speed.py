"""Speed of the engines beside their peers: correctness first, then arm-steps per second, all in one run.

`stau-rl speed` prints the table. Numbers of different machines or runs do not compare; ratios within a run do.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stau_rl.agents import parse_policy
from stau_rl.envs import BernoulliArms
from stau_rl.kernels.engines import ENGINES
from stau_rl.regret import arm_table

POLICY = "centred_ucb | s_tau(tau=5)"
TAU = 5.0
SEED = 1
# Exact expected regret of POLICY (eps = 0) on Bernoulli arms (.9, .8) after 100 plays, by dynamic programming over
# counts and sums; eps = 1e-8 moves it by less than 1e-6.
EXACT_MEANS, EXACT_STEPS, EXACT_REGRET = (0.9, 0.8), 100, 4.531060519992729
STANDARD_ERRORS = 4.0

Play = Callable[[BernoulliArms, int, int, int], NDArray[np.float64]]
"""(arms, horizon, instances, seed) -> pseudo-regret after the horizon, float64 [instances]."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One implementation of the loop.

    Attributes:
        name: its name in the table.
        play: runs it.
        instances: batch sizes to try; the fastest counts.
        steps: horizon of one timed run.
    """

    name: str
    play: Play
    instances: tuple[int, ...]
    steps: int


def contenders() -> list[Contender]:
    """The engines, and the JAX scans where JAX is installed."""
    found = [
        Contender("numba", _engine("numba", "float32"), (16_384, 65_536), 1_000),
        Contender("torch", _engine("torch", "float32"), (4_096, 32_768), 50),
    ]
    try:
        import jax  # noqa: F401
    except ImportError:
        return found
    from stau_rl.jax_peer import FASTEST, Settings

    # The scan of library functions as a JAX user writes it at its best: layout, batch, chunk, form of the power.
    library = Settings(softplus="library", power="exp_log", cdf="cumsum")
    per_core = replace(library, processes=os.cpu_count())
    return [
        *found,
        Contender("JAX scan", _jax(library), (2_048, 16_384, 65_536), 250),
        Contender("JAX scan, a process per core", _jax(per_core), (16_384, 65_536), 250),
        Contender("JAX scan, kernel rewritten by hand", _jax(FASTEST), (16_384, 65_536), 500),
    ]


def _engine(name: str, dtype: str) -> Play:
    def play(arms: BernoulliArms, horizon: int, instances: int, seed: int) -> NDArray[np.float64]:
        block = ENGINES[name].simulate(
            parse_policy(POLICY),
            arm_table(arms, seed, 0, instances),
            seed=seed,
            first_instance=0,
            horizon=horizon,
            checkpoints=np.array([horizon]),
            dtype=dtype,
        )
        return block.regret[0]

    return play


def _jax(settings: object) -> Play:
    def play(arms: BernoulliArms, horizon: int, instances: int, seed: int) -> NDArray[np.float64]:
        from stau_rl.jax_peer import simulate

        means = arms.size if arms.means is None else arms.means
        return simulate(
            means=means,
            c=1.0,
            tau=TAU,
            seed=seed,
            horizon=horizon,
            instances=instances,
            settings=settings,  # type: ignore[arg-type]
        )[0]

    return play


def check(play: Play, instances: int = 65_536) -> float:
    """Distance of the mean regret from the exact value, in standard errors.

    Raises:
        ValueError: if it is more than four.
    """
    regret = play(BernoulliArms(means=EXACT_MEANS), EXACT_STEPS, instances, SEED)
    distance = float((regret.mean() - EXACT_REGRET) / (regret.std(ddof=1) / np.sqrt(len(regret))))
    if not abs(distance) <= STANDARD_ERRORS:
        raise ValueError(f"mean regret {regret.mean():.6g} is {distance:.2g} standard errors from {EXACT_REGRET:.6g}")
    return distance


def measure(arms: int = 10, repeats: int = 5, report: Callable[[str], None] | None = None) -> pd.DataFrame:
    """Check and time every contender, taking turns so that a busy moment of the machine hits all alike.

    Args:
        arms: number of Bernoulli arms K, their means uniform on [0, 1] per instance.
        repeats: timed runs per contender and batch size, after one that warms up.
        report: called with a line as the work goes on.

    Returns:
        A row per contender: `name, instances, standard_errors, compile_seconds, m_arm_steps, p20, p80,
        numba_ratio`; millions of arm-steps per second (median, quantiles) at its best batch size.

    Raises:
        ValueError: if a contender's regret is wrong.
    """
    problem = BernoulliArms(k=arms)
    rows: dict[tuple[str, int], list[float]] = {}
    facts: dict[str, dict[str, float]] = {}
    players = contenders()
    for player in players:
        if report is not None:
            report(f"checking {player.name}")
        facts[player.name] = {"standard_errors": check(player.play)}
        for size in player.instances:
            begun = time.perf_counter()
            player.play(problem, player.steps, size, SEED)
            facts[player.name].setdefault("compile_seconds", time.perf_counter() - begun)
    for turn in range(repeats):
        for player in players:
            for size in player.instances:
                if report is not None:
                    report(f"round {turn + 1} of {repeats}: {player.name}, {size} instances")
                begun = time.perf_counter()
                player.play(problem, player.steps, size, SEED + turn)
                seconds = time.perf_counter() - begun
                rate = size * arms * player.steps / seconds / 1e6
                rows.setdefault((player.name, size), []).append(rate)
    table = []
    for player in players:
        medians = {size: float(np.median(rows[player.name, size])) for size in player.instances}
        size = max(medians, key=medians.__getitem__)
        p20, median, p80 = np.quantile(rows[player.name, size], (0.2, 0.5, 0.8))
        table.append(
            {"name": player.name, "instances": size, "m_arm_steps": median, "p20": p20, "p80": p80} | facts[player.name]
        )
    frame = pd.DataFrame(table)
    frame["numba_ratio"] = frame.loc[frame["name"] == "numba", "m_arm_steps"].iloc[0] / frame["m_arm_steps"]
    return frame


def peak_memory(horizon: int, instances: int = 100_000, arms: int = 10) -> float:
    """Peak resident memory, MiB, of the headline's nine policies in a process of its own, files and tables included."""
    code = (
        "import sys, tempfile\n"
        "from stau_rl.cli_regret import HEADLINE_POLICIES\n"
        "from stau_rl.regret import peak_memory_mib, run_regret\n"
        "from stau_rl.report import final_rows\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        f"    final_rows(run_regret('bernoulli(k={arms})', HEADLINE_POLICIES, {horizon}, {instances}, out=folder))\n"
        "print(peak_memory_mib())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise ValueError(f"the memory run failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)
