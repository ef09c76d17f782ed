"""The text of docs/attention.md: the claims, one figure, three sentences, a section each; its tables are elsewhere."""

import pandas as pd

from stau_rl.pages.attention_asked import Asked, gate, mean_text, passes, share_text
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.attention_lines import GATES, LENGTH, RECALL, TAUGHT, UNCALIBRATED, best, lines
from stau_rl.pages.claim_lines import claim_table
from stau_rl.pages.claim_names import number
from stau_rl.pages.markdown import table
from stau_rl.pages.trained_claims import TrainedScores
from stau_rl.pages.trained_text import trained_section

FIGURE = "attention_claims.png"
STARTS = (0.0, -0.25, -0.5, -1.0)
NAMES = ("clamp", "hill", "sink", "none")
SHOWN = ("pn_fir_tau", "pn_fir_tau_hill", "pn_fir", "softpick_fir", "sm_fir", "softmax_off_by_one_fir", "lssar_fir")
INNER = {
    "lssa": "lssa(fir_taps=7)",
    "lssar, p = 3": "lssar_p3(fir_taps=7)",
    "lssar, p = 15": "lssar(fir_taps=7)",
    "p = 15, softmax inside": "attention(head=reweight(inner=softmax, p=15), scores=cosine, fir_taps=7)",
    "p = 15, sigmoid inside": "attention(head=reweight(inner=sigmoid_norm, p=15), scores=cosine, fir_taps=7)",
    "p = 15, relu inside": "attention(head=reweight(inner=relu_norm, p=15), scores=cosine, fir_taps=7)",
    "softmax": "sm_fir",
    "s_tau": "s_tau(fir_taps=7)",
}


def page(data: AttentionData, asked: Asked, trained: TrainedScores) -> str:
    """The whole page as Markdown."""
    parts = [
        "# Attention heads as decision modules: recall, silence, length",
        claim_table(lines(data, asked, trained)),
        f"![Silence by gate and by what is taught]({FIGURE})",
        "\n".join(f"- {sentence}" for sentence in sentences(asked)),
        "A context holds pairs k v k v ..., then comes a key; the answer is its value. *Recall* is the share of "
        "queries whose largest weight is on the right slot with a row mass of at least 1/2, *decoded* that of right "
        "answers. "
        "Where the key is absent the head should add nothing (*silence*); a made-up answer is a value of the context. "
        "Brackets are 95 % intervals over seeds. Only the column *published* is published, all else is measured here. "
        "[All numbers](attention_tables.md) has the recipe and every table.",
        *_gates(asked),
        *_taught(asked),
        *_recall(asked),
        *_length(asked),
        *([] if data.taus is None else [trained_section(trained, data.taus)]),
        *_made(asked),
    ]
    return "\n\n".join(parts) + "\n"


def sentences(asked: Asked) -> list[str]:
    """Three sentences: the gate, what is taught, length."""
    literal, hill, later = (
        passes(asked.of("gates", gate(name, start))) for name, start in (("clamp", 0), ("hill", 0), ("hill", -0.5))
    )
    never = asked.of("silence share", task="silence(unanswerable=0)")
    little = asked.of("silence share", task="silence(unanswerable=0.05)")
    heads = [name for name in asked.names("silence share") if name in UNCALIBRATED]
    untaught, taught = (
        [100 * rows[rows["normaliser"] == name]["hallucination"].mean() for name in heads] for rows in (never, little)
    )
    part = "lssar, smoothed keys"
    long, plain = (asked.of(part, INNER[name], 16)["decoded"] for name in ("lssar, p = 15", "lssa"))
    return [
        f"Read literally, the gate min(1, m) lets a threshold that starts at 0 be silent and keep its recall on "
        f"{literal[0]} of {literal[1]} seeds; read as m^p / (1 + m^p) on {hill[0]} of {hill[1]}, and from a start of "
        f"-.5 on {later[0]} of {later[1]}.",
        f"Silence is taught: without unanswerable rows in training every head makes answers up "
        f"({min(untaught):.0f} to {max(untaught):.0f} % for heads without a threshold), with one row in twenty these "
        f"make up {min(taught):.1f} to {max(taught):.1f} %.",
        f"Re-weighting with p = 15 has {mean_text(long)} right answers at 16 times the trained length where the same "
        f"head without it has {mean_text(plain)}.",
    ]


def _gates(asked: Asked) -> list[str]:
    rows = []
    for name in NAMES:
        cells = [_passed(asked, name, None), *(_passed(asked, name, start) for start in STARTS)]
        rows.append((name, *cells))
    wide = [passes(asked.of("gates", gate(name, 0.0, "l2"))) for name in ("clamp", "hill")]
    calibrated = {name: passes(asked.of("calibrated", name)) for name in asked.names("calibrated")}
    told = ", ".join(f"`{name}` {share_text(*found)}" for name, found in calibrated.items())
    return [
        f"## {GATES}",
        "Seeds that are silent (mass at most .01) and keep recall, answers and few refusals, with their interval. The "
        "source fixes seven taps of width 2, p = 10 and a threshold per layer; the gate's form beyond \"by the largest "
        'positive score", the start of the threshold and the norm of the taps are choices made here.',
        table(("gate", "fixed at 0", *(f"from {start:g}" for start in STARTS)), rows),
        f"From a lower start the clamped gate stays open: nothing closes it. Taps of Euclidean norm 1 keep the scores' "
        f"scale: {share_text(*wide[0])} for clamp and {share_text(*wide[1])} for hill from 0. A start that the first "
        f"batch sets, one below its scores, on seeds that its quantile was not chosen on: {told}.",
    ]


def _passed(asked: Asked, name: str, start: float | None) -> str:
    held, of = passes(asked.of("gates", gate(name, start)))
    return f"{held} of {of}"


def _taught(asked: Asked) -> list[str]:
    tasks = sorted(asked.of("silence share")["task"].unique(), key=lambda text: float(text[21:-1]))
    rows = []
    for name in SHOWN:
        cells = [100 * asked.of("silence share", name, task=task)["hallucination"].mean() for task in tasks]
        rows.append((f"`{name}`", *(f"{cell:.1f}" for cell in cells)))
    return [
        f"## {TAUGHT}",
        "Made-up answers in percent of the unanswerable queries, by the share of such rows in training; all are tested "
        "on one half. The published 27.2 to 34.4 % beside 0.0 % do not say how silence was taught.",
        table(("head", *(task[21:-1] for task in tasks)), rows),
        "Heads whose mass cannot fall answer with the query itself: they are right, and their mass says nothing. A "
        "threshold is what makes the mass fall too.",
    ]


def _recall(asked: Asked) -> list[str]:
    part = "mqar grid, 64 places 16 pairs, 2 layers"
    rows = []
    for name in asked.names(part):
        rate, values = best(asked, name)
        others = [f"{v:.3f}" for _, v in asked.of(part, name).groupby("rate")["decoded"].mean().items()]
        rows.append((f"`{name}`", f"{rate:g}", mean_text(values), *others))
    rates = [f"{rate:g}" for rate in sorted(asked.of(part)["rate"].unique())]
    first = asked.of(part).iloc[0]
    return [
        f"## {RECALL}",
        f"Multi-query recall of 16 pairs over 64 places: {first['layers']} layers of {first['heads']} heads, "
        f"{first['steps']} steps, {asked.of(part)['seed'].nunique()} seeds, learned positions; right answers at the "
        "best of four learning rates, chosen on the seeds that are shown, and at each.",
        table(("head", "rate", "at its best", *rates), rows),
        "Smoothing shifts a key's content to its value's place, and so does a learned convolution of four taps, which "
        "is as good. No normaliser does it alone within these steps. Under noise distractors and under loudness of "
        "deviation 1 the table of claims has right answers of both kinds of heads. The rest of the grid (4 and 16 "
        "pairs over 64 and 128 "
        'places, 64 pairs over 256 and 512, 4 layers) has not been played; `stau-rl probe --task "mqar grid" --device '
        "cuda` does it in about three hours of one H200.",
    ]


def _length(asked: Asked) -> list[str]:
    part, factors = "lssar, smoothed keys", (1, 4, 16)
    rows = [
        (name, *(mean_text(asked.of(part, text, factor)["decoded"]) for factor in factors))
        for name, text in INNER.items()
    ]
    turned = {
        name: asked.of("lssar, rotary", INNER[name], 16)["decoded"] for name in ("softmax", "lssa", "lssar, p = 15")
    }
    told = ", ".join(f"{name} {mean_text(values)}" for name, values in turned.items())
    one, softmax = (asked.of("lssar, one value", name)["decoded"] for name in ("lssar", "softmax"))
    return [
        f"## {LENGTH}",
        "Right answers in a passkey task among rivals: one pair in eight places, so that competitors grow with the "
        "length. All keys are smoothed; 8 seeds.",
        table(("head", "trained length", "x 4", "x 16"), rows),
        f"With positions by rotation nobody holds 16 times the length: {told}. Without smoothing and rivals p = 15 has "
        f"{mean_text(one)} at the trained length, where softmax has {mean_text(softmax)}. A small study on one or two "
        "seeds says why: weights trained without the second stage and asked with it reach 1.000, so the head is able; "
        "at the start 65 % of the value places have a weight of exactly 0 under it, and right answers fall with p "
        "(.932, .870, .818, .752, .584 at p = 1, 2, 3, 5, 8). Training starves under the power, and under the "
        "offset in part (.674 without it); four times the steps bring .734.",
    ]


def _made(asked: Asked) -> list[str]:
    seconds, device = asked.timing.iloc[0][["seconds", "device"]]
    commits = ", ".join(dict.fromkeys(text[:12] for text in asked.rows["commit"]))
    return [
        "## How this was made",
        f"`stau_rl.probe.claims_plan` lists the settings; `stau-rl probe --task gates --task calibrated --task "
        f'"silence '
        f'share" --task lssar --out DIR` plays them again, and `--resume` goes on. {number(len(asked.rows))} rows in '
        f"`notebooks/results/attention_claims.csv`, {number(seconds)} s of groups of which up to ten ran side by side "
        f"({device}), commit {commits}. `python -m stau_rl.pages.attention --claims DIR` takes the rows, and writes "
        "this page.",
    ]


def frame(asked: Asked) -> pd.DataFrame:
    """The shares of seeds behind the figure's first panel, for whoever wants them as a table."""
    rows = [
        {"gate": name, "start": start, "held": held, "of": of}
        for name in NAMES
        for start in STARTS
        for held, of in [passes(asked.of("gates", gate(name, start)))]
    ]
    return pd.DataFrame(rows)
