"""What a study prints: a line per setting, with the raw, equally sharp and tuned comparison side by side."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stau_rl.regret.report import interval, none_or_less, p_value
from stau_rl.study.family import PLACEHOLDER, Family
from stau_rl.study.match import unmatched
from stau_rl.study.pilot import steps_unscored
from stau_rl.terminal.glossary import HINT

TABLE_WIDTH = 140
SHOWN = (("raw", "raw"), ("slope", "same slope at 0"), ("entropy", "same entropy"), ("tuned", "each at its best"))


def render(rows: pd.DataFrame, explain: bool = True) -> RenderableType:
    """A table per family other than the reference, for a rich console; with `explain`, what the columns mean."""
    parts: list[RenderableType] = []
    places = family_place(rows)
    for place in range(1, int(places.max()) + 1):
        parts.append(_table(rows[places == place], rows[places == 0]))
    parts.append(Text("\n".join(notes(rows, explain))))
    return Group(*parts)


def family_place(rows: pd.DataFrame) -> "pd.Series[int]":
    """Which of the setting's families a row is about, counted from the reference, 0; -1 for reference policies."""

    def place(group: pd.DataFrame) -> "pd.Series[int]":
        known = group.loc[group["comparison"] == "raw", "family"].tolist()
        return group["family"].map({text: number for number, text in enumerate(known)}).fillna(-1).astype(int)

    return pd.concat([place(group) for _, group in rows.groupby("setting", sort=False)]).reindex(rows.index)


def _table(rows: pd.DataFrame, reference: pd.DataFrame) -> Table:
    """The table of a family, from its rows and those of the reference."""
    family, first = Family(str(rows["family"].iloc[0])), Family(str(reference["family"].iloc[0]))
    names = " against ".join(_names(family.text, first.text if first.parameter else _first_baseline(rows)))
    title = f"{names}: % of regret, 95 % interval (less is better)"
    mine, theirs = _members(rows), _members(reference)
    if mine and theirs and mine != theirs:
        title += f"; {mine} members tried against {theirs}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting", overflow="fold", min_width=16)
    for _, name in SHOWN:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("p (Holm)", justify="right", no_wrap=True)
    table.add_column(family.parameter or "slope", justify="right", no_wrap=True)
    for _, group in rows.groupby("setting", sort=False):
        by_kind: dict[Any, dict[Any, Any]] = {row["comparison"]: row for row in group.to_dict("records")}
        cells = [_compact(by_kind.get(kind)) for kind, _ in SHOWN]
        tuned = by_kind.get("tuned")
        slope = f"{_slope(_best(group, tuned))}{_edge(tuned['edge'])}" if tuned is not None else ""
        adjusted = p_value(tuned["p_holm"]) if tuned is not None and not pd.isna(tuned["p_holm"]) else ""
        table.add_row(str(group.iloc[0]["value"]), *cells, adjusted, slope)
    return table


def percent_text(row: dict[Any, Any] | None) -> str:
    """A row's percentage with its interval; empty without one."""
    if row is None or pd.isna(row["percent"]):
        return ""
    return interval(row["percent"], row["percent_low"], row["percent_high"])


def _compact(row: dict[Any, Any] | None) -> str:
    """`percent_text` without decimals from a hundred on, so that columns stay narrow; a dash where there is none."""
    if row is None or pd.isna(row["percent"]):
        return "-"
    large = max(abs(row["percent_low"]), abs(row["percent_high"])) >= 100
    return interval(row["percent"], row["percent_low"], row["percent_high"], ".0f" if large else ".1f")


def notes(rows: pd.DataFrame, explain: bool = True) -> Iterator[str]:
    """What the table's columns mean, and what to be careful about."""
    tuned = rows[rows["comparison"] == "tuned"]
    differ = _unequal_budgets(tuned)
    tried = "as many members of a family as its grid has" if differ else "{} members of each family"
    meaning = (
        "Differences are paired by instance. Best parameters come from "
        f"{tried.format(int(tuned['tuning_points'].max()))} on instances of another seed; the interval of "
        "each at its best counts that other instances would have chosen otherwise, that of same entropy the error of "
        "the match. p: of each at its best, adjusted for the number of such comparisons. Slope: of the best member, "
        "or its parameter where there is no slope."
    )
    yield meaning if explain else HINT
    if differ:
        yield differ
    for text in dict.fromkeys(map(str, tuned["family"])):
        if (family := Family(text)).parameter:
            yield f"{family.parameter}: what stands for {{x}} in the best member of {text}."
    edges = tuned[tuned["edge"].isin(["low", "high"])]
    of_reference = family_place(rows)[edges.index] == 0
    if marked := int((~of_reference).sum()):
        cases = f"{marked} case{'s' if marked > 1 else ''}"
        yield f"In {cases} (marked ^ or v) the best member lies at an end of the grid."
    if of_reference.any():
        where = ", ".join(str(value) for value in edges.loc[of_reference, "value"])
        yield f"The best member of the reference lies at an end of the grid at: {where}."
    yield from _blanks(rows)


def _members(rows: pd.DataFrame) -> int:
    """How many members of a family were tried in its first setting; 0 for one that is not tuned."""
    return int(rows.loc[rows["comparison"] == "tuned", "tuning_points"].iloc[0])


def _unequal_budgets(tuned: pd.DataFrame) -> str:
    """A sentence on grids of different size, of the first setting that has them; empty where budgets are equal."""
    tried = tuned[tuned["tuning_points"] > 0]
    for _, group in tried.groupby("setting", sort=False):
        if group["tuning_points"].nunique() > 1:
            sizes = ", ".join(f"{row['tuning_points']} of {row['family']}" for row in _records(group))
            return f"Budgets are not equal: members tried are {sizes}; the larger grid has more to choose from."
    return ""


def _best(rows: pd.DataFrame, tuned: dict[Any, Any]) -> float:
    """Slope of the best member of a family in a setting, or its parameter where that is what was tuned."""
    family = Family(str(tuned["family"]))
    if not family.parameter:
        return float(tuned["slope"])
    mine = rows[(rows["comparison"] == "curve") & (rows["policy"] == tuned["policy"])]
    return family.value_of(float(mine["slope"].iloc[0]))


def _blanks(rows: pd.DataFrame) -> Iterator[str]:
    """Why cells hold a dash, a sentence per family and reason; a sweep may change a family's text, not the reason."""
    seen: set[tuple[Any, ...]] = set()
    idle: dict[str, float] = {}
    for _, group in rows.groupby("setting", sort=False):
        texts = group.loc[group["comparison"] == "raw", "family"].tolist()
        first = Family(texts[0])
        for place, text in enumerate(texts):
            family, mine = Family(text), {row["comparison"]: row for row in _records(group[group["family"] == text])}
            for kind, name in SHOWN if place else ():
                row = mine.get(kind)
                if row is not None and not pd.isna(row["percent"]):
                    continue
                if row is not None and row["baseline_regret"] <= 0:
                    idle[str(row["value"])] = row["baseline_regret"]
                    continue
                sort, reason = _why_blank(kind, family, first, group.iloc[0]) if row is None else _why_same(row)
                if (place, kind, sort) not in seen:
                    seen.add((place, kind, sort))
                    yield f"No comparison at {name}: {reason}."
            if not family.tunable and (place, "tuned") not in seen:
                seen.add((place, "tuned"))
                yield f"{family.shown} has no parameter that is tuned: it takes part as it is, and has no slope."
    if idle:
        regret = none_or_less(idle.values())
        yield f"Without a percentage are comparisons with a policy whose regret is {regret}, at: {', '.join(idle)}."


def _records(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    return rows.to_dict("records")


def _why_same(row: dict[Any, Any]) -> tuple[str, str]:
    """Like `_why_blank` where there is a row, of a policy beside itself."""
    return "same", f"{row['policy']} would be compared with itself ({row['value']})"


def _why_blank(kind: str, family: Family, first: Family, row: "pd.Series[Any]") -> tuple[str, str]:
    """The sort of reason, of which one sentence is enough, and the reason."""
    if known := unmatched(kind, family, first):
        return "unmatched", known
    if kind == "entropy" and row["horizon"] <= steps_unscored(family.raw, row["arms"]):
        return "short", f"a run of {row['horizon']} steps ends before {family.shown} asks for scores ({row['value']})"
    return "none", f"no {first.name} is as sharp as {family.text} ({row['value']})"


def _slope(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _edge(edge: str) -> str:
    return {"high": " ^", "low": " v"}.get(edge, "")


def _first_baseline(rows: pd.DataFrame) -> str:
    return str(rows.loc[rows["comparison"] == "raw", "baseline"].iloc[0])


def _names(policy: str, baseline: str) -> tuple[str, str]:
    """Two policies by their heads if they share the score, else whole."""
    (score, _, head), (other, _, first) = policy.partition("|"), baseline.partition("|")
    alike = score == other and PLACEHOLDER not in score
    return (head.strip(), first.strip()) if alike and head and first else (policy, baseline)
