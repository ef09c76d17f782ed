"""`python -m stau_rl.pages.rl` writes docs/rl.md, its figures and its notebook from the committed rows.

`--publish DIR` first takes over the rows of a finished `stau-rl rl-study`.
"""

import argparse
import shutil
from pathlib import Path

import pandas as pd

from stau_rl.files.whole import whole_file
from stau_rl.pages import openings
from stau_rl.pages.claim_effect import ALPHA
from stau_rl.pages.claim_lines import claim_table
from stau_rl.pages.markdown import table
from stau_rl.pages.notebook_outputs import write_notebook
from stau_rl.pages.notebooks import RL
from stau_rl.pages.paths import DOCS, NOTEBOOKS, RESULTS
from stau_rl.pages.plateau import section_of
from stau_rl.pages.rl_figures import save_figures
from stau_rl.pages.rl_lines import lines
from stau_rl.rl_study.folder import CURVES, RUNS
from stau_rl.rl_study.results import RLResults, interval_text
from stau_rl.rl_study.tasks import FAMILIES, RATES, SLOPES, parse_family, points, settings, stars, task_named
from stau_rl.statistics.robust import interquartile_interval

PAGE = DOCS / "rl.md"
NOTEBOOK = NOTEBOOKS / "rl.ipynb"


def page(results: RLResults) -> str:
    """The whole page as Markdown."""
    runs = results.runs
    tuning = runs[runs["role"] == "tuning"]["seed"].nunique()
    # Rows that share a run have the same numbers throughout.
    played = runs.drop(columns=["role", "control_of"]).drop_duplicates()
    evaluation = runs[runs["role"] == "evaluation"]["seed"].nunique()
    parts = [
        "# Heads in reinforcement learning",
        claim_table(lines(results, _plateau_heading(results))),
        "![Learning curves](rl_curves.png)",
        "\n".join(f"- {sentence}" for sentence in openings.reinforcement(results)),
        "Written by `python -m stau_rl.pages.rl` from `notebooks/results/rl_*.csv`; the sentences below follow the "
        "numbers.",
        "## Sentence by sentence",
        "\n".join(f"- {sentence}" for sentence in conclusions(results)),
        "## What is compared",
        "Networks, agent and environment are the same; only the head between the action scores and the policy "
        f"differs. Each head is tuned on {tuning} seeds over the same number of points: {len(SLOPES)} sharpnesses "
        f"(slopes {', '.join(f'{slope:g}' for slope in SLOPES)} of the log-weights at the initial scores) times "
        f"{RATES} learning rates. The best point is then played on {evaluation} other seeds, and those are reported. "
        "`{x}` is what is tuned, `+ 1` the initial value of all action scores. Seeds are numbered from 0 in either "
        "role, but seed 0 of the tuning is another one than seed 0 of the evaluation.",
        "**Score**: mean return of 100 episodes after the last step. *Sampled* follows the policy, *deterministic* "
        "takes its likeliest action. Where points of the grid have equal scores, the one with the higher mean of the "
        "learning curve is chosen. Given are the interquartile mean over seeds and its 95 % bootstrap interval. "
        "*P(better)* is the probability that a run scores more than one of the first head (sampled, ties count half; "
        "without an interval where all pairs of runs agree), "
        "p the exact one of the rank sum, adjusted by Holm over all tasks and heads; the sentences above ask for "
        f"p <= {ALPHA:g}. "
        "*Control* is the first head on the same seeds at the sharpness and learning rate that were chosen for the "
        "other: what it scores is a matter of these two, not of the head. A star marks a choice at an end of its grid: "
        "a better one may lie outside.",
        "## Scores",
        *(block for task in results.tasks for block in _task(results, task)),
        "## Over all tasks",
        "Scores are brought to one scale (0: the uniformly random policy, 1: the reference score of the task). The "
        "interval is a bootstrap stratified by task.",
        table(
            ("head", "interquartile mean"),
            [(f"`{family}`", interval_text(results.overall(family), ".3f")) for family in results.families],
        ),
        "![Performance profiles](rl_profiles.png)",
        *([] if results.plateau is None else [section_of(results.plateau).rstrip()]),
        "## How it was made",
        f"{len(played)} runs in {len(runs)} rows, as {len(runs) - len(played)} rows of a control share the run of "
        f"another; {played['seconds'].sum() / 60:.0f} core-minutes on {_each(runs['device'])}; "
        f"{_each(runs['versions'])}; commit {_each(runs['commit'])}. `stau-rl rl-study --out DIR` plays it, "
        "`python -m stau_rl.pages.rl --publish DIR` takes the rows over. With the same versions on the same kind of "
        "processor it gives the same numbers; with others single runs differ, as those of other seeds do. Settings "
        "beside the tuned ones:",
        _settings(results),
    ]
    return "\n\n".join(parts) + "\n"


def _plateau_heading(results: RLResults) -> str:
    """The heading of the section on the plateau."""
    if results.plateau is None:
        return ""
    return next(line[3:] for line in section_of(results.plateau).splitlines() if line.startswith("## "))


def conclusions(results: RLResults) -> list[str]:
    """What the numbers say, sentence by sentence."""
    reference = results.families[0]
    found = []
    for control, against in ((False, "each at its best"), (True, "at the same sharpness and learning rate")):
        p_values = results.p_values(control=control)
        for family in results.families[1:]:
            mine = {task: p for (task, name), p in p_values.items() if name == family}
            higher = {task for task in mine if results.improvement(task, family, control=control).value > 0.5}
            sure = {task for task in mine if mine[task] <= ALPHA}
            parts = [
                f"{word} on {', '.join(task for task in results.tasks if task in tasks)}"
                for word, tasks in (
                    ("scores higher", sure & higher),
                    ("scores lower", sure - higher),
                    ("shows no difference that these seeds can tell", mine.keys() - sure),
                )
                if tasks
            ]
            if parts:
                found.append(f"`{family}` against `{reference}`, {against}: {'; '.join(parts)}.")
    for task in results.tasks:
        goal = task_named(task).goal
        met = [family for family in results.families if results.score(task, family).value >= goal]
        who = "every head" if len(met) == len(results.families) else ", ".join(f"`{name}`" for name in met) or "no head"
        found.append(f"{task}: {who} reaches the reference score of {goal:g} (sampled).")
    for task in results.tasks:
        for family in results.families:
            scores, floor = results.evaluation(task, family)["sampled"], task_named(task).floor
            failed = scores[scores < (floor + task_named(task).goal) / 2]
            if len(failed):
                listed = ", ".join(f"{score:.1f}" for score in sorted(failed))
                found.append(
                    f"The interquartile mean does not see single failures: {task}, `{family}`: {len(failed)} of "
                    f"{len(scores)} runs end below the middle between the random policy and the reference ({listed})."
                )
    return found


def _task(results: RLResults, task: str) -> list[str]:
    known = task_named(task)
    steps = int(results.evaluation(task, results.families[0])["steps"].iloc[0])
    rows = []
    chosen, controlled = results.p_values(), results.p_values(control=True)
    for family in results.families:
        head, rate = results.tuned(task, family)
        cell = task, family
        cells = [interval_text(results.score(task, family, kind), ".1f") for kind in ("sampled", "deterministic")]
        cells.append(_chance(results, cell, chosen.get(cell), control=False))
        control = results.control(task, family)
        has_control = len(control) > 0
        score = interval_text(interquartile_interval(control["sampled"], seed=0), ".1f") if has_control else ""
        cells.append(score)
        cells.append(_chance(results, cell, controlled.get(cell), control=True))
        head_end, rate_end = stars(known, parse_family(family), head, rate)
        rows.append((f"`{family}`", f"`{head}`{head_end}", f"{rate:g}{rate_end}", *cells))
    return [
        f"### {task}",
        f"{known.agent.upper()} on {known.env}, {steps} steps; reference score {known.goal:g}.",
        table(
            ("head", "tuned", "learning rate", "sampled", "deterministic", "P(better)", "control", "P(better)"),
            rows,
        ),
    ]


def _chance(results: RLResults, cell: tuple[str, str], p: float | None, *, control: bool) -> str:
    """Probability of improvement with its interval and p-value; empty where nothing is compared."""
    return "" if p is None else f"{interval_text(results.improvement(*cell, control=control), '.2f')}, p {p:.2g}"


def _settings(results: RLResults) -> str:
    lines = []
    for name in results.tasks:
        task = task_named(name)
        head, rate = points(task, FAMILIES[0])[0]
        skipped = {"env", "head", "learning_rate", "score_offset", "points", "curve_episodes", "learn", "head_rate"}
        kept = {key: value for key, value in settings(task, FAMILIES[0], head, rate).items() if key not in skipped}
        low, high = task.rates
        text = ", ".join(f"{key}={value}" for key, value in kept.items())
        lines.append(f"- {name}: learning rates {low:g} to {high:g}; {text}")
    return "\n".join(lines)


def _each(column: "pd.Series[str]") -> str:
    """The values of a column, each once."""
    return ", ".join(dict.fromkeys(column))


def write(results: RLResults) -> None:
    """Write the page, the figures and the notebook."""
    save_figures(results, PAGE.parent)
    with whole_file(PAGE) as temporary:
        temporary.write_text(page(results), encoding="utf-8")
    write_notebook(NOTEBOOK, RL)


def main() -> None:
    """Read the arguments and do it."""
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.rl", description=__doc__)
    parser.add_argument("--publish", type=Path, metavar="DIR", help="folder of a finished study")
    source = parser.parse_args().publish
    if source is not None:
        for name in (RUNS, CURVES):
            with whole_file(RESULTS / name) as temporary:
                shutil.copyfile(source / name, temporary)
    write(RLResults.load(RESULTS))
    print(f"{PAGE} written")


if __name__ == "__main__":
    main()
