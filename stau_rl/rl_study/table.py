"""The table that a study of heads in reinforcement learning prints at its end, and what its columns are."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.rl_study.plan import text_table
from stau_rl.rl_study.results import RLResults, interval_text
from stau_rl.rl_study.tasks import parse_family, stars
from stau_rl.statistics.robust import interquartile_mean
from stau_rl.terminal.glossary import HINT

NONE = "-"
WIDE = 36


def printed(results: RLResults) -> str:
    """A row per task and family, and below it a line per column; columns without any number are left out."""
    shown, rows = _cells(results)
    # The default study's table is 119 characters wide.
    table = text_table(shown, [[row[name] for name in shown] for row in rows], gap=1)
    return "\n".join([table, *_known_notes(results, shown)])


def render(results: RLResults, explain: bool = True, title: str = "") -> RenderableType:
    """The same for a rich console, which fits it to its width; with `explain`, what the columns are."""
    shown, rows = _cells(results)
    shown_title = Text(title) if title else None
    table = Table(title=shown_title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in shown:
        text = name in ("task", "head")
        words = name if text else name.replace("_", "\n")
        # Texts are folded on a narrow terminal, but not into less than most of them need.
        least = min(WIDE, max(len(row[name]) for row in rows)) if text else None
        table.add_column(words, justify="left" if text else "right", overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in shown))
    notes = [" ".join(note.split()) for note in _known_notes(results, shown)] if explain else [HINT]
    return Group(table, Text("\n".join(notes)))


def _known_notes(results: RLResults, shown: list[str]) -> list[str]:
    return [note for name, note in _notes(results).items() if name in shown]


def _cells(results: RLResults) -> tuple[list[str], list[dict[str, str]]]:
    """Names of the columns that hold a number, and the rows as texts."""
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
    return [name for name in rows[0] if any(row[name] != NONE for row in rows)], rows


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
