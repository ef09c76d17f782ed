"""The published 35 % experiment, carried on: `python -m stau_rl.pages.published` makes its rows and its figure anew.

A ladder of sharpness for the clamped power, for s^tau (softplus in the clamp's place) and for softmax, from gentle to
argmax, both published grids among it; and the published rule, best against best, on 50 runs and on all, per engine.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.agents.bandit import parse_policy
from stau_rl.envs.arms import parse_arms
from stau_rl.files.finished import write_table
from stau_rl.kernels.engines import ENGINES, choose_engine
from stau_rl.machine.stamp import current_commit, device_name, versions
from stau_rl.pages.claim_published import BEST, CURVE, FIGURE
from stau_rl.pages.paths import DOCS, RESULTS
from stau_rl.pages.published_figure import save_published
from stau_rl.regret.arm_table import arm_table
from stau_rl.regret.problems import SCORE, TAUS, TEMPERATURES, problem
from stau_rl.regret.regrets import Regrets
from stau_rl.regret.rivals import best_against_best
from stau_rl.regret.run import run_regret
from stau_rl.terminal.progress import progress_bar

NAME = "power_35"
SEED, CHECKED_SEED = 2026, 35
POWERS = (1, 1.5, 2, 3, 5, 8, 15, 30, 60, 120, 300, 1000, 5000)
BETAS = (0.5, 1, 2, 10 / 3, 5, 10, 20, 40, 80, 160, 400, 1500, 5000)
RUNS = 1_000_000


def ladder() -> dict[str, tuple[str, float, bool]]:
    """Policy -> head, sharpness, and whether a published grid has it."""
    rows = {f"{SCORE} | clamp_power(tau={tau:g})": ("clamp_power", float(tau), tau in TAUS) for tau in POWERS}
    rows |= {f"{SCORE} | s_tau(tau={tau:g})": ("s_tau", float(tau), False) for tau in POWERS}
    published = {f"{1 / temperature:g}" for temperature in TEMPERATURES}
    rows |= {f"{SCORE} | softmax(beta={beta:g})": ("softmax", float(beta), f"{beta:g}" in published) for beta in BETAS}
    rows[f"{SCORE} | argmax"] = ("argmax", float("inf"), False)
    return {str(parse_policy(text)): row for text, row in rows.items()}


def curve(result: Regrets) -> pd.DataFrame:
    """A row per member of the ladder: mean regret at the horizon with its 95 % interval."""
    known = ladder()
    last = result.summary().query(f"step == {result.spec['horizon']}")  # type: ignore[attr-defined]
    rows = []
    for row in last.to_dict("records"):
        head, sharpness, published = known[row["policy"]]
        kept = {name: row[name] for name in ("regret", "regret_se", "regret_low", "regret_high")}
        rows.append({"head": head, "sharpness": sharpness, "published": published, "policy": row["policy"]} | kept)
    return pd.DataFrame(rows)


def best_rows(engines: Sequence[str], runs: Sequence[int], device: str) -> Iterator[pd.DataFrame]:
    """Best against best by both rules, on so many runs of every engine."""
    one = problem(NAME)
    for engine in engines:
        for number in runs:
            result = one.run(number, CHECKED_SEED, engine=engine, device=device, checkpoints=[one.horizon])
            yield best_against_best(result, one.rivals).assign(engine=result.spec["engines"][0], runs=number)


def runs_here(engine: str, device: str) -> bool:
    """Whether an engine plays the experiment on this machine."""
    one = problem(NAME)
    try:
        sample = arm_table(parse_arms(one.arms), 0, 0, 1)
        for text in one.policies:
            choose_engine(parse_policy(text), sample, one.horizon, engine, device)
    except ValueError:
        return False
    return True


def main() -> None:
    """Play, write the rows and draw the figure."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.published", description=__doc__)
    parser.add_argument("--instances", type=int, default=RUNS, help="runs of the ladder")
    parser.add_argument("--engine", default="auto", help="triton, numba, torch or auto")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:N or auto")
    parser.add_argument("--results", type=Path, help="write the rows here and leave the figure alone")
    parser.add_argument("--draw", action="store_true", help="draw the figure from the committed rows, and nothing else")
    given = parser.parse_args()
    try:
        if not given.draw:
            play(given.instances, given.engine, given.device, given.results or RESULTS)
        if given.results is None:
            save_published(pd.read_csv(RESULTS / CURVE), DOCS / FIGURE)
    except (OSError, ValueError) as error:
        parser.error(" ".join(str(error).split()))
    except KeyboardInterrupt:
        sys.exit(130)


def play(instances: int, engine: str, device: str, results: Path) -> None:
    """Play everything and write both tables."""
    one, policies = problem(NAME), list(ladder())
    with progress_bar(len(policies)) as report:
        result = run_regret(
            one.arms, policies, one.horizon, instances, SEED, [one.horizon], engine=engine, device=device, report=report
        )
    found = versions("numpy", "numba", "torch", "triton")
    marks: dict[str, Any] = {
        "seed": SEED,
        "instances": instances,
        "commit": current_commit(),
        "versions": " ".join(f"{name}={number}" for name, number in found.items()),
        "device": device_name("cuda" if "cuda" in result.spec["engines"][0] else "cpu"),
    }
    engines = dict(zip(result.policies, result.spec["engines"], strict=True))
    rows = curve(result)
    tables = [*best_rows([name for name in ENGINES if runs_here(name, "auto")], [one.instances], "auto")]
    tables += best_rows([engine], [instances], device)
    write_table(results / CURVE, rows.assign(engine=rows["policy"].map(engines), **marks))
    best = pd.concat(tables, ignore_index=True)
    write_table(results / BEST, best.assign(**(marks | {"seed": CHECKED_SEED, "instances": best["instances"]})))


if __name__ == "__main__":
    main()
