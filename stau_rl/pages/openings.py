"""What each page of results answers, in three sentences from the rows: other numbers, other sentences."""

import pandas as pd

from stau_rl.pages.attention_claims import silence_holds
from stau_rl.pages.attention_data import AttentionData
from stau_rl.pages.claim_effect import ALPHA
from stau_rl.pages.plateau import is_remedy
from stau_rl.plateau.report import share_text
from stau_rl.probe.plan import MORE
from stau_rl.rl_study.results import RLResults

SILENT_HEADS = (
    *("sm_fir", "softmax_off_by_one_fir", "pn_fir", "pn_fir_tau", "pn_fir_tau_calibrated"),
    *("pn_fir_tau_hill", "pn_fir_tau_hill_calibrated"),
)
LENGTH_HEADS = ("softmax", "s_tau", "lssa", "lssar_p3", "lssar")


def reinforcement(results: RLResults) -> list[str]:
    """Does the head change what an agent learns?"""
    sentences = []
    reference, seeds = results.families[0], results.runs.loc[results.runs["role"] == "evaluation", "seed"].nunique()
    for control, against in ((False, "Each head at its best"), (True, "At the same sharpness and learning rate")):
        p_values = results.p_values(control=control)
        sure = [place for place, p in p_values.items() if p <= ALPHA]
        higher = sum(results.improvement(*place, control=control).value > 0.5 for place in sure)
        sentences.append(
            f"{against}: of {len(p_values)} comparisons with `{reference}`, {higher} score higher, "
            f"{len(sure) - higher} lower, and {len(p_values) - len(sure)} show no difference that {seeds} seeds can "
            "tell."
        )
    if results.plateau is not None:
        sentences.append(_plateau(results.plateau))
    return sentences


def _plateau(rows: pd.DataFrame) -> str:
    """The heads at the start with fewest arms and the smallest probability of each other arm, exact gradients."""
    best = rows[(rows["kind"] == "best") & (rows["gradient"] == "exact") & rows["start"].str.startswith("each")]
    best = best[best["arms"] == best["arms"].min()]
    start = best["start"].iloc[-1]
    mine = best[(best["start"] == start) & ~best["method"].map(is_remedy) & ~best["method"].str.startswith("fixed")]
    shares = ", ".join(f"`{row['method']}` {share_text(row)} %" for row in mine.to_dict("records"))
    return (
        f"Policy gradient that starts at a suboptimal arm ({best['arms'].min()} arms, `{start}`) is still there at the "
        f"end in this share of the draws: {shares}."
    )


def attention(data: AttentionData) -> list[str]:
    """Do attention heads find the slot, stay silent without one, and keep both at greater length?"""
    sentences = []
    known = data.normalisers("recall", "recall")
    plain, smooth = ("softmax", "sm_fir") if {"softmax", "sm_fir"} <= set(known) else (known[0], known[-1])
    right = {name: data.median("decoded", "recall", "recall", name) for name in (plain, smooth)}
    sentences.append(
        f"Recall: `{plain}` answers {100 * right[plain]:.0f} % of the queries right; `{smooth}`, which smooths its "
        f"keys, {100 * right[smooth]:.0f} %."
    )
    silent = [name for name in data.normalisers("silence", "silence") if name in SILENT_HEADS]
    if silent:
        masses = ", ".join(
            f"`{name}` {data.median('mass_unanswerable', 'silence', 'silence', name):.3f}" for name in silent
        )
        sentence = f"Silence: the mass that is left where the key is absent: {masses}"
        if data.tasks(MORE):
            held = (
                f"`{name}` {' of '.join(map(str, silence_holds(data, name)))}" for name in silent if _more(data, name)
            )
            sentence += f"; seeds that also keep their recall: {', '.join(held)}"
        sentences.append(f"{sentence}.")
    if data.tasks("length"):
        task = next(iter(data.tasks("length")))
        longest = int(data.rows.loc[data.rows["part"] == "length", "factor"].max())
        shown = [name for name in data.normalisers("length", task) if name in LENGTH_HEADS]
        shares = ", ".join(
            f"`{name}` {data.median('decoded', 'length', task, name):.3f} to "
            f"{data.median('decoded', 'length', task, name, longest):.3f}"
            for name in shown
        )
        sentences.append(f"Length: right answers at the trained length and at {longest} times that: {shares}.")
    return sentences


def _more(data: AttentionData, name: str) -> bool:
    return name in data.normalisers(MORE, "silence")
