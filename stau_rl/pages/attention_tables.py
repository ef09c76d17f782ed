"""The text of docs/attention_tables.md: the long tables behind docs/attention.md, written from the committed rows."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stau_rl.agents.attention.attention_normalisers import LOW
from stau_rl.agents.attention.key_smoothing import half_gaussian_taps
from stau_rl.pages import openings
from stau_rl.pages.attention_asked_tables import asked_tables
from stau_rl.pages.attention_claims import SILENCE_BOUNDS, expected_rows, length_sentences, silence_holds
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.attention_figures import figures
from stau_rl.pages.attention_made import made, setup
from stau_rl.pages.markdown import table
from stau_rl.pages.trained_tables import trained_appendix
from stau_rl.probe.plan import MORE
from stau_rl.probe.summary import cell
from stau_rl.statistics.means import wilson_interval

FOUND = ("recall", "worst_key", "decoded", "decoded_worst_key", "false_refusal", "dead_row_rate", "mass_answerable")
SILENT = ("recall", "decoded", "decoded_worst_key", "false_refusal", "commit_rate", "hallucination")
MASSES = ("mass_answerable", "mass_unanswerable", "auroc", "risk_80", "aurc", "dead_row_rate")
ROWS = ("sink_mass", "entropy", "top1_mass", "top10_mass", "below_1e6", "kurtosis")


def tables_page(data: AttentionData) -> str:
    """The whole page as Markdown; a part that the rows do not hold is left out."""
    parts = [
        "# All numbers of attention heads",
        "The tables behind [the page on attention](attention.md), written by `python -m stau_rl.pages.attention` from "
        "`notebooks/results/attention_*.csv`; words follow the numbers. In short:",
        "\n".join(f"- {sentence}" for sentence in openings.attention(data)),
        _picture(data, "attention_silence.png", "Row mass with and without an answer"),
        *setup(data),
        *_expected(data),
        *_recall(data),
        *_silence(data),
        *_thresholds(data),
        *_length(data),
        *_others(data),
        *([] if data.asked is None else asked_tables(data.asked)),
        *([] if data.trained is None else [trained_appendix(data.trained)]),
        *made(data),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _expected(data: AttentionData) -> list[str]:
    header = ("task", "head", "metric", "expected", "median (range of seeds)", "comes out")
    return [
        "## What was expected, and what comes out",
        "Expectations are first measurements of two seeds under this recipe, not published numbers; of heads that "
        "start elsewhere they are those of the head that starts at a threshold of 0. What the recipe leaves open is "
        "chosen here: the unembedding is not tied to the embedding, and the head's output is added to the normalised "
        "embedding. Smoothing makes the scores of independent keys smaller by the root of the sum of the filter's "
        f"squares, {half_gaussian_taps().square().sum().sqrt().item():.2f}; calibrated heads and `calibrate=threshold` "
        f"start one below the {100 * LOW:g} % quantile of the largest scores of the first batch's rows.",
        table(header, expected_rows(data), keys=3),
        *_more_seeds(data),
        *_starved(data),
    ]


def _more_seeds(data: AttentionData) -> list[str]:
    """How often the expectations of silence hold over the seeds of the part that has more of them."""
    if not data.tasks(MORE):
        return []
    rows = []
    for name in data.normalisers(MORE, "silence"):
        held, seeds = silence_holds(data, name)
        low, high = wilson_interval(held, seeds)
        cells = [_cell(data, metric, MORE, "silence", name) for metric in SILENCE_BOUNDS]
        rows.append((f"`{name}`", f"{held} of {seeds}", f"{low:.2f} to {high:.2f}", *cells))
    names = [metric.replace("_", " ") for metric in SILENCE_BOUNDS]
    return [
        "Five seeds are few for a verdict on every seed, so these were trained on more. Seeds that meet all of what is "
        "expected of silence, the 95 % interval of that share (Wilson), and the median with the worst seed:",
        table(("head", "seeds", "share", *names), rows),
    ]


def _starved(data: AttentionData) -> list[str]:
    """A sentence on the keys that thresholded heads never learn, where there are such seeds."""
    counts = []
    for name in data.normalisers("silence", "silence"):
        more = data.seeds(MORE, "silence", name)
        rows = more if len(more) else data.seeds("silence", "silence", name)
        starved = rows[rows["decoded_worst_key"] < 0.5]
        if name.startswith("pn_") and len(starved):
            dead = f"{starved['dead_row_rate'].median():.3f} ({starved['dead_row_rate'].max():.3f})"
            counts.append(f"`{name}` {len(starved)} of {len(rows)} seeds, dead rows on answerable queries there {dead}")
    if not counts:
        return []
    return [
        "In silence a seed may leave a key unlearned, right on it in less than half of the cases: one key of 32 is "
        f".031 of the answers. {'; '.join(counts)}. A row below its threshold has no gradient."
    ]


def _recall(data: AttentionData) -> list[str]:
    parts = ["## Recall", *_setting(data, "recall", (FOUND, ROWS))]
    if data.tasks("distractors"):
        parts += [
            "### Distractors",
            "Distractors per pair, in random places among them: two tokens of noise; a pair of a decoy key, which is "
            "never asked for; or a value behind the twin of a key of the context, whose embedding starts at a "
            "correlation of 0.9 with the key's. Right answers:",
            _wide(data, "distractors", "decoded"),
        ]
    if data.tasks("amplitude"):
        parts += [
            "### Amplitude noise",
            "Every place of the context speaks with loudness exp(a z), z standard normal, after the normalisation. "
            "Right answers:",
            _wide(data, "amplitude", "decoded"),
        ]
    return parts


def _silence(data: AttentionData) -> list[str]:
    if not data.tasks("silence"):
        return []
    parts = ["## Silence", *_setting(data, "silence", (SILENT, MASSES, ROWS))]
    parts += [_picture(data, "attention_maps.png", "Weights")]
    if data.tasks("null label"):
        parts += [
            "### With a NULL label",
            "The answer to an absent key is a token of its own. A head must now attend in order to say that there is "
            f"nothing. {_told(data)}",
            *_setting(data, "null label", (SILENT, MASSES)),
        ]
    return parts


def _told(data: AttentionData) -> str:
    """How well row mass tells absent keys with a NULL label, from the least to the most telling head."""
    (task,) = data.tasks("null label")
    found = {name: data.median("auroc", "null label", task, name) for name in data.normalisers("null label", task)}
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    return f"The median AUROC of row mass goes from {found[low]:.3f} (`{low}`) to {found[high]:.3f} (`{high}`):"


def _thresholds(data: AttentionData) -> list[str]:
    if not data.tasks("threshold"):
        return []
    head = data.normalisers("threshold", data.tasks("threshold")[0])[0].split("(")[0]
    parts = [
        "## Where the threshold starts",
        f"`{head}` from other thresholds, as given and calibrated (one below the "
        f"{100 * LOW:g} % quantile of the largest "
        "scores of the first batch's rows). Dead rows have no gradient.",
    ]
    for task in data.tasks("threshold"):
        rows = []
        for name in data.normalisers("threshold", task):
            cells = [_cell(data, metric, "threshold", task, name) for metric in ("first_dead", "decoded", "recall")]
            rows.append((f"`{name}`", *cells, _cell(data, "mass_unanswerable", "threshold", task, name)))
        header = (f"`{task}`", "dead rows at the start", "right answers", "recall", "mass without an answer")
        parts.append(table(header, rows))
        parts.append(_starts(data, task))
        calibrated = [name for name in data.normalisers("threshold", task) if "calibrate" in name]
        low = min(data.worst("decoded", "threshold", task, name) for name in calibrated)
        parts.append(f"Calibrated, the worst seed of all starts gives {low:.3f} right answers on `{task}`.")
    return [*parts, _picture(data, "attention_thresholds.png", "Thresholds")]


def _starts(data: AttentionData, task: str) -> str:
    """Which starts, as given, end with keys that are not found or without silence."""
    given = [name for name in data.normalisers("threshold", task) if "calibrate" not in name]
    lost = [name for name in given if data.worst("decoded", "threshold", task, name) < 0.96]
    loud = [name for name in given if data.median("mass_unanswerable", "threshold", task, name) > 0.01]
    text = f"As given, the worst seed has less than .96 of the answers right from {_listed(lost)}"
    if "silence" in task:
        text += f"; the median mass on absent keys is above .01 from {_listed(loud)}"
    return f"{text}."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "no start"


def _length(data: AttentionData) -> list[str]:
    if not data.tasks("length"):
        return []
    parts = [
        "## Length",
        "Trained at one length, tested at multiples of it, without positions (learned ones cannot extrapolate). "
        "`passkey`: one value in noise, the noise grows. `recall`: the pairs grow, and with them the keys that "
        "compete; keys are smoothed, which is how a single layer binds a value to its key. Right answers:",
    ]
    for task in data.tasks("length"):
        rows = data.rows[(data.rows["part"] == "length") & (data.rows["task"] == task)]
        factors = sorted(rows["factor"].unique())
        body = [
            (f"`{name}`", *(_cell(data, "decoded", "length", task, name, factor) for factor in factors))
            for name in data.normalisers("length", task)
        ]
        parts.append(table((f"`{task}`, {rows['steps'].iloc[0]} steps", *(f"{factor}x" for factor in factors)), body))
    parts.append(_picture(data, "attention_length.png", "Length"))
    sentences = list(length_sentences(data))
    if sentences:
        parts += [
            "What the paper on LSSAR (Gao and Spratling, 2025, arXiv 2501.13428; later with Gionfrida) says of "
            "language models, in this page's words and asked of these heads. Recall is the share of "
            "right answers here, the median of the seeds with the lowest in brackets. Kept means at least 95 % of the "
            "recall at the trained length, lost less than 80 %; where the median of that recall is below .5 there is "
            "nothing to judge; no worse means by at most .01. A claim reproduces if it holds on every seed.",
            "\n".join(f"- {sentence}" for sentence in sentences),
        ]
    return parts


def _others(data: AttentionData) -> list[str]:
    parts = []
    for part, title, text in (
        ("overwrite", "Overwritten keys", "Four keys, each written twice; the last value counts."),
        (
            "mqar",
            "Multi-query recall",
            "Two layers, 64 places, 4 pairs, each key asked once among random fillers (the semantics of Zoology's "
            "generator, seeded throughout); keys are smoothed where the name of the head says fir.",
        ),
    ):
        if data.tasks(part):
            parts += [
                f"## {title}",
                text,
                *_setting(data, part, (("recall", "decoded", "decoded_worst_key", "entropy"),)),
            ]
    if data.tasks("sweep"):
        parts += [
            "## Exponent, width, taps",
            "Dots are seeds, lines medians.",
            _picture(data, "attention_sweeps.png", "Sweeps"),
            *(_wide(data, "sweep", metric, only=task) for task, metric in _swept(data)),
        ]
    return parts


def _swept(data: AttentionData) -> Iterator[tuple[str, str]]:
    for task in data.tasks("sweep"):
        yield task, "decoded"


def _setting(data: AttentionData, part: str, groups: Iterable[Sequence[str]]) -> list[str]:
    """Tables of a part's single task: a row per normaliser, for each group of metrics."""
    (task,) = data.tasks(part)
    tables = []
    for metrics in groups:
        known = [name for name in metrics if data.rows.loc[data.rows["part"] == part, name].notna().any()]
        rows = [
            (f"`{name}`", *(_cell(data, metric, part, task, name) for metric in known))
            for name in data.normalisers(part, task)
        ]
        tables.append(table((f"`{task}`", *(name.replace("_", " ") for name in known)), rows))
    return tables


def _wide(data: AttentionData, part: str, metric: str, only: str | None = None) -> str:
    """One metric of a part: a row per normaliser, a column per task."""
    tasks = [task for task in data.tasks(part) if only in (None, task)]
    names = dict.fromkeys(name for task in tasks for name in data.normalisers(part, task))
    rows = [(f"`{name}`", *(_cell(data, metric, part, task, name) for task in tasks)) for name in names]
    return table(("", *(f"`{task}`" for task in tasks)), rows)


def _cell(data: AttentionData, metric: str, part: str, task: str, name: str, factor: int = 1) -> str:
    median = data.median(metric, part, task, name, factor)
    return "-" if np.isnan(median) else cell(median, data.worst(metric, part, task, name, factor))


def _picture(data: AttentionData, name: str, title: str) -> str:
    return f"![{title}]({name})" if name in figures(data) else ""
