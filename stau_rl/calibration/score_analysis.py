"""What replacing one head by another would do to anyone's attention: weights before and after, tau* of every head.

>>> import torch
>>> import stau_rl
>>> scores = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
>>> table = stau_rl.analyse(scores, causal=True)
>>> print(table.query("layer == 0 and head == 0")[["weights", "tau", "kl", "entropy"]].round(3).to_string(index=False))
     weights   tau    kl  entropy
     softmax   NaN 0.000    1.005
s_tau_closed 1.543 0.015    1.036
    s_tau_kl 1.604 0.015    1.020
"""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.calibration.score_files import ScoreFile
from stau_rl.calibration.score_kinds import Drawn
from stau_rl.calibration.score_pairs import pair_rows, tau_rows
from stau_rl.calibration.score_source import KEPT, LOOKS_MASKED, Place, Source, drawn_rows
from stau_rl.calibration.tau_problem import Each, in_turn
from stau_rl.heads import Head, parse_head
from stau_rl.heads.base import require_finite
from stau_rl.heads.s_tau import EPS
from stau_rl.machine.report import Report
from stau_rl.machine.threads import on_all_cores, one_torch_thread

ALL = "all"
"""Layer and head of the row in which all heads are pooled."""


def analyse(
    scores: Tensor | NDArray[np.floating] | ScoreFile,
    mask: Tensor | NDArray[np.bool_] | None = None,
    *,
    causal: bool = False,
    eps: float = EPS,
    masked_below: float | None = None,
    report: Report | None = None,
    head: Head | str = "softmax",
    against: Head | str | None = None,
    rows: int | None = None,
    seed: int = 0,
    pooled: bool = False,
) -> pd.DataFrame:
    """Per attention head: tau*, the divergence it leaves, and what the weights look like before and after.

    Args:
        scores: attention scores before softmax, any floating-point dtype: [layers, heads, queries, keys];
            [heads, queries, keys], of layer 0; or [queries, keys], of its head 0. Computed in float64, some rows at a
            time. A score of -inf is masked. `stau_rl.calibration.score_files.open_scores` reads them from a file bit by
            bit.
        mask: boolean, True where a query may look at a key; broadcasts against the scores. None for all.
        causal: query i of Q may look at keys up to i + K - Q only, besides what `mask` says.
        eps: floor of s^tau's map.
        masked_below: scores lower than this are masked, for scores whose mask is a large negative number, such as -1e4;
            None masks none of them.
        report: called with a text, what is done and what there is to do.
        head: the head that the model has, or its text.
        against: the head that would replace it; None for s^tau at the tau* of softmax.
        rows: draw so many queries of each head, and give intervals; None for all.
        seed: of that draw.
        pooled: end with all heads as one, `all` in the place of their numbers: one tau for all.

    Returns:
        Without `against` three rows per layer and head: `weights` is `softmax`, `s_tau_closed` (s^tau at the closed
        form of tau*, one tau for all rows of the head) or `s_tau_kl` (at the tau of least divergence). Columns `tau`;
        `kl`, the mean KL(softmax || weights) over the rows, nats; `entropy`, mean over the rows, nats; `sparsity`, the
        share of unmasked weights below 1e-6; `top10_mass`, the mean mass of a row's ten largest weights; `sink_rate`,
        the share of rows with more than 0.3 on the first key; `mean_weight` over all unmasked weights; `rows`, how many
        have a key. NaN where a head has no row, and for the tau of a head whose rows are all flat.

        With it, a column `role`: `reference` is the head, `given` what replaces it, and `as sharp` the latter with its
        sharpness set so that the mean entropy is that of the head; this row is missing where the replacement has no
        such parameter or either's weights need not sum to 1, and NaN where no value will do. Instead of `tau` and `kl`
        there are `kl`, KL(reference || weights), and `distance`, half the sum of absolute differences; `mass`, the mean
        sum of a row; and `silent`, the share of rows with mass below 1e-6. `kl`, `distance` and `entropy` are those of
        shares, weights over their sum, which silent rows have not. `kl` is inf where the replacement gives nothing to a
        key that the head gives something.

        With `rows`, two more columns for every number, such as `kl_low` and `kl_high`: the 95 % interval that the draw
        of rows leaves, about the number that all rows of the head would give.

    Raises:
        ValueError: scores of another number of axes or dtype, NaN or +inf where unmasked, a mask that does not fit, an
            argument that is out of range, a head that does not parse or that changes with t.

    Warns:
        UserWarning: unmasked scores lie below -1000, which softmax does not see but tau* does.

    Examples:
        >>> import torch
        >>> import stau_rl
        >>> scores = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> table = stau_rl.analyse(scores, causal=True)
        >>> table.query("layer == 0 and head == 0")["tau"].round(3).tolist()
        [nan, 1.543, 1.604]
        >>> table = stau_rl.analyse(scores[0, 0], against="sparsemax")
        >>> table[["role", "weights", "distance"]].round(3).values.tolist()
        [['reference', 'softmax(beta=1)', 0.0], ['given', 'sparsemax', 0.439]]
    """
    source = Source(*_checked(scores, mask), causal, _bound(masked_below))
    require_finite("analyse", "eps", eps, low=0.0)
    ours, theirs = _head("head", head), None if against is None else _head("against", against)
    if theirs is None and str(ours) != str(parse_head("softmax")):
        raise ValueError(f"head={head!r} needs a head that it is compared with; name one with against (--against)")
    if rows is not None and rows < 2:
        raise ValueError(f"rows must be at least 2, got {rows}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    wanted = source.queries if rows is None else min(rows, source.queries)
    known: dict[Place, Tensor] = {}
    table: list[dict[str, Any]] = []
    suspects, counted, lowest = 0, 0, 0.0
    total = len(source.places) + (pooled and 1)
    # A part is too small for several threads, which would wait for one another wherever a core is busy.
    with one_torch_thread():
        for number, place in enumerate(source.places):
            if report is not None:
                report("analysing", number, total)
            some = torch.arange(source.queries) if rows is None else drawn_rows(source.queries, wanted, seed, number)
            look = source.look(place, some, _each(len(some) * source.keys))
            suspects, counted = suspects + look.suspects, counted + look.counted
            lowest = min(lowest, look.lowest)
            known[place] = look.alive
            table += _rows_of(source, place, {place: look.alive}, rows and wanted, eps, ours, theirs)
        if pooled:
            if report is not None:
                report("all heads", total - 1, total)
            table += _rows_of(source, (ALL, ALL), known, rows and wanted, eps, ours, theirs)
    if suspects:
        warnings.warn(
            f"{suspects} of {counted} unmasked scores lie below {LOOKS_MASKED:g}, down to {lowest:.3g}, and look "
            f"masked: tau* counts them. Leave them out with masked_below={LOOKS_MASKED:g} (--masked-below "
            f"{LOOKS_MASKED:g} on the command line), or give a mask",
            stacklevel=2,
        )
    return pd.DataFrame(table)


def _rows_of(
    source: Source,
    place: tuple[Any, Any],
    rows: Mapping[Place, Tensor],
    wanted: int | None,
    eps: float,
    head: Head,
    against: Head | None,
) -> Iterator[dict[str, Any]]:
    """The rows of the table on some heads, which are one to it."""
    parts = source.parts(rows, eps)
    drawn = None
    if wanted is not None:
        sizes = tuple(map(len, rows.values()))
        drawn = Drawn(sizes, (wanted / source.queries,) * len(sizes))
    named = {"layer": place[0], "head": place[1]}
    count = sum(map(len, rows.values()))
    each = _each(count * source.keys)
    found = tau_rows(parts, eps, drawn, each) if against is None else pair_rows(parts, head, against, drawn, each)
    for row in found:
        yield named | row | {"rows": count}


def _each(entries: int) -> Each:
    """How parts are worked on: threads pay where what each does between two looks at Python's lock is long enough."""
    return on_all_cores if entries > KEPT else in_turn


def _checked(scores: Any, mask: Any) -> tuple[Any, Any]:
    """Scores and mask with all four axes."""
    if not isinstance(scores, ScoreFile):
        scores = scores if isinstance(scores, Tensor) else np.asarray(scores)
        if not (scores.is_floating_point() if isinstance(scores, Tensor) else scores.dtype.kind == "f"):
            raise ValueError(f"scores must be floating-point numbers, got {scores.dtype}")
        if not 2 <= scores.ndim <= 4 or 0 in scores.shape:
            raise ValueError(
                "scores must be [layers, heads, queries, keys], [heads, queries, keys] or [queries, keys] without "
                f"empty axes, got shape {list(scores.shape)}"
            )
        scores = scores[(None,) * (4 - scores.ndim)]
    mask = np.ones((), dtype=bool) if mask is None else mask if isinstance(mask, Tensor) else np.asarray(mask)
    if mask.dtype not in (torch.bool, np.bool_):
        raise ValueError(f"mask must be boolean (True: the entry counts), got {mask.dtype}")
    try:
        return scores, mask.expand(scores.shape) if isinstance(mask, Tensor) else np.broadcast_to(mask, scores.shape)
    except (RuntimeError, ValueError):
        raise ValueError(f"a mask of shape {list(mask.shape)} does not fit scores {list(scores.shape)}") from None


def _bound(masked_below: float | None) -> float | None:
    if masked_below is not None and not math.isfinite(masked_below):
        raise ValueError(f"masked_below must be finite or None, got {masked_below!r}")
    return masked_below


def _head(name: str, head: Head | str) -> Head:
    found = parse_head(head) if isinstance(head, str) else head
    if found.schedules:
        raise ValueError(f"{name}={found} changes with t; give head.at(t), the head of one step")
    return found
