"""What the rows of small trained models say about tau*: numbers with intervals, from which the sentences follow."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from stau_rl.files.finished import read_table
from stau_rl.pages.paths import RESULTS
from stau_rl.pages.tau_models import PER_HEAD, SOFTMAX
from stau_rl.pages.tau_rows import TRUE
from stau_rl.pages.trained_scores import CURVES, HEADS, SWAPS, TEXTS, TIMING
from stau_rl.statistics.correlation import clustered_interval, fisher_interval, pearson, restricted, slope, spearman
from stau_rl.statistics.means import MeanInterval, mean_interval
from stau_rl.statistics.robust import Estimate

PUBLISHED_R = 0.97
WINDOW = (1.30, 1.51)
"""Between these lay tau* of the models of `stau_rl.pages.tau_star`, which are trained for a short time."""
LEARNED = 0.9
"""A model with fewer right answers than this has not learned the task."""
KEPT, COLLAPSED = 0.95, 0.5
"""Shares of softmax's right answers: at least the first is kept, less than the second has collapsed."""
LOSSES = (1.0, 0.3, 0.1, 0.03)
"""Validation losses, nats, at which weights are compared."""
LOOKS = ("below_1e6", "below_1e3", "top10_mass", "entropy")
SEED = 0


@dataclass(frozen=True, slots=True)
class TrainedScores:
    """The committed rows of `stau_rl.pages.trained_scores`.

    Attributes:
        heads: a row per head and shift.
        swaps: a row per model of softmax and choice of tau.
        curves: a row per model, step and layer.
        timing: a row per group.
    """

    heads: pd.DataFrame
    swaps: pd.DataFrame
    curves: pd.DataFrame
    timing: pd.DataFrame

    @classmethod
    def load(cls, folder: Path = RESULTS) -> "TrainedScores":
        """Read the committed CSV files."""
        return cls(*(read_table(folder / name, TEXTS) for name in (HEADS, SWAPS, CURVES, TIMING)))

    def learned(self, shift: float = 0.0) -> pd.DataFrame:
        """The heads of softmax's models that have learned their task, which the claim is about."""
        own = self.heads
        return own[(own["head_rule"] == SOFTMAX) & (own["accuracy"] >= LEARNED) & (own["shift"] == shift)]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the closed-form tau* goes with the grid's best tau over some heads.

    Attributes:
        heads: their number.
        models: the number of models that they are of.
        closed: least, median and largest closed form.
        grid: the same of the grid.
        pearson: Pearson's correlation, its interval from a bootstrap over models.
        fisher: the same number with the interval of heads that are independent.
        spearman: rank correlation, its interval over models.
        slope: of the grid's tau on the closed form, its interval over models.
        factor: median over heads of the grid's tau by the closed form.
    """

    heads: int
    models: int
    closed: tuple[float, float, float]
    grid: tuple[float, float, float]
    pearson: Estimate
    fisher: Estimate
    spearman: Estimate
    slope: Estimate
    factor: float


def agreement(heads: pd.DataFrame) -> Agreement:
    """The agreement over rows of heads; those whose rows are flat, without a closed form, are left out."""
    known = heads.dropna(subset=["tau_closed"])
    x, y = known["tau_closed"].to_numpy(), known["tau_grid"].to_numpy()
    models = (known["group"] + " " + known["head_rule"] + " " + known["seed"].astype(str)).to_numpy()
    r, ranks, line = (clustered_interval(part, x, y, models, seed=SEED) for part in (pearson, spearman, slope))
    return Agreement(
        len(known),
        len(set(models)),
        _span(x),
        _span(y),
        r,
        fisher_interval(r.value, len(known)) if np.isfinite(r.value) else r,
        ranks,
        line,
        float(np.median(y / x)),
    )


def _span(values: np.ndarray) -> tuple[float, float, float]:
    return float(values.min()), float(np.median(values)), float(values.max())


def within(heads: pd.DataFrame) -> pd.DataFrame:
    """The heads whose closed form lies in the narrow window."""
    return heads[heads["tau_closed"].between(*WINDOW)]


def foreseen(heads: pd.DataFrame) -> float:
    """The correlation in the window that the whole range leads one to expect there, were the scatter even."""
    known = heads.dropna(subset=["tau_closed"])
    r = float(np.corrcoef(known["tau_closed"], known["tau_grid"])[0, 1])
    return restricted(r, float(within(known)["tau_closed"].std() / known["tau_closed"].std()))


def agreement_verdict(found: Agreement) -> str:
    """In a word, whether the published correlation comes out."""
    if not np.isfinite(found.pearson.low):
        return "not testable here"
    if found.pearson.low <= PUBLISHED_R <= found.pearson.high or found.pearson.value >= PUBLISHED_R:
        return "reproduced"
    return "not reproduced (weaker)" if found.pearson.low > 0 else "not reproduced"


@dataclass(frozen=True, slots=True)
class Swap:
    """Softmax's models, learned, with s^tau put in: over models, each beside its own numbers before.

    Attributes:
        models: their number.
        accuracy: share of right answers after the swap.
        kept: that by the share before.
        added: loss added, nats.
        collapsed: models that keep less than half of their right answers.
    """

    models: int
    accuracy: MeanInterval
    kept: MeanInterval
    added: MeanInterval
    collapsed: int


def swap(data: TrainedScores, choice: str, group: str | None = None) -> Swap:
    """One choice of tau over the learned models of all groups, or of one."""
    rows = data.swaps if group is None else data.swaps[data.swaps["group"] == group]
    table = rows.pivot(index=["group", "seed"], columns="choice", values=["loss", "accuracy"])
    table = table[table["accuracy", TRUE] >= LEARNED]
    kept = (table["accuracy", choice] / table["accuracy", TRUE]).to_numpy()
    return Swap(
        len(table),
        mean_interval(table["accuracy", choice]),
        mean_interval(kept),
        mean_interval(table["loss", choice] - table["loss", TRUE]),
        int((kept < COLLAPSED).sum()),
    )


def swap_verdict(own: Swap, one: Swap) -> str:
    """Whether a tau per head keeps what one tau for all loses."""
    if own.kept.mean < KEPT:
        return "not testable here, a tau per head does not keep the answers either"
    if 2 * one.collapsed > one.models:
        return "reproduced"
    if one.kept.mean >= KEPT:
        return "not reproduced, one tau keeps them as well"
    return "in part, one tau loses answers and does not collapse"


def at_loss(data: TrainedScores, loss: float, rules: tuple[str, str] = (SOFTMAX, PER_HEAD)) -> pd.DataFrame:
    """Weights of two heads where training first reaches a loss, a row per seed that reaches it in both.

    Weights are averaged over the layers and interpolated linearly in log loss between the two measurements around it.

    Returns:
        Columns (`LOOKS`, head); the index is the seed.
    """
    main = data.curves[data.curves["group"] == "main"]
    columns: dict[tuple[str, str], dict[int, float]] = {}
    for (rule, seed), own in main[main["head_rule"].isin(rules)].groupby(["head_rule", "seed"]):
        path = own.groupby("step")[["loss", *LOOKS]].mean()
        below = np.flatnonzero(path["loss"] <= loss)
        if not below.size or below[0] == 0:
            continue
        before, after = path.iloc[below[0] - 1], path.iloc[below[0]]
        share = np.log(before["loss"] / loss) / np.log(before["loss"] / after["loss"])
        for look in LOOKS:
            columns.setdefault((look, str(rule)), {})[int(str(seed))] = before[look] + share * (
                after[look] - before[look]
            )
    return pd.DataFrame(columns).dropna()


def difference(table: pd.DataFrame, look: str, rules: tuple[str, str] = (SOFTMAX, PER_HEAD)) -> MeanInterval:
    """Second head less the first, paired over seeds."""
    return mean_interval(table[look, rules[1]] - table[look, rules[0]])


def sign(found: MeanInterval) -> int:
    """1 or -1 where the interval leaves out 0, else 0."""
    return int(found.low > 0) - int(found.high < 0)


def last(data: TrainedScores, rule: str) -> pd.DataFrame:
    """Loss and accuracy of the models of the main group after training, a row per seed."""
    main = data.curves[(data.curves["group"] == "main") & (data.curves["head_rule"] == rule)]
    return main[main["step"] == main["step"].max()].groupby("seed")[["loss", "accuracy"]].first()
