"""Tables of the parts that ask what authors claim: short ones for docs/attention.md, long ones for its appendix."""

import numpy as np

from stau_rl.envs.tasks import parse_task
from stau_rl.envs.tasks.mqar import MultiQueryRecall
from stau_rl.pages.attention_asked import Asked
from stau_rl.pages.attention_evidence import (
    best_rate,
    gate_text,
    grid_cells,
    grid_rows,
    mean_text,
    passing,
    short,
    starving,
    taught,
)
from stau_rl.pages.attention_lines import ONE, ROTARY, SMOOTHED
from stau_rl.pages.lssar_training import LONG, MOST, STEPS, TRAINED
from stau_rl.pages.markdown import table
from stau_rl.probe.claims_plan import GATES, MQAR, NORMS, THRESHOLDS
from stau_rl.probe.plan import FACTORS
from stau_rl.probe.summary import cell

WORDS = {
    "clamp": "min(1, m)",
    "hill": "m^p / (1 + m^p)",
    "sink": "sink of weight 1",
    "none": "none: mass 1",
}
"""What each gate does with m, the largest score above the threshold."""
SHOWN = (
    *("sm_fir", "softmax_off_by_one_fir", "softpick_fir", "sigmoid_fir", "lssar_fir"),
    *("pn_fir", "pn_fir_c", "pn_fir_tau", "pn_fir_tau_hill_calibrated"),
)
"""Heads of the short table of taught silence; the long one has all."""
TRAINED_AT = (ONE, SMOOTHED, ROTARY)


def gate_table(asked: Asked) -> str:
    """Seeds that pass, by gate and start of the threshold: taps of norm L1 and, behind the bar, L2."""
    rows = []
    for gate in GATES:
        cells = []
        for start in (*THRESHOLDS, None):
            held = [passing(asked.of("gates", gate_text(gate, start, norm))).held for norm in NORMS]
            cells.append(" / ".join(map(str, held)))
        rows.append((WORDS[gate], *cells))
    return table(("gate", *(f"from {start:g}" for start in THRESHOLDS), "fixed at 0"), rows)


def taught_table(asked: Asked, names: tuple[str, ...] = SHOWN, metric: str = "hallucination") -> str:
    """A metric in percent, by head and share of unanswerable training rows."""
    found = taught(asked, metric)
    header = (metric.replace("_", " "), *(f"{100 * share:g} %" for share in found.shares))
    rows = [(f"`{name}`", *(f"{100 * found.of(name, share):.1f}" for share in found.shares)) for name in names]
    return table(header, rows)


def mqar_table(asked: Asked) -> str:
    """Right answers in the first cell of the grid of places and pairs: the best rate of each head, and every rate."""
    rates = sorted(grid_rows(asked)["rate"].unique())
    rows = []
    for name in MQAR:
        rate, values = best_rate(asked, name)
        own = grid_rows(asked, name)
        each = [short(float(own.loc[own["rate"] == one, "decoded"].mean())) for one in rates]
        rows.append((f"`{name}`", f"{rate:g}", mean_text(values), *each))
    return table(("head", "best rate", "right answers", *(f"{rate:g}" for rate in rates)), rows)


def mqar_cells_table(asked: Asked) -> str:
    """Right answers in every finished cell of the grid, at the best rate of each head in each cell, and that rate."""
    cells = grid_cells(asked)
    rows = []
    for name in MQAR:
        found = [best_rate(asked, name, cell) for cell in cells]
        rows.append((f"`{name}`", *(f"{mean_text(values)} at {rate:g}" for rate, values in found)))
    return table(("head", *map(cell_text, cells)), rows)


def cell_text(cell: tuple[str, int]) -> str:
    """`16 pairs in 64 places, 2 layers`."""
    task = parse_task(cell[0])
    assert isinstance(task, MultiQueryRecall)
    return f"{task.pairs} pairs in {task.places} places, {cell[1]} layers"


def length_table(asked: Asked) -> str:
    """Right answers at the trained length and at 16 times that, for the three forms of the pass key."""
    rows = []
    for plain in asked.names(ONE):
        cells = []
        for part in TRAINED_AT:
            name = plain if part == ONE else smoothed(plain)
            ends = [short(float(asked.values("decoded", part, name, factor).mean())) for factor in (1, FACTORS[-1])]
            cells.append(" to ".join(ends))
        rows.append((f"`{label(plain)}`", *cells))
    return table(("head", "one value", "among rivals", "among rivals, rotary"), rows)


def smoothed(name: str) -> str:
    """The same head with smoothed keys, as the plan writes it."""
    if name == "softmax":
        return "sm_fir"
    return f"{name[:-1]}, fir_taps=7)" if "(" in name else f"{name}(fir_taps=7)"


def label(name: str) -> str:
    """A shorter name of a head: LSSAR with another map inside by that map."""
    inner = name.partition("inner=")[2].split(",")[0]
    return f"{inner} inside, p = 15" if inner else name


def why_table(asked: Asked) -> str:
    """The small study: right answers of each trained head as itself and as LSSAR at the largest power."""
    rows = []
    for text, steps in [*TRAINED.items(), (MOST, LONG)]:
        own, other = asked.trained(text, steps=steps), asked.trained(text, MOST, steps)
        note = "" if steps == STEPS else f", {steps} steps"
        values = (
            mean_text(rows_["decoded"].to_numpy(dtype=np.float64), scale=1.0) if len(rows_) else "-"
            for rows_ in (own, other)
        )
        rows.append((f"`{text}`{note}", *values, mean_text(own["zero"].to_numpy(dtype=np.float64))))
    return table(("trained", "asked as itself", "asked at p = 15", "places that start at 0"), rows)


def asked_tables(asked: Asked) -> list[str]:
    """The section of the appendix."""
    parts = ["## Parts that ask what authors claim"]
    for name in (part for part in asked.rows["part"].unique() if part.startswith("gates") or part == "calibrated"):
        rows = []
        for head in asked.names(name):
            own = asked.of(name, head)
            ends = [
                cell(own[metric].median(), own[metric].max() if metric == "mass_unanswerable" else own[metric].min())
                for metric in ("decoded", "mass_unanswerable")
            ]
            rows.append((f"`{head}`", passing(own).text, starving(own).text, *ends))
        parts.append(f"### {name}")
        header = ("head", "seeds that pass", "seeds with a starved key", "decoded", "mass unanswerable")
        parts.append(table(header, rows))
    heads = tuple(asked.names("silence share"))
    parts += ["### Share of unanswerable training rows", "Means over seeds, percent."]
    metrics = ("hallucination", "silent_decoded", "decoded", "recall", "commit_rate", "mass_unanswerable")
    parts += [taught_table(asked, heads, metric) for metric in metrics]
    for part in TRAINED_AT:
        rows = [
            (f"`{label(name)}`", *(mean_text(asked.values("decoded", part, name, factor)) for factor in (1, *FACTORS)))
            for name in asked.names(part)
        ]
        parts += [f"### {part}", "Right answers, mean over seeds with its 95 % interval."]
        parts.append(table(("head", *(f"{factor}x" for factor in (1, *FACTORS))), rows))
    parts += ["### LSSAR, what is hard to train", why_table(asked)]
    return parts
