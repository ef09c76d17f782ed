"""The plateau benchmark as a section of docs/rl.md, written from the committed rows.

`python -m stau_rl.pages.plateau DIR` takes the tables of a finished benchmark into notebooks/results and draws
docs/plateau.png (fewest arms, no `shared` starts); without a folder it draws the figure from the committed curves.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stau_rl.files.finished import write_table
from stau_rl.pages.markdown import table
from stau_rl.pages.paths import DOCS, RESULTS
from stau_rl.plateau.folder import CURVES, DIGITS, FIGURE, TABLE, read_rows
from stau_rl.plateau.play import PUBLISHED_STEP
from stau_rl.plateau.report import notes, share_text, steps_text

ENOUGH = 0.10
"""A remedy works where its share of failures is at most this."""
NOTES = {
    "exact": "exact gradients",
    "sampled": "one pull per update, with the policy's exact value as baseline",
    "sampled_no_baseline": "one pull per update, no baseline",
}


def plateau_section(csv_path: str | Path = RESULTS / TABLE) -> str:
    """The section as Markdown, from `plateau.csv`; its sentences follow the numbers.

    Args:
        csv_path: rows of kinds `grid` and `best`, as `stau-rl plateau` writes them.

    Returns:
        Markdown that starts with a second-level heading and ends with a newline.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it holds no such rows.
    """
    rows = read_rows(Path(csv_path))
    if "kind" not in rows or not (rows["kind"] == "best").any():
        raise ValueError(f"{csv_path} holds no rows of a plateau benchmark")
    return section_of(rows)


def section_of(rows: pd.DataFrame) -> str:
    """The section of `plateau_section`, from rows."""
    best = rows[rows["kind"] == "best"]
    parts = ["## The plateau of policy gradients", _setup(rows)]
    parts += ["\n".join(f"- {sentence}" for sentence in findings(rows))]
    parts += [f"![Distance to the best reward over updates]({FIGURE})"]
    for (gradient, arms), mine in best.groupby(["gradient", "arms"], sort=False):
        parts.append(f"**K = {arms}, {NOTES[str(gradient)]}.** Draws not there, % [95 %]; median updates; step size.")
        parts.append(_main_table(mine))
    grid = rows[(rows["kind"] == "grid") & rows["start"].str.startswith("each")]
    for (gradient, arms, start), mine in grid.groupby(["gradient", "arms", "start"], sort=False):
        parts.append(f"The whole grid at K = {arms}, {start}, {gradient}: draws not there, %, by step size.")
        parts.append(_grid_table(mine))
    parts.append("\n".join(notes(rows)))
    parts.append(_made(rows))
    return "\n\n".join(parts) + "\n"


def findings(rows: pd.DataFrame) -> list[str]:
    """What the rows say about each kind of head, per gradient, at the starts with the other arms in play."""
    best = rows[rows["kind"] == "best"]
    sentences = []
    for (gradient, arms, start), mine in best.groupby(["gradient", "arms", "start"], sort=False):
        if not str(start).startswith("each"):
            continue
        grid = rows[
            (rows["kind"] == "grid")
            & (rows["gradient"] == gradient)
            & (rows["arms"] == arms)
            & (rows["start"] == start)
        ]
        shown = [_finding(row, grid[grid["method"] == row["method"]]) for row in mine.to_dict("records")]
        early = float(mine["at_start"].max())
        aside = f" ({100 * early:.0f} % of the draws are there before the first update)" if early else ""
        sentences.append(f"K = {arms}, `{start}`, {NOTES[str(gradient)]}{aside}: share not there: {'; '.join(shown)}.")
        remedies = mine[mine["method"].map(is_remedy)]
        if len(remedies):
            good = [str(row["method"]) for row in remedies.to_dict("records") if row["failed"] <= ENOUGH]
            listed = ", ".join(f"`{text}`" for text in good)
            sentences.append(
                f"There, learned sharpness fails in at most {100 * ENOUGH:.0f} % of the draws with {listed}."
                if good
                else f"There, no remedy brings learned sharpness to {100 * ENOUGH:.0f} % failures or less."
            )
    sentences += _pull(best)
    return sentences


def _finding(row: dict[Any, Any], grid: pd.DataFrame) -> str:
    """One head: its share at its best step size, and for softmax at the published one too."""
    text = f"`{row['method']}` {share_text(row)} %"
    published = grid[grid["step_size"] == PUBLISHED_STEP]
    if not row["method"].startswith("softmax") or row["gradient"] != "exact" or published.empty:
        return text
    return f"{text} ({100 * published['failed'].iloc[0]:.0f} % at the published step size {PUBLISHED_STEP:g})"


def _pull(best: pd.DataFrame) -> list[str]:
    """How much of softmax's failure comes from the other arms: the same p for the best arm, `each` against `shared`."""
    found = []
    softmax = best[best["method"].str.startswith("softmax") & (best["gradient"] == "exact")]
    for row in softmax[softmax["start"].str.startswith("each")].to_dict("records"):
        other = softmax[(softmax["start"] == row["start"].replace("each", "shared")) & (softmax["arms"] == row["arms"])]
        if len(other):
            found.append(
                f"K = {row['arms']}: `{row['start']}` {share_text(row)} %, "
                f"`{other.iloc[0]['start']}` {share_text(dict(other.iloc[0]))} %"
            )
    if not found:
        return []
    return [
        "What holds softmax is the arms below the second best: their mass lowers V, so the second best too is above "
        "V and is reinforced most, as it holds the most mass. Softmax at its best step size with exact gradients, each "
        f"of them at p against all of them together at p: {'; '.join(found)}."
    ]


def is_remedy(method: str) -> bool:
    """Whether a method is learned sharpness with one of the remedies."""
    return method.startswith("learned(") and any(f"{name}=" in method for name in ("rate", "freeze", "target"))


def _setup(rows: pd.DataFrame) -> str:
    first = rows.iloc[0]
    return (
        "One state, K arms, rewards uniform on [0, 1], policy-gradient ascent on the scores: the set-up of Mei et al. "
        "2020. All heads start from the same probabilities: `uniform`; `each(p)`, where every arm but the second best "
        "has p and the second best the rest; or `shared(p)`, where the best arm has p, the arms below the second best "
        "share p, and the second best has the rest. An `each(p)` that is uniform in truth is left out. The scores that "
        "give them are computed per head. Their largest is 10 unless `top` says otherwise, which is the positive "
        "offset of s^tau and makes no difference to softmax. A policy is there when its expected reward is within "
        f"{first['within']:g} of the best arm's. Plain `learned(...)` moves tau along the same gradient with the same "
        "step size; the remedies are a step size of its own (`rate`, a multiple), a warm-up (`freeze`, updates) and "
        "entropy control (`target`, a share of log K). A head that is there sooner than its warm-up ends was not yet "
        "learning tau."
    )


def _main_table(best: pd.DataFrame) -> str:
    starts = list(best["start"].unique())
    lines: list[Sequence[str]] = []
    for method, group in best.groupby("method", sort=False):
        by_start: dict[Any, dict[Any, Any]] = {row["start"]: row for row in group.to_dict("records")}
        lines.append((f"`{method}`", *(_cell(by_start[start]) if start in by_start else "-" for start in starts)))
    return table(("head", *starts), lines)


def _cell(row: dict[Any, Any]) -> str:
    mark = {"low": " v", "high": " ^"}.get(row["edge"], "")
    return f"{share_text(row)}; {steps_text(row)}; {row['step_size']:g}{mark}"


def _grid_table(grid: pd.DataFrame) -> str:
    sizes = sorted(grid["step_size"].unique())
    lines = []
    for method, group in grid.groupby("method", sort=False):
        by_size = dict(zip(group["step_size"], group["failed"], strict=True))
        lines.append((f"`{method}`", *(f"{100 * by_size[size]:.0f}" for size in sizes)))
    return table(("head", *(f"{size:g}" for size in sizes)), lines)


def _made(rows: pd.DataFrame) -> str:
    texts = {name: ", ".join(dict.fromkeys(rows[name])) for name in ("commit", "versions", "device")}
    commits = ", ".join(text[:12] for text in texts["commit"].split(", "))
    return (
        f"Made by `stau-rl plateau`, seed {int(rows['seed'].iloc[0])}, float64; commit {commits}; {texts['versions']}; "
        f"{texts['device']}. Rows, the whole grid included: `notebooks/results/{TABLE}`; curves: "
        f"`notebooks/results/{CURVES}`."
    )


def publish(folder: Path | None, results: Path = RESULTS, docs: Path = DOCS) -> None:
    """Take a benchmark's tables into `results`, if a folder is given, and draw the figure into `docs`."""
    from stau_rl.figures.save import both
    from stau_rl.plateau.plot import save_plateau

    if folder is not None:
        tables = {name: read_rows(folder / name) for name in (TABLE, CURVES)}
        for name, rows in tables.items():
            write_table(results / name, rows, DIGITS)
    curves = read_rows(results / CURVES)
    few = (curves["arms"] == curves["arms"].min()) & ~curves["start"].str.startswith("shared")
    save_plateau(curves[few], *both(docs / FIGURE))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m stau_rl.pages.plateau", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="folder of a finished benchmark")
    publish(parser.parse_args().folder)
