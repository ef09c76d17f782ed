"""Sentences and verdicts of docs/attention.md; every one follows from the rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stau_rl.attention_data import AttentionData
from stau_rl.probe_plan import MAY_BE_SILENT, MORE

RECALL, SILENCE, MQAR = "recall", "silence", "mqar"


@dataclass(frozen=True, slots=True)
class Expected:
    """A value that a published recipe leads one to expect of a metric.

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
EXPECTED = (
    Expected(RECALL, "softmax", "decoded", 0.10, 0.35, every=False),
    *(Expected(RECALL, "sm_fir", metric, low=0.99) for metric in ("decoded", "recall")),
    *(Expected(RECALL, "pn_fir_tau", metric, low=0.96) for metric in ("decoded", "recall")),
    Expected(SILENCE, "sm_fir", "mass_unanswerable", low=1.0),
    Expected(SILENCE, "softmax_off_by_one_fir", "mass_unanswerable", low=0.5, every=False),
    Expected(SILENCE, "pn_fir_c", "mass_unanswerable", 0.2, 0.5, every=False),
    *(Expected(SILENCE, name, metric, *bounds) for metric, bounds in SILENCE_BOUNDS.items() for name in MAY_BE_SILENT),
    Expected(MQAR, "softmax", "decoded", low=0.99),
)
"""What published measurements of these heads, under the recipe that they give, lead one to expect."""

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
    """Which claims about length come out here, one sentence for each claim and task."""
    for task in data.tasks("length"):
        table = {family(name): values for name, values in length_rows(data, task).items()}
        second = next((name for name in ("reweight_softmax", "reweight_softmax_dot") if name in table), None)
        if second is None or not {"softmax", "lssa", "lssar_p3", "lssar"} <= set(table):
            continue
        longest = max(table["softmax"])

        def at(name: str, factor: int, table: dict[str, dict[int, float]] = table) -> float:
            return table[name][factor]

        soft, plain = at("softmax", 1), at("lssa", 1)
        yield (
            f'"LSSA does no worse than softmax at the trained length" '
            f"{_verdict(plain >= soft - 0.01, max(plain, soft))} on `{task}`: {plain:.3f} against {soft:.3f}."
        )
        kept = {name: at(name, longest) / max(at(name, 1), 1e-9) for name in table}
        yield (
            f'"Re-weighting keeps the recall to {longest} times the length" '
            f"{_verdict(min(kept['lssar_p3'], kept['lssar']) >= KEPT, min(at('lssar_p3', 1), at('lssar', 1)))} "
            f"on `{task}`: of the recall at the trained "
            f"length ({at('lssar_p3', 1):.3f} and {at('lssar', 1):.3f}), p = 3 keeps {100 * kept['lssar_p3']:.0f} % "
            f"and p = 15 {100 * kept['lssar']:.0f} %."
        )
        yield (
            f'"Softmax loses its recall there" {_verdict(kept["softmax"] < LOST, soft)} on `{task}`: it keeps '
            f"{100 * kept['softmax']:.0f} %, LSSA without re-weighting {100 * kept['lssa']:.0f} %, SSMax "
            f"{100 * kept.get('ssmax', np.nan):.0f} %, s^tau {100 * kept.get('s_tau', np.nan):.0f} %."
        )
        own = at(second, longest)
        scores = "the same scores" if second == "reweight_softmax" else "plain scores, a second difference"
        yield (
            f'"Re-weighting needs softplus in front of it" '
            f"{_verdict(at('lssar_p3', longest) > own + 0.01, at('lssar_p3', 1))} on `{task}`: at {longest} times the "
            f"length, p = 3 behind softmax ({scores}) has {own:.3f}, behind softplus {at('lssar_p3', longest):.3f}, "
            f"softmax alone {at('softmax', longest):.3f}."
        )


def _verdict(holds: bool, learned: float) -> str:
    if learned < LEARNED:
        return "cannot be judged"
    return "reproduces" if holds else "does not reproduce"
