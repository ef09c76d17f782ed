"""The table of claims that docs/attention.md opens with: a line per claim, its verdict from the rows."""

import pandas as pd

from stau_rl.pages.attention_asked import Asked, gate, mean_text, passes, share_text
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.claim_lines import Line
from stau_rl.pages.tau_rows import LEAST_KL, ONE_BEST
from stau_rl.pages.trained_claims import PUBLISHED_R, TrainedScores, agreement, agreement_verdict, swap, swap_verdict
from stau_rl.pages.trained_text import estimate_text
from stau_rl.pages.trained_text import mean_text as kept_text

GATES, TAUGHT, RECALL, LENGTH, TRAINED = (
    "The gate and where the threshold starts",
    "Silence is taught",
    "Recall",
    "Longer than trained: LSSAR",
    "tau* and trained scores",
)
MOST = 0.95
"""Share of seeds from which on something holds, its interval aside."""
UNCALIBRATED = ("sm_fir", "softmax_off_by_one_fir", "learned_sink_fir", "ssmax_fir", "s_tau_fir", "escort_fir")
FREE = ("sigmoid_fir", "rela_fir")
INNER, REST = "inner={}, p=15", "scores=cosine"


def lines(data: AttentionData, asked: Asked, trained: TrainedScores) -> list[Line]:
    """Every claim of the authors of these heads that small models can test."""
    return [*_gates(asked), *_taught(data, asked), *_recall(data, asked), *_length(asked), *_trained(trained)]


def verdict(held: int, of: int) -> str:
    """Whether something holds on all seeds but a few, on some or on none."""
    if held >= MOST * of:
        return "reproduced"
    return f"reproduced on {held} of {of}" if held else "not reproduced"


def _gates(asked: Asked) -> list[Line]:
    literal, hill = (passes(asked.of("gates", gate(name, 0.0))) for name in ("clamp", "hill"))
    fixed = passes(asked.of("gates", gate("clamp", None)))
    calibrated = passes(asked.of("calibrated", "pn_fir_tau_hill_calibrated"))
    better = fixed[0] * literal[1] >= literal[0] * fixed[1]
    return [
        Line("gate by the largest score, learned from 0", "-", share_text(*literal), verdict(*literal), GATES),
        Line("the same, read as m^p / (1 + m^p)", "-", share_text(*hill), verdict(*hill), GATES),
        Line(
            "the threshold has to be learned",
            "-",
            f"fixed at 0: {share_text(*fixed)}",
            "not reproduced" if better else "reproduced",
            GATES,
        ),
        Line("hill, start set by a batch, new seeds", "-", share_text(*calibrated), verdict(*calibrated), GATES),
    ]


def _taught(data: AttentionData, asked: Asked) -> list[Line]:
    part, shares = "silence share", sorted(asked.of("silence share")["task"].unique(), key=_unanswerable)
    never, half = shares[0], shares[-1]
    others = [
        asked.of(part, name, task=task)["hallucination"].mean() * 100 for task in (never, half) for name in UNCALIBRATED
    ]
    untaught, taught = others[: len(UNCALIBRATED)], others[len(UNCALIBRATED) :]
    own = asked.of(part, "pn_fir_tau", task=never)["hallucination"]
    own_taught = asked.of(part, "pn_fir_tau", task=half)["hallucination"]
    return [
        Line(
            "other heads make it up",
            "27.2 to 34.4 %",
            f"{min(taught):.1f} to {max(taught):.1f} % taught, {min(untaught):.0f} to {max(untaught):.0f} % not",
            "another cause" if max(taught) < 5 < min(untaught) else "reproduced",
            TAUGHT,
        ),
        Line(
            "pn_fir_tau makes nothing up",
            "0.0 %",
            f"{100 * own_taught.mean():.1f} % taught, {100 * own.mean():.0f} % not",
            "another cause" if own_taught.mean() < 0.01 < 0.05 < own.mean() else "reproduced",
            TAUGHT,
        ),
    ]


def _unanswerable(task: str) -> float:
    return float(task.partition("unanswerable=")[2].rstrip(")"))


def _recall(data: AttentionData, asked: Asked) -> list[Line]:
    plain = data.median("decoded", "recall", "recall", "softmax")
    free = [data.median("decoded", "recall", "recall", name) for name in FREE]
    noise = {"distractors": "recall(distractor_ratio=1, distractors=noise)", "amplitude": "recall(amplitude=1)"}
    plainly, set_first = (
        [data.median("decoded", part, task, name) for part, task in noise.items()]
        for name in ("sm_fir", "pn_fir_tau_hill_calibrated")
    )
    kept = all(one >= other - 0.01 for one, other in zip(plainly, set_first, strict=True))
    conv = best(asked, "softmax_conv")[1]
    return [
        Line("softmax recalls 44.5 %", "44.5 %", f"{100 * plain:.1f} %", "not testable here: no recipe", RECALL),
        Line(
            "only normalised heads decode",
            "-",
            " and ".join(f"{name} {value:.3f}" for name, value in zip(FREE, free, strict=True)),
            "not reproduced" if min(free) >= MOST else "reproduced",
            RECALL,
        ),
        Line(
            "calibrated heads alone stand noise",
            "-",
            f"{_two(plainly)}, these {_two(set_first)}",
            "not reproduced" if kept else "reproduced",
            RECALL,
        ),
        Line(
            "smoothed keys are what recall needs",
            "-",
            f"{best(asked, 'sm_fir')[1].mean():.3f}, learned convolution {conv.mean():.3f}",
            "another cause" if conv.mean() >= MOST else "reproduced",
            RECALL,
        ),
    ]


def _two(values: list[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)


def best(asked: Asked, name: str) -> tuple[float, "pd.Series[float]"]:
    """The learning rate of the highest mean of right answers in the grid of pairs and places, and these answers."""
    rows = asked.of("mqar grid", name)
    rate = float(rows.groupby("rate")["decoded"].mean().idxmax())  # type: ignore[arg-type]
    return rate, rows[rows["rate"] == rate]["decoded"]


def _length(asked: Asked) -> list[Line]:
    part, long = "lssar, smoothed keys", 16
    own, plain = (asked.of(part, f"{name}(fir_taps=7)", long)["decoded"] for name in ("lssar", "lssa"))
    short = asked.of(part, "lssar_p3(fir_taps=7)")["decoded"]
    softmax = asked.of(part, "sm_fir")["decoded"]
    inner = {
        name: asked.of(part, f"attention(head=reweight(inner={name}, p=15), scores=cosine, fir_taps=7)", long)[
            "decoded"
        ]
        for name in ("sigmoid_norm", "relu_norm")
    }
    dead = asked.of("lssar", "attention(head=reweight(inner=relu_norm, p=15), scores=cosine)")["dead_row_rate"]
    ahead = own.mean() > plain.mean()
    return [
        Line(
            "p = 15 for long items",
            "-",
            f"{mean_text(own)} at 16x",
            "reproduced" if ahead else "not reproduced",
            LENGTH,
        ),
        Line(
            "p = 3 for short items",
            "-",
            mean_text(short),
            "reproduced" if short.mean() >= softmax.mean() - 0.005 else "not reproduced",
            LENGTH,
        ),
        Line(
            "softplus is the best inner map",
            "-",
            f"sigmoid {mean_text(inner['sigmoid_norm'])} at 16x",
            "not reproduced" if inner["sigmoid_norm"].mean() > own.mean() else "reproduced",
            LENGTH,
        ),
        Line(
            "relu inside dies",
            "-",
            f"{mean_text(dead)} of rows dead",
            "reproduced" if dead.mean() > 0.05 else "not reproduced",
            LENGTH,
        ),
        Line("x^15 overflows", "-", "float32 beyond x = 370", "reproduced, unless divided first", LENGTH),
    ]


def _trained(trained: TrainedScores) -> list[Line]:
    found, own, one = agreement(trained.learned()), swap(trained, LEAST_KL), swap(trained, ONE_BEST)
    r = f"r = {estimate_text(found.pearson)}"
    return [
        Line("tau* is the grid's best tau", f"r = {PUBLISHED_R:g}", r, agreement_verdict(found), TRAINED),
        Line(
            "one tau for all heads collapses",
            "-",
            f"keeps {kept_text(one.kept)}",
            swap_verdict(own, one).split(",")[0],
            TRAINED,
        ),
    ]
