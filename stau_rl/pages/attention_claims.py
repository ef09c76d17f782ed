"""Sentences and verdicts of docs/attention.md; every one follows from the rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stau_rl.pages.attention_data import AttentionData
from stau_rl.probe.plan import MAY_BE_SILENT, MORE

RECALL, SILENCE, MQAR = "recall", "silence", "mqar"


@dataclass(frozen=True, slots=True)
class Expected:
    """A value that first measurements under the same recipe lead one to expect of a metric.

    Attributes:
        task: `recall`, `silence` or `mqar`, both the part and the task.
        normaliser: the attention head.
        metric: the metric.
        low: smallest expected value.
        high: largest.
        every: of every seed; else of the median.
    """

    task: str
    normaliser: str
    metric: str
    low: float = 0.0
    high: float = 1.0
    every: bool = True

    @property
    def text(self) -> str:
        """What is expected, in words."""
        bounds = f">= {self.low:g}" if self.high == 1 else f"<= {self.high:g}"
        if self.high < 1 and self.low > 0:
            bounds = f"{self.low:g} to {self.high:g}"
        elif self.low == 1:
            bounds = "1"
        return f"{bounds}{' on every seed' if self.every else ' in the median'}"

    def values(self, data: AttentionData) -> list[float]:
        """The metric of each seed."""
        return data.seeds(self.task, self.task, self.normaliser)[self.metric].tolist()

    def holds(self, data: AttentionData) -> bool:
        """Whether the rows are as expected; 1 is met within rounding."""
        values = np.array(self.values(data))
        if not self.every:
            values = np.median(values, keepdims=True)
        return bool(len(values) and (values >= self.low - 1e-5).all() and (values <= self.high + 1e-5).all())


SILENCE_BOUNDS = {
    "mass_unanswerable": (0.0, 0.01),
    "decoded": (0.96, 1.0),
    "recall": (0.96, 1.0),
    "false_refusal": (0.0, 0.05),
}
"""Of heads that may be silent, on every seed."""
_SILENT = ("pn_fir", *MAY_BE_SILENT)
EXPECTED = (
    Expected(RECALL, "softmax", "decoded", 0.10, 0.35, every=False),
    *(Expected(RECALL, "sm_fir", metric, low=0.99) for metric in ("decoded", "recall")),
    *(
        Expected(RECALL, name, metric, low=0.96)
        for name in ("pn_fir_tau", "pn_fir_tau_hill")
        for metric in ("decoded", "recall")
    ),
    Expected(SILENCE, "sm_fir", "mass_unanswerable", low=1.0),
    Expected(SILENCE, "softmax_off_by_one_fir", "mass_unanswerable", low=0.5, every=False),
    Expected(SILENCE, "pn_fir_c", "mass_unanswerable", 0.2, 0.5, every=False),
    *(Expected(SILENCE, name, metric, *bounds) for metric, bounds in SILENCE_BOUNDS.items() for name in _SILENT),
    Expected(MQAR, "softmax", "decoded", low=0.99),
)
"""What first measurements of these heads, two seeds each, lead one to expect; none is published."""

KEPT, LOST, LEARNED = 0.95, 0.8, 0.5
"""Shares of the recall at the trained length: at least the first is kept, less than the second is lost. A recall at the
trained length below the third leaves nothing to keep or lose."""


def silence_holds(data: AttentionData, normaliser: str) -> tuple[int, int]:
    """Seeds of the part with more of them that meet every expectation of silence, and how many there are."""
    rows = data.seeds(MORE, SILENCE, normaliser)
    held = np.ones(len(rows), dtype=bool)
    for metric, (low, high) in SILENCE_BOUNDS.items():
        held &= rows[metric].between(low - 1e-5, high + 1e-5).to_numpy()
    return int(held.sum()), len(rows)


def expected_rows(data: AttentionData) -> Iterator[tuple[str, ...]]:
    """Task, head, metric, what is expected, median and worst-to-best seeds, and whether it comes out."""
    for claim in EXPECTED:
        values = claim.values(data)
        if values:
            spread = f"{np.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
            holds = "yes" if claim.holds(data) else "**no**"
            yield claim.task, f"`{claim.normaliser}`", claim.metric.replace("_", " "), claim.text, spread, holds


def length_rows(data: AttentionData, task: str) -> dict[str, dict[int, float]]:
    """Median share of right answers of each normaliser by multiple of the trained length."""
    rows = data.rows[(data.rows["part"] == "length") & (data.rows["task"] == task)]
    found: dict[str, dict[int, float]] = {}
    for name, own in rows.groupby("normaliser", sort=False):
        medians = own.groupby("factor")["decoded"].median()
        found[str(name)] = dict(zip(medians.index.tolist(), medians.tolist(), strict=True))
    return found


def family(name: str) -> str:
    """The head of a normaliser's text, without smoothing: `lssar_p3(fir_taps=7)` and `lssar_p3` are one.

    A head on plain scores in place of its preset's is another, such as `reweight_softmax_dot`.
    """
    plain = name.split("(")[0].removesuffix("_fir") + "_dot" * ("scores=dot" in name)
    return {"sm": "softmax"}.get(plain, plain)


def length_sentences(data: AttentionData) -> Iterator[str]:
    """Which claims about length come out here, one sentence for each claim and task; each is judged seed by seed."""
    for task in data.tasks("length"):
        rows = data.rows[(data.rows["part"] == "length") & (data.rows["task"] == task)]
        found = {
            family(str(name)): own.pivot(index="seed", columns="factor", values="decoded").sort_index()
            for name, own in rows.groupby("normaliser", sort=False)
        }
        second = next((name for name in ("reweight_softmax", "reweight_softmax_dot") if name in found), None)
        if second is None or not {"softmax", "lssa", "lssar_p3", "lssar"} <= set(found):
            continue
        longest = max(found["softmax"].columns)
        first = {name: table[1].to_numpy() for name, table in found.items()}
        last = {name: table[longest].to_numpy() for name, table in found.items()}
        kept = {name: last[name] / np.maximum(first[name], 1e-9) for name in found}
        soft, plain = first["softmax"], first["lssa"]
        yield (
            f'"LSSA does no worse than softmax at the trained length" '
            f"{_verdict(plain >= soft - 0.01, np.maximum(plain, soft))} on `{task}`: {_median_worst(plain)} against "
            f"{_median_worst(soft)}."
        )
        weighted = np.minimum(kept["lssar_p3"], kept["lssar"])
        learned = np.minimum(first["lssar_p3"], first["lssar"])
        yield (
            f'"Re-weighting keeps the recall to {longest} times the length" {_verdict(weighted >= KEPT, learned)} '
            f"on `{task}`: of the recall at the trained length ({_median_worst(first['lssar_p3'])} and "
            f"{_median_worst(first['lssar'])}), p = 3 keeps {_percent(kept['lssar_p3'])} and p = 15 "
            f"{_percent(kept['lssar'])}."
        )
        others = (("LSSA without re-weighting", "lssa"), ("SSMax", "ssmax"), ("s^tau", "s_tau"))
        beside = ", ".join(f"{words} {_percent(kept[name])}" for words, name in others if name in kept)
        yield (
            f'"Softmax loses its recall there" {_verdict(kept["softmax"] < LOST, soft)} on `{task}`: it keeps '
            f"{_percent(kept['softmax'])}, {beside}."
        )
        needed = (kept["lssar_p3"] >= KEPT) & (kept[second] < KEPT)
        both = np.minimum(first["lssar_p3"], first[second])
        scores = "the same scores" if second == "reweight_softmax" else "plain scores, a second difference"
        yield (
            f'"Re-weighting needs softplus in front of it" {_verdict(needed, both)} on `{task}`: p = 3 behind softmax '
            f"({scores}) keeps {_percent(kept[second])} at {longest} times the length and has "
            f"{_median_worst(last[second])} there, behind softplus it keeps {_percent(kept['lssar_p3'])} and has "
            f"{_median_worst(last['lssar_p3'])}; softmax alone has {_median_worst(last['softmax'])}."
        )


def _median_worst(values: np.ndarray) -> str:
    return f"{np.median(values):.3f} ({values.min():.3f})"


def _percent(values: np.ndarray) -> str:
    return f"{100 * np.median(values):.0f} % ({100 * values.min():.0f} %)"


def _verdict(holds: np.ndarray, learned: np.ndarray) -> str:
    """In words, from what holds on each seed and what there was to keep or lose."""
    if np.median(learned) < LEARNED:
        return "cannot be judged"
    if holds.all():
        return "reproduces"
    return f"reproduces on {holds.sum()} of {len(holds)} seeds" if holds.any() else "does not reproduce"
