"""The table that a study of heads in reinforcement learning prints at its end, and what its columns are."""

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from stau_rl.rl_study.plan import text_table
from stau_rl.rl_study.results import RLResults, interval_text
from stau_rl.rl_study.tasks import parse_family, stars
from stau_rl.statistics.robust import interquartile_mean

NONE = "-"


def printed(results: RLResults) -> str:
    """A row per task and family, and below it a line per column; columns without any number are left out."""
    shown, rows, notes = _found(results)
    # The default study's table is 119 characters wide.
    return "\n".join([text_table(shown, rows, gap=1), *notes])


def render(results: RLResults, title: str) -> Group:
    """What `printed` says, for a rich console or a notebook."""
    shown, rows, notes = _found(results)
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(shown):
        table.add_column(name, justify="left" if place < 2 else "right")
    for row in rows:
        table.add_row(*(Text(cell.strip()) for cell in row))
    return Group(table, Text("\n".join(note.replace("\n ", "") for note in notes)))


def _found(results: RLResults) -> tuple[list[str], list[list[str]], list[str]]:
    """Names of the columns, the cells, and the notes."""
    improvement, controlled = results.p_values(), results.p_values(control=True)
    rows = []
    for task in results.tasks:
        for family in results.families:
            cell = task, family
            head, rate = results.tuned(*cell)
            head_end, rate_end = stars(results.task(task), parse_family(family), head, rate)
            offset = parse_family(family).offset
            rows.append(
                {
                    "task": task,
                    "head": f"{head}{head_end}" + (f" + {offset:g}" if offset else ""),
                    "rate": f"{rate:g}{rate_end or ' '}",
                    "sampled": interval_text(results.score(*cell), ".1f"),
                    "deterministic": f"{interquartile_mean(results.evaluation(*cell)['deterministic'].to_numpy()):.1f}",
                    "improvement": f"{results.improvement(*cell).value:.2f}" if cell in improvement else NONE,
                    "p_holm": f"{improvement[cell]:.2g}" if cell in improvement else NONE,
                    "over_control": (
                        f"{results.improvement(*cell, control=True).value:.2f}" if cell in controlled else NONE
                    ),
                }
            )
    shown = [name for name in rows[0] if any(row[name] != NONE for row in rows)]
    notes = [note for name, note in _notes(results).items() if name in shown]
    return shown, [[row[name] for name in shown] for row in rows], notes


def _notes(results: RLResults) -> dict[str, str]:
    """What a column is, by its name."""
    return {
        "head": "head: the chosen one; + NUMBER: initial value of all action scores; rate: the chosen learning rate. "
        "*: at an end\n  of its grid, a better one may lie outside.",
        "sampled": "sampled: mean return after training with sampled actions, interquartile mean over seeds [95 % "
        "interval];\n  deterministic: with likeliest actions.",
        "improvement": f"improvement: P(a run scores better than one of the first family, {results.families[0]}), "
        "sampled, ties count half.",
        "p_holm": "p_holm: p-value of the improvement, exact rank sum, adjusted by Holm over all tasks and families.",
        "over_control": "over_control: P(a run scores better than one of the first family at this row's sharpness and "
        "learning rate).",
    }
