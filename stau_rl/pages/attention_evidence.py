"""What the rows of `stau_rl.pages.attention_asked` say: numbers with intervals, and the rules that verdicts follow."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from stau_rl.pages.attention_asked import Asked
from stau_rl.pages.attention_claims import SILENCE_BOUNDS
from stau_rl.probe.claims_plan import MQAR, claims
from stau_rl.statistics.means import mean_interval, wilson_interval

REPRODUCED, NOT, IN_PART, CAUSE, UNTESTABLE = (
    "reproduced",
    "not reproduced",
    "reproduced in part",
    "another cause",
    "not testable here",
)
PUBLISHED_SPAN = (0.272, 0.344)
"""Published shares of answers that other heads make up; that of pn_fir_tau is 0."""
STARVED = 0.5
"""A key whose queries are answered right less often is starved."""
EQUAL = 0.01
"""Shares of right answers within this are no different."""
MAIN_CELL = ("mqar(places=64, pairs=16)", 2)
"""The task and the number of layers that the page speaks of first."""
Values = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Share:
    """Seeds that pass, of how many, and the Wilson interval of their share."""

    held: int
    of: int

    @property
    def bounds(self) -> tuple[float, float]:
        """The 95 % interval."""
        return wilson_interval(self.held, self.of)

    @property
    def text(self) -> str:
        """`35 of 40 [.74, .95]`."""
        low, high = (short(value, 2) for value in self.bounds)
        return f"{self.held} of {self.of} [{low}, {high}]"

    @property
    def verdict(self) -> str:
        """Reproduced where most seeds pass, for certain; not where most fail, for certain."""
        low, high = self.bounds
        return REPRODUCED if low > 0.5 else NOT if high < 0.5 else IN_PART


def short(value: float, digits: int = 3) -> str:
    """A share without the 0 in front of its point."""
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def mean_text(values: Values, digits: int = 3, scale: float = 1.0) -> str:
    """Mean of shares over seeds with its 95 % Student interval, cut to [0, 1]; with scale 100 in percent."""
    found = mean_interval(values)
    numbers = (found.mean, max(0.0, found.low), min(1.0, found.high))
    mean, low, high = (f"{scale * value:.{digits}f}" if scale > 1 else short(value, digits) for value in numbers)
    return f"{mean} [{low}, {high}]" if not low == mean == high else mean


def above(first: Values, second: Values) -> int:
    """1 where the first of two shares, paired by seed, is surely larger, by more than `EQUAL`; -1 where smaller."""
    found = mean_interval(first - second)
    if found.low > 0 and found.mean > EQUAL:
        return 1
    return -1 if found.high < 0 and found.mean < -EQUAL else 0


def difference_text(first: Values, second: Values) -> str:
    """The first less the second, paired by seed, and half the 95 % Student interval of the mean."""
    found = mean_interval(first - second)
    mean = f"{found.mean:+.2f}".replace("0.", ".")
    return f"{mean} ± {short((found.high - found.low) / 2, 2)}"


def gate_text(gate: str, start: float | None, norm: str = "l1") -> str:
    """A head of the part `gates`: its gate, the start of the learned threshold, or None for one fixed at 0."""
    if start is None:
        return f"pn_fir(gate={gate}, fir_norm={norm})"
    return f"pn_fir_tau(gate={gate}, threshold={start:g}, fir_norm={norm})"


def passing(rows: pd.DataFrame) -> Share:
    """Seeds that meet all that is expected of silence: no mass without an answer, and recall kept."""
    good = np.ones(len(rows), dtype=bool)
    for metric, (low, high) in SILENCE_BOUNDS.items():
        good &= rows[metric].between(low - 1e-5, high + 1e-5).to_numpy()
    return Share(int(good.sum()), len(rows))


def starving(rows: pd.DataFrame) -> Share:
    """Seeds that leave a key unlearned."""
    return Share(int((rows["decoded_worst_key"] < STARVED).sum()), len(rows))


def share_of(task: object) -> float:
    """The share of unanswerable training rows in a task's text."""
    return float(str(task).partition("unanswerable=")[2].rstrip(")"))


@dataclass(frozen=True, slots=True)
class Taught:
    """A metric in the part on taught silence, its mean over seeds.

    Attributes:
        names: the heads, in the order of the plan.
        shares: shares of unanswerable training rows, ascending.
        means: float64 [heads, shares].
    """

    names: list[str]
    shares: list[float]
    means: np.ndarray[tuple[int, int], np.dtype[np.float64]]

    def of(self, name: str, share: float) -> float:
        """One head at one share."""
        return float(self.means[self.names.index(name), self.shares.index(share)])

    def others(self, share: float) -> Values:
        """The heads without a threshold, at one share."""
        kept = [place for place, name in enumerate(self.names) if not name.startswith("pn_")]
        return self.means[kept, self.shares.index(share)]


def taught(asked: Asked, metric: str = "hallucination") -> Taught:
    """A metric by head and share of unanswerable training rows."""
    rows, names = asked.of("silence share"), asked.names("silence share")
    means = rows.assign(share=rows["task"].map(share_of)).groupby(["normaliser", "share"])[metric].mean()
    table = means.unstack().sort_index(axis=1).reindex(names)
    return Taught(names, [float(str(share)) for share in table.columns], table.to_numpy(dtype=np.float64))


def grid_cells(asked: Asked) -> list[tuple[str, int]]:
    """Tasks and layers of the grid of places and pairs for which every head has rows, in its order."""
    heads = asked.of("mqar grid").groupby(["task", "layers"])["normaliser"].agg(set)
    found: dict[object, set[str]] = heads.to_dict()
    wanted = dict.fromkeys((setting.task, setting.shape.layers) for setting in claims("mqar grid"))
    return [cell for cell in wanted if found.get(cell, set()).issuperset(MQAR)]


def grid_rows(asked: Asked, name: str | None = None, cell: tuple[str, int] = MAIN_CELL) -> pd.DataFrame:
    """Rows of one task and number of layers of the grid of places and pairs."""
    rows = asked.of("mqar grid", name, task=cell[0])
    return rows[rows["layers"] == cell[1]]


def best_rate(asked: Asked, name: str, cell: tuple[str, int] = MAIN_CELL) -> tuple[float, Values]:
    """The learning rate of the most right answers in the grid of places and pairs, and these, by seed."""
    rows = grid_rows(asked, name, cell)
    rates = sorted(rows["rate"].unique())
    rate = float(max(rates, key=lambda one: float(rows.loc[rows["rate"] == one, "decoded"].mean())))
    return rate, rows[rows["rate"] == rate].sort_values("seed")["decoded"].to_numpy(dtype=np.float64)


def inner_text(inner: str, fir: bool) -> str:
    """LSSAR at p = 15 with another map than softplus inside."""
    return f"attention(head=reweight(inner={inner}, p=15), scores=cosine{', fir_taps=7' if fir else ''})"


def overflow(p: float, dtype: torch.dtype) -> float:
    """The largest x whose p-th power a type of numbers holds."""
    return float(torch.finfo(dtype).max ** (1 / p))
