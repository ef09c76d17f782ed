"""The text of docs/claim.md, written from the committed rows; its long tables are in docs/claim_tables.md."""

from typing import Any

import pandas as pd

from stau_rl.pages.claim_data import ClaimData
from stau_rl.pages.claim_effect import (
    ALPHA,
    MINIMUM,
    WORDS,
    counts,
    counts_text,
    disagree,
    effect,
    views_text,
)
from stau_rl.pages.claim_lines import (
    ANNEALED,
    BEST,
    POSITIVE,
    SHARP,
    as_power,
    claim_lines,
    claim_table,
    power_rows,
)
from stau_rl.pages.claim_made import made
from stau_rl.pages.claim_names import cell, number, place, policy_name, regret
from stau_rl.pages.claim_published import Published, top_figure
from stau_rl.pages.claim_settings import ARMS, BONUSES, OFFSETS, SCALES
from stau_rl.pages.claim_verdict import verdict
from stau_rl.pages.markdown import table
from stau_rl.study.report import percent_text

KINDS = {"entropy": "equal entropy", "slope": "equally steep at 0", "raw": "unequal sharpness"}
GROUPS = {
    "bonus c": ("c",),
    "number of arms": ("k",),
    "horizon": ("horizon",),
    "insect sprays": ("empirical",),
    "offset, centring": ("offset", "centring"),
    "scale of rewards": ("scale",),
    "annealed": ("annealed",),
    "positive scores": ("positive",),
}


def page(data: ClaimData) -> str:
    """The whole page as Markdown."""
    published = Published.load()
    lines = claim_lines(data) if published is None else [published.line(), *claim_lines(data)]
    sentences = verdict(data) if published is None else published.sentences()
    fair = [] if published is None else [*published.section(), "\n".join(f"- {line}" for line in verdict(data))]
    figure = (published and top_figure()) or "claim_comparisons.png"
    parts = [
        '# "s^tau has 35 % less regret than softmax"',
        claim_table(lines),
        f"![What becomes of the 35 %]({figure})",
        "\n".join(f"- {sentence}" for sentence in sentences),
        "All numbers are of mean pseudo-regret, s^tau's in percent of softmax's: negative is less. Brackets are 95 % "
        f"intervals. A head **wins** if the interval lies beyond {MINIMUM:g} % and Holm's p-value is at most "
        f"{ALPHA:g}; two heads are **equal** if it lies within {MINIMUM:g} %; all else is **open**. Only the numbers "
        "of the column *published* are published; all others are measured here. [All numbers](claim_tables.md) has "
        "every row.",
        *fair,
        *_best(data),
        *_sharp(data, figure),
        *_typical(data),
        *_annealed(data),
        *_positive(data),
        *_baselines(data),
        *_differs(data),
        *made(data),
    ]
    return "\n\n".join(parts) + "\n"


def _best(data: ClaimData) -> list[str]:
    rows, seen = [], set()
    for name, sweeps in GROUPS.items():
        pairs = [pair for pair in data.pairs(*sweeps) if _key(pair) not in seen]
        seen |= {_key(pair) for pair in pairs}
        if pairs:
            found, silent = counts(pairs), sum(data.silent(pair) for pair in pairs)
            rows.append((name, *(str(n) for n in (len(pairs), *(found[kind] for kind in WORDS), silent))))
    pairs = data.pairs()
    return [
        f"## {BEST}",
        f"{counts_text(pairs)}. Both heads have 24 parameters to choose from, in grids of equal reach, on "
        "instances of another seed.",
        table(("what varies", "pairs", *WORDS.values(), "no information"), rows),
        _winners(pairs) + _silent(data, pairs),
    ]


def _key(pair: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(pair[name] for name in ("arms", "horizon", "policy", "baseline"))


def _winners(pairs: list[dict[Any, Any]]) -> str:
    parts = []
    for kind, head in (("s_tau", "s^tau wins"), ("softmax", "Softmax wins")):
        mine = sorted((pair for pair in pairs if effect(pair) == kind), key=lambda pair: -abs(pair["percent"]))
        if mine:
            parts.append(f"{head} at: {'; '.join(f'{cell(pair)} {percent_text(pair)} %' for pair in mine)}.")
    return " ".join(parts) or "Neither head wins anywhere."


def _silent(data: ClaimData, pairs: list[dict[Any, Any]]) -> str:
    mine = [cell(pair) for pair in pairs if data.silent(pair)]
    unknown = sum(data.limit(pair) is None for pair in pairs)
    text = ""
    if mine:
        text += (
            " **No information**: argmax, which both heads become as they get steeper, has less regret than either at "
            f"its best, so the end of the grid decides and not the shape of a head: {', '.join(mine)}."
        )
    if unknown:
        text += f" At {unknown} pairs argmax has not been played."
    return text


def _sharp(data: ClaimData, figure: str) -> list[str]:
    rows = []
    # Gaussian scores lie far from 0; there entropy is the match that counts, so they come first.
    for name in reversed(ARMS):
        for c in BONUSES:
            value = f"{ARMS[name]} c {c:g}"
            rows.append((name, f"{c:g}", *(percent_text(data.row("c", value, kind)) for kind in KINDS)))
    drawn = ["![Differences by comparison](claim_comparisons.png)"] if figure != "claim_comparisons.png" else []
    return [
        f"## {SHARP}",
        f"At equal entropy {counts_text(data.pairs(kind='entropy'))}. Entropy is matched on the scores that s^tau saw. "
        "Slopes are matched at score 0, which says little on Gaussian arms, whose scores lie far from it.",
        table(("arms", "c", *KINDS.values()), rows, keys=2),
        "The last column is s_tau(tau=5) against softmax(beta=1): heads of unequal sharpness, a comparison that no "
        f"paper makes. At equal entropy, in all settings: {_winners(data.pairs(kind='entropy'))}",
        *drawn,
    ]


def _typical(data: ClaimData) -> list[str]:
    both = [(pair, data.softmax(pair)) for pair in data.pairs()]
    apart = [(pair, softmax) for pair, softmax in both if disagree(pair, softmax)]
    if not apart:
        return []
    sides: dict[str, list[str]] = {}
    for pair, softmax in apart:
        sides.setdefault(views_text(pair, softmax), []).append(
            f"{cell(pair)} (mean {percent_text(pair)} %; interquartile mean {number(softmax['iqm'])} / "
            f"{number(pair['iqm'])}; P(s^tau better) {pair['improvement']:.3f})"
        )
    shown = "\n".join(f"- {words}: {', '.join(cells)}." for words, cells in sides.items())
    return [
        "## Mean and typical run",
        f"In {len(apart)} of {len(both)} pairs the mean favours another head than the middle half of the runs or the "
        "single instance does. The mean follows the few runs that are stuck on another arm. Each softmax / s^tau:",
        shown,
    ]


def _annealed(data: ClaimData) -> list[str]:
    pairs = data.pairs("annealed")
    if not pairs:
        return []
    rows = [(*place(pair), percent_text(pair), WORDS[effect(pair)]) for pair in pairs]
    return [
        f"## {ANNEALED}",
        f"{counts_text(pairs)}. Softmax has beta = x ln(1 + t) / ln(1 + T), s^tau has tau = 1 + 1.386 x "
        "ln(1 + t) / ln(1 + T): the last step adds the slope x to both. Grids and budget are as for fixed parameters.",
        table(("arms", "c", "s^tau, %", "verdict"), rows, keys=2),
    ]


def _positive(data: ClaimData) -> list[str]:
    both = power_rows(data)
    if not both:
        return []
    rows = [
        (cell(pair), percent_text(pair), percent_text(escort), "yes" if as_power(pair, escort) else "no")
        for pair, escort in both
    ]
    return [
        f"## {POSITIVE}",
        f"Against softmax {counts_text([pair for pair, _ in both])}. Far above 0 softplus is the identity, and s^tau "
        "the power |s|^tau, which is the escort transform. Each is at its best, in percent of softmax's regret; alike: "
        f"overlapping intervals, and at most {MINIMUM:g} % apart.",
        table(("scores", "s^tau, %", "escort, %", "alike"), rows),
    ]


def _baselines(data: ClaimData) -> list[str]:
    rows = data.others("baselines") + data.others("entmax")
    if not rows:
        return []
    groups = {"s_tau, tuned": data.main("tuned")}
    for row in rows:
        groups.setdefault(policy_name(row["family"]), []).append(row)
    lines = []
    for name, mine in groups.items():
        least, most = (pick(mine, key=lambda row: row["percent"]) for pick in (min, max))
        found = counts(mine)
        # What `effect` calls s_tau is the policy of the row.
        lines.append((name, percent_text(least), percent_text(most), f"{found['s_tau']} of {len(mine)}"))
    return [
        "## What one would pick instead",
        "Policies on the same instances, in percent of the regret of softmax at its best, each tuned on as many "
        "parameters where it has one. A negative number is a better policy than any softmax of the grid.",
        table(("policy", "least, %", "most, %", "wins"), lines),
    ]


def _differs(data: ClaimData) -> list[str]:
    parts = [_offset(data, name, arms) for name, arms in ARMS.items()]
    scales = [data.row("scale", f"{ARMS['Gaussian']} scale {scale:g}", "tuned") for scale in SCALES]
    worse = [(scale, row) for scale, row in zip(SCALES, scales, strict=True) if effect(row) == "softmax"]
    shown = ", ".join(f"{percent_text(row)} % at x {scale:g}" for scale, row in worse) or "at no scale"
    return [
        "## What moves s^tau and not softmax",
        "Softmax sees differences of scores alone. s^tau is softmax far below 0 and a power far above it, so an "
        f"offset of all scores, their mean, and the scale of the rewards move its sharpness. {' '.join(parts)} With "
        f"rewards and bonus multiplied by a factor, softmax at its best wins {shown}.",
        "![Offset and scale](claim_differs.png)",
    ]


def _offset(data: ClaimData, name: str, arms: str) -> str:
    values = [f"{arms} offset {offset:g}" for offset in OFFSETS]
    rows = sorted((data.row("offset", value, "raw") for value in values), key=lambda row: float(row["regret"]))
    flat = [data.row("offset", value, "raw", "softmax")["regret"] for value in values]
    best = [data.row("offset", value, "tuned") for value in values]
    return (
        f"On {name} arms the regret of one s^tau runs from {regret(rows[0])} to {regret(rows[-1])} over the offsets, "
        f"where an equally steep softmax stays within {100 * (max(flat) / min(flat) - 1):.2f} %; tuned anew, "
        f"{counts_text(best)}."
    )


def tables(data: ClaimData) -> pd.DataFrame:
    """The table of equally sharp heads as a data frame, for the notebook."""
    kinds = KINDS | {"tuned": "each at its best"}
    rows = []
    for name, arms in ARMS.items():
        for c in BONUSES:
            shown = {label: percent_text(data.row("c", f"{arms} c {c:g}", kind)) for kind, label in kinds.items()}
            rows.append({"arms": name, "c": c} | shown)
    return pd.DataFrame(rows)
