"""The table of claims that docs/attention.md opens with: a line per claim, its verdict from the rows."""

import numpy as np
import torch

from stau_rl.heads import Lssar
from stau_rl.pages.attention_asked import Asked
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.attention_evidence import (
    CAUSE,
    EQUAL,
    IN_PART,
    NOT,
    PUBLISHED_SPAN,
    REPRODUCED,
    UNTESTABLE,
    Share,
    Values,
    above,
    best_rate,
    difference_text,
    gate_text,
    inner_text,
    mean_text,
    overflow,
    passing,
    share_of,
    short,
    starving,
    taught,
)
from stau_rl.pages.claim_lines import Line
from stau_rl.pages.tau_rows import LEAST_KL, ONE_BEST
from stau_rl.pages.trained_claims import PUBLISHED_R, TrainedScores, agreement, agreement_verdict, swap, swap_verdict
from stau_rl.statistics.means import mean_interval

GATES, TAUGHT, RECALL, LENGTH, TRAINED = (
    "The gate and where its threshold starts",
    "Silence is taught",
    "Recall of many pairs and under noise",
    "Longer than trained",
    "tau* and trained scores",
)
OTHERS, NONE, SOFTMAX = "27.2-34.4 %", "0.0 %", "44.5 %"
"""Published: answers made up by other heads and by pn_fir_tau, and the recall of softmax, under no stated recipe."""
OWN = "pn_fir_tau"
FREE = ("sigmoid_fir", "rela_fir")
"""Heads whose rows are not normalised."""
NOISE, UNCALIBRATED, CALIBRATED = "recall(amplitude=0.5)", "pn_fir_tau_hill", "pn_fir_tau_hill_calibrated"
MANY = 0.95
"""A head with so many right answers has learned its task."""
INNER = ("sigmoid_norm", "relu_norm")
"""In softplus's place inside LSSAR."""
SMOOTHED, ROTARY, ONE, FAR = "lssar, smoothed keys", "lssar, rotary", "lssar, one value", 16
P15, P3, LSSA = "lssar(fir_taps=7)", "lssar_p3(fir_taps=7)", "lssa(fir_taps=7)"


def attention_lines(data: AttentionData) -> list[Line]:
    """The claims whose rows are committed."""
    lines: list[Line] = []
    if data.asked is not None:
        lines += [*_gates(data.asked), *_taught(data.asked), *_recall(data, data.asked), *_length(data.asked)]
    if data.trained is not None:
        lines += _trained(data.trained)
    return lines


def _gates(asked: Asked) -> list[Line]:
    literal, hill, fixed = (
        asked.of("gates", gate_text(*which)) for which in (("clamp", 0.0), ("hill", 0.0), ("clamp", None))
    )
    learned, stays = passing(literal), passing(fixed)
    starved = {name: starving(rows) for name, rows in (("learned", literal), ("fixed", fixed))}
    worse = starved["learned"].bounds[0] > starved["fixed"].bounds[1]
    fewer = starved["learned"].bounds[1] < starved["fixed"].bounds[0]
    counts = " and ".join(f"{name} {share.held}" for name, share in starved.items())
    calibrated = [passing(asked.of("calibrated", name)) for name in (CALIBRATED, "pn_fir_tau_calibrated")]
    return [
        Line("pn_fir_tau falls silent, as written", "-", f"seeds {learned.text}", learned.verdict, GATES),
        Line(
            "the same, gate read as m^p / (1 + m^p)", "-", f"seeds {passing(hill).text}", passing(hill).verdict, GATES
        ),
        Line("its threshold must be learned", "-", f"fixed: {stays.text}", _needed(learned, stays), GATES),
        Line(
            "learned, it starves fewer keys",
            "-",
            f"{counts} of {len(fixed)} starve",
            REPRODUCED if fewer else f"{NOT}, more" if worse else NOT,
            GATES,
        ),
        Line("calibrated start, m^p / (1 + m^p)", "-", f"new seeds {calibrated[0].text}", calibrated[0].verdict, GATES),
        Line("calibrated start, min(1, m)", "-", f"new seeds {calibrated[1].text}", calibrated[1].verdict, GATES),
    ]


def _needed(learned: Share, fixed: Share) -> str:
    """Whether a threshold has to be learned: not where a fixed one passes about as often."""
    return REPRODUCED if learned.bounds[0] > fixed.bounds[1] else NOT


def _taught(asked: Asked) -> list[Line]:
    found = taught(asked)
    never, half = (found.others(found.shares[place]) for place in (0, -1))
    tasks = sorted(asked.of("silence share")["task"].unique(), key=share_of)
    mine = [asked.values("hallucination", "silence share", OWN, task=tasks[place]) for place in (0, -1)]
    text = f"{_span(never)} % untaught, {_span(half)} taught"
    own = " % untaught, ".join(mean_text(values, 1, 100) for values in mine) + " taught"
    depends = np.median(never) > PUBLISHED_SPAN[1] and np.median(half) < PUBLISHED_SPAN[0]
    apart = mine[0].mean() < EQUAL
    return [
        Line("others make answers up", OTHERS, text, CAUSE if depends else REPRODUCED, TAUGHT),
        Line("pn_fir_tau makes none up", NONE, own, REPRODUCED if apart else CAUSE, TAUGHT),
    ]


def _span(values: Values) -> str:
    low, high = (100 * float(value) for value in (values.min(), values.max()))
    return f"{low:.0f} to {high:.0f}"


def _recall(data: AttentionData, asked: Asked) -> list[Line]:
    plain = data.seeds("recall", "recall", "softmax")["decoded"].to_numpy(dtype=float)
    noisy = {
        name: data.seeds("amplitude", NOISE, name)["decoded"].to_numpy(dtype=float) for name in ("sm_fir", CALIBRATED)
    }
    lost = above(noisy[CALIBRATED], noisy["sm_fir"]) > 0
    free = [data.median("decoded", "recall", "recall", name) for name in FREE]
    conv, smooth, own = (best_rate(asked, name)[1] for name in ("softmax_conv", "sm_fir", OWN))
    bare = best_rate(asked, "softmax")[1]
    helped = smooth.mean() >= MANY > bare.mean()
    return [
        Line("softmax recalls", SOFTMAX, f"{mean_text(plain, 1, 100)} %", f"{UNTESTABLE}: no recipe", RECALL),
        Line(
            "noise: only calibrated heads recall",
            "-",
            f"{mean_text(noisy['sm_fir'])}, calibrated {short(noisy[CALIBRATED].mean())}",
            REPRODUCED if lost else NOT,
            RECALL,
        ),
        Line(
            "only normalised heads decode",
            "-",
            ", ".join(f"{name[:-4]} {short(value)}" for name, value in zip(FREE, free, strict=True)),
            NOT if min(free) >= MANY else REPRODUCED,
            RECALL,
        ),
        Line(
            "recall needs fixed smoothing",
            "-",
            f"{mean_text(smooth)}, learned taps {short(conv.mean())}",
            CAUSE if conv.mean() >= smooth.mean() - EQUAL else REPRODUCED if helped else NOT,
            RECALL,
        ),
        Line(
            "16 pairs, 64 places: pn_fir_tau recalls",
            "-",
            mean_text(own),
            REPRODUCED if own.mean() >= MANY else NOT,
            RECALL,
        ),
    ]


def _length(asked: Asked) -> list[Line]:
    far = {name: asked.values("decoded", SMOOTHED, name, FAR) for name in (P15, P3, LSSA)}
    turned = {name: asked.values("decoded", ROTARY, name, FAR) for name in (P15, P3, LSSA, "sm_fir")}
    near = {name: asked.values("decoded", SMOOTHED, name) for name in (P15, P3)}
    start = {name: asked.values("decoded", ONE, name) for name in ("lssar", "softmax")}
    ahead = [above(values[P15], values[P3]) > 0 for values in (far, turned)]
    inner = [
        [asked.values("decoded", part, inner_text(name, fir=True), FAR) for name in INNER]
        for part in (SMOOTHED, ROTARY)
    ]
    own = (far[P15], turned[P15])
    best = [all(above(other, mine) <= 0 for other in others) for mine, others in zip(own, inner, strict=True)]
    sigmoid = ", rotary ".join(difference_text(mine, others[0]) for mine, others in zip(own, inner, strict=True))
    powers = ", rotary ".join(difference_text(values[P15], values[P3]) for values in (far, turned))
    dead = asked.values("dead_row_rate", ONE, inner_text("relu_norm", fir=False))
    dies = mean_interval(dead)
    kept = turned[P3] / asked.values("decoded", ROTARY, P3)
    limit = overflow(15, torch.float32)
    return [
        Line(f"LSSAR: p = 15, not 3, at {FAR}x", "-", powers, _some(ahead), LENGTH),
        Line(
            "LSSAR: p = 3, not 15, at 1x",
            "-",
            difference_text(near[P3], near[P15]),
            _some([above(near[P3], near[P15]) > 0]),
            LENGTH,
        ),
        Line(
            "p = 15 is as good as softmax at 1x",
            "-",
            f"{mean_text(start['lssar'])}, softmax {short(start['softmax'].mean())}",
            NOT if above(start["softmax"], start["lssar"]) > 0 else REPRODUCED,
            LENGTH,
        ),
        Line(
            f"p = 3 keeps recall to {FAR}x, rotary",
            "-",
            f"keeps {mean_text(kept)}",
            REPRODUCED if kept.mean() >= MANY else NOT,
            LENGTH,
        ),
        Line(
            "softplus inside, not sigmoid",
            "-",
            sigmoid,
            _some(best),
            LENGTH,
        ),
        Line(
            "relu inside dies",
            "-",
            f"dead rows {mean_text(dead, 1, 100)} %",
            REPRODUCED if dies.low > EQUAL else IN_PART if dead.max() > 0 else NOT,
            LENGTH,
        ),
        Line("x^15 overflows", "-", f"float32 from x = {limit:.0f}", _overflows(limit), LENGTH),
    ]


def _some(holds: list[bool]) -> str:
    return REPRODUCED if all(holds) else IN_PART if any(holds) else NOT


def _overflows(limit: float) -> str:
    """Whether the power itself overflows, and the head of this package on the same numbers."""
    x = torch.tensor([1.01 * limit, 1.0], dtype=torch.float32)
    bare = bool((x**15).isinf().any())
    scores = torch.zeros(int(2 * limit))
    scores[0] = 1e4
    safe = bool(Lssar(15.0).weights(scores).isfinite().all())
    return (f"{REPRODUCED}; not here" if safe else REPRODUCED) if bare else NOT


def _trained(trained: TrainedScores) -> list[Line]:
    found, own, one = agreement(trained.learned()), swap(trained, LEAST_KL), swap(trained, ONE_BEST)
    r = found.pearson
    kept = one.kept
    return [
        Line(
            "tau\\* is the grid's best tau",
            f"r = {PUBLISHED_R:g}",
            f"r = {short(r.value, 2)} [{short(r.low, 2)}, {short(r.high, 2)}]",
            agreement_verdict(found),
            TRAINED,
        ),
        Line(
            "one tau for all heads collapses",
            "-",
            f"keeps {short(kept.mean)} [{short(kept.low)}, {short(kept.high)}]",
            swap_verdict(own, one).split(",")[0],
            TRAINED,
        ),
    ]
