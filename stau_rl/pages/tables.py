"""`python -m stau_rl.pages.tables` rewrites the tables of README.md and docs/ from registries and committed rows."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.agents.bandit import POLICIES, SCORES, Index, Pipe, parse_policy
from stau_rl.envs.arms import ARMS
from stau_rl.envs.tasks import TASKS
from stau_rl.heads import HEADS
from stau_rl.heads.base import MASS
from stau_rl.kernels.engines import ENGINES
from stau_rl.kernels.support import support
from stau_rl.pages import agent_settings, command_line
from stau_rl.pages.markdown import code, listing
from stau_rl.pages.paths import DOCS, README, RESULTS, ROOT
from stau_rl.pages.speed import tables as speed_tables
from stau_rl.rl_study.results import RLResults
from stau_rl.rl_study.tasks import task_named
from stau_rl.speed.loops import PEERS_ARMS
from stau_rl.speed.rows import compare, latest, read

# Kinds of policy that are no registry entry of their own: a schedule, an offset.
SPECIAL = ("centred_ucb | softmax(beta=4*log(t))", "centred_ucb(offset=2) | s_tau(tau=5)")
RATIOS_HEAD = "s_tau(tau=5)"


def tables() -> dict[str, str]:
    """Every generated table by name, as Markdown."""
    rows = read(RESULTS / "speed.csv")
    return {
        "heads": listing(
            ("head", "f(s)", "mass", "sharpened by", "source"),
            [
                (
                    code(str(head())),
                    _bars(head.formula),
                    MASS[head.mass_kind],
                    head.sharpness or "-",
                    head.source or "-",
                )
                for head in HEADS.values()
            ],
        ),
        "scores": listing(
            ("score", "value for arm k", "pulls every arm once first", "source"),
            [
                (code(name), _bars(score.formula), "yes" if score.forces_pulls else "no", score.source or "-")
                for name, score in SCORES.items()
                if not issubclass(score, Index)
            ],
        ),
        "indices": listing(
            ("index", "value for arm k", "source"),
            [
                (code(str(score())), _bars(score.formula), score.source)
                for score in SCORES.values()
                if issubclass(score, Index)
            ],
        ),
        "policies": listing(
            ("policy", "what it does", "source"),
            [(code(str(policy())), _bars(policy.formula), policy.source or "-") for policy in POLICIES.values()],
        ),
        "arms": listing(("arms", "reward"), [(code(name), _bars(arms.formula)) for name, arms in ARMS.items()]),
        "engines": _engines(),
        **{name: listing(lines[0], lines[1:]) for name, lines in speed_tables(rows).items()},
        "tasks": listing(
            ("task", "context and answer", "a guess is right"),
            [(code(name), _bars(task.formula), f"{task().chance:.3f}") for name, task in TASKS.items()],
        ),
        "rl": _reinforcement(),
        "fused head": _fused_head(),
        "speed_ratios": _speed_ratios(rows),
        "commands": command_line.reference(),
        "agent settings": agent_settings.reference(),
    }


def _reinforcement() -> str:
    """Interquartile mean and interval of every task and family of the committed study."""
    results = RLResults.load(RESULTS)
    rows = []
    for task in results.tasks:
        found = [results.score(task, family) for family in results.families]
        goal = f"{task_named(task).goal:g}"
        rows.append((task, goal, *(f"{score.value:.1f} [{score.low:.1f}, {score.high:.1f}]" for score in found)))
    return listing(("task", "asked for", *(code(family) for family in results.families)), rows)


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
    return listing(
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
    indices = [parse_policy(name) for name, score in SCORES.items() if issubclass(score, Index)]
    for policy in [*members, *(policy() for policy in POLICIES.values()), *indices, *special]:
        text = str(policy).replace("mean", "score", 1) if policy in members else str(policy)
        rows.append((code(text), *support(policy).values()))
    header = [f"{name} ({', '.join(engine.dtypes)})" for name, engine in ENGINES.items()]
    return listing(("policy", *header), rows)


def _speed_ratios(rows: pd.DataFrame) -> str:
    """The fastest engine beside the fastest peer of each kind, for one head."""
    rows = latest(rows)
    rows = rows[(rows["arms"] == PEERS_ARMS) & (rows["head"] == RATIOS_HEAD)]
    lines = []
    for device, some in rows.groupby("device", sort=False):
        best, ratios = compare(some)
        rate = some.loc[some["engine"] == best, "median"].max() / 1e9
        peers = ", ".join(f"{ratio:.3g} x {name}" for name, ratio in ratios.items())
        lines.append((str(device), best, f"{rate:.3g}" if rate < 100 else f"{rate:.0f}", peers))
    return listing(("device", "engine", "G arm-steps/s", "that is"), lines)


def _bars(text: str) -> str:
    """Text of a cell, its bars escaped."""
    return text.replace("|", "\\|")


def files() -> list[Path]:
    """README.md and every page of docs/ that is written by hand."""
    return [README, *sorted(path for path in DOCS.rglob("*.md") if path.parent != DOCS / "notebooks")]


def rewrite(text: str, made: Mapping[str, str], name: str) -> str:
    """A file's text with each `<!-- table: NAME -->` ... `<!-- end -->` block made anew.

    Args:
        text: of the file.
        made: the tables by name.
        name: of the file, for errors.

    Raises:
        ValueError: a block names no table, or does not end.
    """

    def block(match: re.Match[str]) -> str:
        if match[1] not in made:
            raise ValueError(f"{name}: there is no table {match[1]!r}; there are {', '.join(made)}")
        return f"<!-- table: {match[1]} -->\n\n{made[match[1]]}\n\n<!-- end -->"

    new = re.sub(r"<!-- table: ([^\n]*) -->\n.*?<!-- end -->", block, text, flags=re.S)
    if new.count("<!-- table:") != new.count("<!-- end -->"):
        raise ValueError(f"{name}: a table begins without an end, or ends without a beginning")
    return new


def main() -> None:
    """Rewrite every file, and say which were out of date."""
    made = tables()
    used = set()
    for path in files():
        old = path.read_text(encoding="utf-8")
        used |= set(re.findall(r"<!-- table: ([^\n]*) -->", old))
        new = rewrite(old, made, path.name)
        if new != old:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)} rewritten\n")
    if missing := set(made) - used:
        raise ValueError(f"no file shows the tables {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
