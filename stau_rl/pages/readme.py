"""`python -m stau_rl.pages.readme` rewrites the tables of README.md, from the registries and the rows of speed."""

import sys
from typing import Any

import numpy as np
import pandas as pd

from stau_rl.agents.bandit import POLICIES, SCORES, Pipe, parse_policy
from stau_rl.envs.arms import ARMS
from stau_rl.envs.tasks import TASKS
from stau_rl.heads import HEADS
from stau_rl.heads.base import MASS
from stau_rl.kernels.contract import ArmTable, EngineError
from stau_rl.kernels.engines import ENGINES
from stau_rl.pages.paths import README, RESULTS
from stau_rl.pages.speed import tables as speed_tables
from stau_rl.rl_study.results import RLResults
from stau_rl.rl_study.tasks import task_named
from stau_rl.speed.rows import ROWS, read

# Kinds of policy that are no registry entry of their own: a schedule, an offset.
SPECIAL = ("centred_ucb | softmax(beta=4*log(t))", "centred_ucb(offset=2) | s_tau(tau=5)")


def tables() -> dict[str, str]:
    """Every generated table by name, as Markdown."""
    return {
        "heads": _markdown(
            ("head", "f(s)", "mass", "sharpened by", "source"),
            [
                (f"`{head()}`", head.formula, MASS[head.mass_kind], head.sharpness or "-", head.source or "-")
                for head in HEADS.values()
            ],
        ),
        "scores": _markdown(
            ("score", "value for arm k", "pulls every arm once first"),
            [(f"`{name}`", score.formula, "yes" if score.forces_pulls else "no") for name, score in SCORES.items()],
        ),
        "policies": _markdown(
            ("policy", "what it does", "source"),
            [(f"`{policy()}`", policy.formula, policy.source or "-") for policy in POLICIES.values()],
        ),
        "arms": _markdown(("arms", "reward"), [(f"`{name}`", arms.formula) for name, arms in ARMS.items()]),
        "engines": _engines(),
        **{name: _markdown(lines[0], lines[1:]) for name, lines in speed_tables(read(ROWS)).items()},
        "tasks": _markdown(
            ("task", "context and answer", "a guess is right"),
            [(f"`{name}`", task.formula, f"{task().chance:.3f}") for name, task in TASKS.items()],
        ),
        "rl": _reinforcement(),
        "fused head": _fused_head(),
    }


def _reinforcement() -> str:
    """Interquartile mean and interval of every task and family of the committed study."""
    results = RLResults.load(RESULTS)
    rows = []
    for task in results.tasks:
        found = [results.score(task, family) for family in results.families]
        goal = f"{task_named(task).goal:g}"
        rows.append((task, goal, *(f"{score.value:.1f} [{score.low:.1f}, {score.high:.1f}]" for score in found)))
    return _markdown(("task", "asked for", *(f"`{family}`" for family in results.families)), rows)


def _fused_head() -> str:
    """Times of the fused head and of its rivals, from the committed rows."""
    rows = pd.read_csv(RESULTS / "fused_head_speed.csv")
    header = (
        "device",
        "scores",
        "loop",
        "device time, us",
        "fused is faster by",
        "of a copy's bandwidth",
        "called, us",
    )
    return _markdown(
        header,
        [
            (
                row["device"],
                f"[{row['rows']}, {row['entries']}]",
                row["loop"],
                f"{row['device_us']:.1f} ({row['device_us_p20']:.1f}, {row['device_us_p80']:.1f})",
                f"{row['fused_is_faster_by']:.1f} x",
                f"{row['percent_of_copy']:.0f} %",
                f"{row['called_us']:.0f}",
            )
            for row in rows.to_dict("records")
        ],
    )


def _engines() -> str:
    """Which engine runs which policy, found by asking each engine."""
    rows = []
    heads = [head() for head in HEADS.values()]
    members: list[Any] = [Pipe(SCORES["mean"](), head, head.mass_kind == "free") for head in heads]
    special = [parse_policy(text) for text in SPECIAL]
    for policy in [*members, *(policy() for policy in POLICIES.values()), *special]:
        text = str(policy).replace("mean", "score", 1) if policy in members else str(policy)
        rows.append((f"`{text}`", *(_runs(engine, policy) for engine in ENGINES.values())))
    header = [f"{name} ({', '.join(engine.dtypes)})" for name, engine in ENGINES.items()]
    return _markdown(("policy", *header), rows)


def _runs(engine: Any, policy: Any) -> str:
    table = ArmTable("bernoulli", np.full((2, 1), 0.5), 0.5, np.empty(0), np.empty(0, np.int64), True, 1)
    try:
        engine.check(policy, table, 100)
    except EngineError:
        return "no"
    return ", ".join(name for name, able in (("CPU", engine.cpu), ("CUDA", engine.cuda)) if able)


def _markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    escaped = [tuple(cell.replace("\\|", "|").replace("|", "\\|") for cell in row) for row in rows]
    lines = [header, tuple("---" for _ in header), *escaped]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rewrite(text: str) -> str:
    """README text with each `<!-- table: NAME -->` ... `<!-- end -->` block made anew."""
    for name, table in tables().items():
        start, end = f"<!-- table: {name} -->\n", "\n<!-- end -->"
        if start not in text:
            raise ValueError(f"README.md has no marker {start.strip()!r}")
        before, rest = text.split(start, 1)
        _, after = rest.split(end, 1)
        text = f"{before}{start}{table}{end}{after}"
    return text


if __name__ == "__main__":
    old = README.read_text(encoding="utf-8")
    new = rewrite(old)
    README.write_text(new, encoding="utf-8")
    sys.stdout.write("README.md was up to date\n" if new == old else "README.md rewritten\n")
