"""The text of docs/attention.md, written from the committed rows; its long tables are in docs/attention_tables.md."""

import numpy as np
import torch

from stau_rl.pages.attention_asked import Asked
from stau_rl.pages.attention_asked_tables import (
    gate_table,
    length_table,
    mqar_cells_table,
    mqar_table,
    taught_table,
)
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.attention_evidence import (
    PUBLISHED_SPAN,
    above,
    best_rate,
    gate_text,
    grid_cells,
    grid_rows,
    inner_text,
    mean_text,
    overflow,
    passing,
    short,
    starving,
    taught,
)
from stau_rl.pages.attention_figures import TAUGHT_FIGURE, figures
from stau_rl.pages.attention_lines import (
    CALIBRATED,
    FAR,
    FREE,
    GATES,
    INNER,
    LENGTH,
    MANY,
    NOISE,
    NONE,
    ONE,
    OTHERS,
    OWN,
    RECALL,
    ROTARY,
    SMOOTHED,
    SOFTMAX,
    TAUGHT,
    UNCALIBRATED,
    attention_lines,
)
from stau_rl.pages.claim_lines import claim_table
from stau_rl.pages.lssar_training import LONG, MOST, NO_OFFSET, POWERS, SEEDS
from stau_rl.pages.trained_text import trained_section
from stau_rl.probe.claims_plan import MQAR, MQAR_ITEMS

LOUDER = "recall(amplitude=1)"
REST = 8000
"""Seconds of one GPU that the settings of the MQAR grid which are not run would take, as `--estimate` counts them."""


def page(data: AttentionData) -> str:
    """The whole page as Markdown; a part that the rows do not hold is left out."""
    asked, trained = data.asked, data.trained
    lines = attention_lines(data)
    parts = [
        "# Attention heads as decision modules: recall, silence, length",
        claim_table(lines) if lines else "",
        f"![Is silence taught?]({TAUGHT_FIGURE})" if TAUGHT_FIGURE in figures(data) else "",
        *([] if asked is None else ["\n".join(f"- {sentence}" for sentence in sentences(asked))]),
        "Brackets and ± are 95 % intervals over seeds, Wilson's of shares of seeds and Student's of means; differences "
        "are paired by seed. A seed **passes** "
        "silence if it leaves at most .01 of mass where the key is absent and keeps .96 of its recall and of its right "
        "answers, with at most .05 refused. Only the numbers of the column *published* are published; all others are "
        "measured here. [All numbers](attention_tables.md) has every row, what is asked and the metrics.",
        *([] if asked is None else [*_gates(asked), *_taught(asked), *_recall(data, asked), *_length(asked)]),
        *([] if trained is None or data.taus is None else [trained_section(trained, data.taus)]),
        *([] if asked is None else _made(asked)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def sentences(asked: Asked) -> list[str]:
    """What comes out, in three sentences."""
    found = taught(asked)
    never, few, half = (found.shares[place] for place in (0, 2, -1))
    literal, hill = (passing(asked.of("gates", gate_text(gate, 0.0))) for gate in ("clamp", "hill"))
    long, short_ = (asked.values("decoded", ONE, name).mean() for name in ("lssar", "softmax"))
    swapped = asked.trained("lssa", MOST)["decoded"].mean()
    cause = "it is training that fails" if swapped >= MANY else "training alone does not explain it"
    word = "is taught" if found.of(OWN, never) > 0.5 > found.of(OWN, half) else "comes with the head"
    before, after = (100 * float(np.median(found.others(share))) for share in (never, few))
    published = f"The published {OTHERS} against {NONE}"
    inside = after < 100 * PUBLISHED_SPAN[0] and before > 100 * PUBLISHED_SPAN[1]
    between = f"{published} lie between." if inside else f"{published} do not lie between."
    return [
        f"Silence {word}: trained without unanswerable queries, `{OWN}` makes up "
        f"{100 * found.of(OWN, never):.0f} % of the answers to them and the median of the other heads "
        f"{before:.0f} %; with {100 * few:g} % of such queries in training it is {100 * found.of(OWN, few):.1f} and "
        f"{after:.1f} %. {between}",
        f"Read literally, as min(1, m), the gate keeps {literal.held} of {literal.of} seeds silent from a threshold of "
        f"0; read as m^p / (1 + m^p), {hill.held} of {hill.of}.",
        f"LSSAR at p = 15 answers {100 * long:.0f} % at the trained length where softmax answers {100 * short_:.0f} %: "
        f"{cause}, as weights trained without the power and asked with it answer {100 * swapped:.0f} %.",
    ]


def _gates(asked: Asked) -> list[str]:
    literal, fixed, hill = (
        asked.of("gates", gate_text(*which)) for which in (("clamp", 0.0), ("clamp", None), ("hill", 0.0))
    )
    bare = passing(asked.of("gates", gate_text("none", 0.0)))
    near = passing(asked.of("gates", gate_text("hill", -0.5)))
    fresh = [passing(asked.of("calibrated", name)) for name in (CALIBRATED, "pn_fir_tau_calibrated")]
    starved = " and ".join(
        f"{starving(rows).held} of {len(rows)} with {words}"
        for rows, words in (
            (fixed, "min(1, m) fixed at 0"),
            (literal, "min(1, m) learned from 0"),
            (hill, "m^p / (1 + m^p)"),
        )
    )
    return [
        f"## {GATES}",
        "The paper fixes 7 taps of a half Gaussian of sigma 2, an exponent of 10 and one learned threshold per layer, "
        'and gates a row "by the largest positive score" m above the threshold. Our choices: min(1, m) for the gate, '
        "taps of sum 1 (L1) and a threshold that starts at 0 on scores q.k / sqrt(D). Seeds that pass, of "
        f"{len(literal)} that no other study uses, with taps of sum 1 / of unit norm:",
        gate_table(asked),
        f"Without a gate a row has mass 1: {bare.text} pass from 0. A start that suits one gate need not suit another: "
        f"m^p / (1 + m^p) passes on {near.text} from -0.5. Calibration, one below the 10 % quantile of the largest "
        f"scores of the first batch's rows, was chosen on other seeds; on {fresh[0].of} new ones m^p / (1 + m^p) "
        f"passes on {fresh[0].text}, min(1, m) on {fresh[1].text}. A key that lies below the threshold "
        f"has no gradient and may starve, right in less than half of the cases: {starved}.",
    ]


def _taught(asked: Asked) -> list[str]:
    mute, mass = (taught(asked, metric) for metric in ("silent_decoded", "mass_unanswerable"))
    never, few, half = (mute.shares[place] for place in (0, 1, -1))
    at_never, at_few = (mute.means[:, mute.shares.index(share)] for share in (never, few))
    rows = asked.of("silence share")
    worst = min(mute.names, key=lambda name: mute.of(name, half))
    return [
        f"## {TAUGHT}",
        f"Models of {rows['seed'].nunique()} seeds, trained with a share of unanswerable rows and all tested with one "
        "half. Answers made up where there is none, percent of these queries:",
        taught_table(asked),
        f"Trained without unanswerable rows, a head gives the right answer there, the query itself, to "
        f"{100 * at_never.max():.1f} % at most; with {100 * few:g} % of such rows the median head "
        f"gives it to {100 * float(np.median(at_few)):.1f} %. At one half the lowest is `{worst}` with "
        f"{100 * mute.of(worst, half):.1f} %. Being right is not being silent: there `sm_fir` leaves a "
        f"mass of {short(mass.of('sm_fir', half))} on queries without an answer, `{OWN}` {short(mass.of(OWN, half))}. "
        "The paper does not say how often its models saw such a query.",
    ]


def _recall(data: AttentionData, asked: Asked) -> list[str]:
    names = [*MQAR]
    best = {name: best_rate(asked, name)[1].mean() for name in names}
    good = ", ".join(f"`{name}`" for name in names if best[name] >= MANY) or "none"
    bad = ", ".join(f"`{name}` {short(best[name])}" for name in names if best[name] < MANY) or "none"
    own = grid_rows(asked)
    noisy = ", ".join(
        f"`{name}` "
        + " and ".join(mean_text(data.seeds("amplitude", task, name)["decoded"].to_numpy()) for task in (NOISE, LOUDER))
        for name in ("sm_fir", UNCALIBRATED, CALIBRATED)
    )
    order = above(best_rate(asked, "sm_fir")[1], best_rate(asked, "softmax_conv")[1])
    ahead = "an advantage" if order > 0 else "no advantage"
    plain = data.seeds("recall", "recall", "softmax")["decoded"].to_numpy(dtype=np.float64)
    free = " and ".join(
        f"`{name}` {short(data.median('decoded', 'recall', 'recall', name))} with a mass of "
        f"{data.median('mass_answerable', 'recall', 'recall', name):.1f}"
        for name in FREE
    )
    return [
        f"## {RECALL}",
        f"The paper gives {SOFTMAX} for softmax and no recipe; under ours a single layer without smoothed keys has "
        f"{mean_text(plain, 1, 100)} %, as it cannot bind a value to its key. Heads that are not normalised decode as "
        f"well once keys are smoothed: {free}. Right answers under amplitude noise of spread .5 and 1, the last "
        f"head calibrated: {noisy}.",
        f"Sixteen pairs over 64 places, two layers of four heads, {own['steps'].iloc[0]} steps, "
        f"{own['seed'].nunique()} seeds; the best of {own['rate'].nunique()} learning rates, chosen on the same seeds, "
        "then the means at every rate. `softmax_conv` learns its taps:",
        mqar_table(asked),
        f"At their best rate {good} recall; {bad} do not. Fixed smoothing "
        f"({mean_text(best_rate(asked, 'sm_fir')[1])}) has {ahead} over a learned short convolution "
        f"({mean_text(best_rate(asked, 'softmax_conv')[1])}). All finished settings, each head at the "
        "best of its rates in each:",
        mqar_cells_table(asked),
    ]


def _length(asked: Asked) -> list[str]:
    sigmoid, relu = (asked.values("decoded", SMOOTHED, inner_text(name, fir=True), FAR).mean() for name in INNER)
    dead = {name: asked.values("dead_row_rate", ONE, inner_text(name, fir=False)) for name in INNER}
    turned = {name: asked.values("decoded", ROTARY, name, FAR).mean() for name in asked.names(ROTARY)}
    first = max(turned, key=turned.__getitem__)
    ours = asked.values("decoded", SMOOTHED, "lssar(fir_taps=7)", FAR).mean()
    return [
        f"## {LENGTH}",
        "The paper states p = 15 for long inputs and p = 3 for short ones. Right answers on a pass key, at the trained "
        f"length to {FAR} times that: one value in noise, and among rivals whose number grows with the length, without "
        f"positions and with rotary ones; keys are smoothed among rivals, {asked.of(ONE)['seed'].nunique()} seeds:",
        length_table(asked),
        f"With rotary positions the best at {FAR}x is `{first}` with {short(turned[first])}. Without "
        f"them p = 15 with sigmoid inside has {short(sigmoid)} there, with relu {short(relu)}, with softplus "
        f"{short(ours)}. On one value relu inside leaves {mean_text(dead['relu_norm'], 1, 100)} % of the rows dead at "
        f"the trained length, sigmoid {mean_text(dead['sigmoid_norm'], 1, 100)} %. x^15, x = A n, leaves float32 from "
        f"x = {overflow(15, torch.float32):.0f}, which a row of as many keys can reach; heads here divide by the "
        "largest x first.",
        _why(asked),
    ]


def _why(asked: Asked) -> str:
    """Why LSSAR is low at p = 15 at the trained length."""
    powers = [float(asked.trained(f"lssar(p={p})")["decoded"].mean()) for p in POWERS]
    falls = "falls" if powers[0] > powers[-1] else "does not fall"
    zero = short(float(asked.trained(MOST)["zero"].mean()), 2)
    free, long = (float(asked.trained(*which)["decoded"].mean()) for which in ((NO_OFFSET,), (MOST, "", LONG)))
    cause = "is not the cause" if free <= powers[-1] + 0.05 else "is a part of it"
    helps = "helps" if long > powers[-1] + 0.05 else "does not help"
    swapped = float(asked.trained("lssa", MOST)["decoded"].mean())
    able = "so the head is able to answer" if swapped >= MANY else "so more than training is wrong"
    return (
        f"Why p = 15 is low at the trained length, in a small study of {len(SEEDS)} seeds on the one value "
        f"(`python -m stau_rl.pages.lssar_training`): weights trained as `lssa` and asked as `lssar(p=15)` have "
        f"{short(swapped)}, {able}. Trained as itself it {falls} with the power: p = {', '.join(map(str, POWERS))} "
        f"give {', '.join(short(value) for value in powers)}. Re-weighting gives {zero} of the answers' places a "
        f"weight of exactly 0 before the first step. That {cause}: without the offset, O = 0, p = 15 has "
        f"{short(free)}. A power of {POWERS[-1]} leaves a place with .8 of the largest excess "
        f"{short(0.8 ** POWERS[-1])} of its weight, and as little gradient. Longer training, {LONG} steps, {helps}: "
        f"{short(long)}."
    )


def _made(asked: Asked) -> list[str]:
    timing, rows = asked.timing, asked.rows
    left = len(MQAR_ITEMS) * 2 - len(grid_cells(asked))
    grid = timing.loc[timing["part"].str.startswith("mqar grid"), "seconds"].sum()
    commits = ", ".join(text[:12] for text in rows["commit"].unique())
    models = len(rows.drop_duplicates(["part", "task", "normaliser", "seed"]))
    return [
        "## How this was made",
        f"{models} models of `stau_rl.probe.claims_plan`, {timing['seconds'].sum() / 60:.0f} minutes of processes that "
        f"share a device ({timing['device'].iloc[0]}, {rows['versions'].iloc[0]}; commit {commits}): "
        "`stau-rl probe --task gates --task calibrated --out DIR`, and so on for `silence share`, `mqar grid` and "
        "`lssar`; `--resume` goes on after a stop. `python -m stau_rl.pages.attention --claims DIR` adds a folder's "
        f"rows to `notebooks/results/attention_claims.csv` and writes this page. Not run: {left} of the "
        f"{2 * len(MQAR_ITEMS)} settings of the MQAR grid, about {REST} s "
        f'of one GPU beside the {grid:.0f} s spent; `stau-rl probe --task "mqar grid" --out DIR` runs them.',
    ]
