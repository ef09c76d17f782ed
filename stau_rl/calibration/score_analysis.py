"""What replacing softmax by s^tau would do to anyone's attention: tau* of every head, its weights before and after.

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
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.calibration import tau_star
from stau_rl.files.archives import DAMAGED
from stau_rl.heads import Softmax, log_s_tau
from stau_rl.heads.s_tau import EPS
from stau_rl.machine.report import Report

SPARSE, SINK, TOP = 1e-6, 0.3, 10
LOOKS_MASKED = -1000.0
"""Unmasked scores below this look like somebody's mask: -1e4, float16's -65504, finfo.min, or one added to scores."""
DESCRIBED = ("entropy", "sparsity", "top10_mass", "sink_rate", "mean_weight")


def analyse(
    scores: Tensor | NDArray[np.floating],
    mask: Tensor | NDArray[np.bool_] | None = None,
    *,
    causal: bool = False,
    eps: float = EPS,
    masked_below: float | None = None,
    report: Report | None = None,
) -> pd.DataFrame:
    """Per attention head: tau*, the divergence it leaves, and what the weights look like before and after.

    Args:
        scores: attention scores before softmax, [layers, heads, queries, keys], any floating-point dtype; computed in
            float64, a head at a time, of which a copy is made. A score of -inf is masked.
        mask: boolean, True where a query may look at a key; broadcasts against the scores. None for all.
        causal: query i of Q may look at keys up to i + K - Q only, besides what `mask` says.
        eps: floor of s^tau's map.
        masked_below: scores lower than this are masked, for scores whose mask is a large negative number, such as -1e4;
            None masks none of them.
        report: called with a text, what is done and what there is to do.

    Returns:
        Three rows per layer and head: `weights` is `softmax`, `s_tau_closed` (s^tau at the closed form of tau*, one tau
        for all rows of the head) or `s_tau_kl` (at the tau of least divergence). Columns `tau`; `kl`, the mean
        KL(softmax || weights) over the rows, nats; `entropy`, mean over the rows, nats; `sparsity`, the share of
        unmasked weights below 1e-6; `top10_mass`, the mean mass of a row's ten largest weights; `sink_rate`, the share
        of rows with more than 0.3 on the first key; `mean_weight` over all unmasked weights; `rows`, how many have a
        key. NaN where a head has no row, and for the tau of a head whose rows are all flat.

    Raises:
        ValueError: scores of another number of axes or dtype, NaN or +inf where unmasked, a mask that does not fit,
            `masked_below` that is not finite.

    Warns:
        UserWarning: unmasked scores lie below -1000, which softmax does not see but tau* does.

    Examples:
        >>> import torch
        >>> import stau_rl
        >>> scores = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        >>> table = stau_rl.analyse(scores, causal=True)
        >>> table.query("layer == 0 and head == 0")["tau"].round(3).tolist()
        [nan, 1.543, 1.604]
    """
    scores = scores if isinstance(scores, Tensor) else np.asarray(scores)
    mask = np.ones((), dtype=bool) if mask is None else mask if isinstance(mask, Tensor) else np.asarray(mask)
    if not (scores.is_floating_point() if isinstance(scores, Tensor) else scores.dtype.kind == "f"):
        raise ValueError(f"scores must be floating-point numbers, got {scores.dtype}")
    if scores.ndim != 4 or 0 in scores.shape:
        raise ValueError(
            f"scores must be [layers, heads, queries, keys] without empty axes, got shape {list(scores.shape)}"
        )
    if masked_below is not None and not math.isfinite(masked_below):
        raise ValueError(f"masked_below must be finite or None, got {masked_below!r}")
    layers, heads, queries, keys = scores.shape
    if mask.dtype not in (torch.bool, np.bool_):
        raise ValueError(f"mask must be boolean (True: the entry counts), got {mask.dtype}")
    try:
        keep = mask.expand(scores.shape) if isinstance(mask, Tensor) else np.broadcast_to(mask, scores.shape)
    except (RuntimeError, ValueError):
        raise ValueError(f"a mask of shape {list(mask.shape)} does not fit scores {list(scores.shape)}") from None
    below = (
        torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) if causal else torch.ones((), dtype=torch.bool)
    )
    rows = []
    suspects, counted_all, lowest = 0, 0, 0.0
    for layer in range(layers):
        for head in range(heads):
            if report is not None:
                report("analysing", layer * heads + head, layers * heads)
            part = _copy(scores[layer, head], torch.float64)
            counted = _copy(keep[layer, head], torch.bool) & below & ~torch.isneginf(part)
            if masked_below is not None:
                # What is NaN is not lower, and is reported.
                counted = counted & ~(part < masked_below)
            bad = int((counted & ~torch.isfinite(part)).sum())
            if bad:
                raise ValueError(f"scores of layer {layer}, head {head} hold {bad} NaN or +inf where unmasked")
            suspect = counted & (part < LOOKS_MASKED)
            suspects, counted_all = suspects + int(suspect.sum()), counted_all + int(counted.sum())
            lowest = min(lowest, float(torch.where(suspect, part, 0.0).min()))
            rows += [{"layer": layer, "head": head} | row for row in _head(part, counted, eps)]
    if suspects:
        warnings.warn(
            f"{suspects} of {counted_all} unmasked scores lie below {LOOKS_MASKED:g}, down to {lowest:.3g}, and look "
            f"masked: tau* counts them. Leave them out with masked_below={LOOKS_MASKED:g} (--masked-below "
            f"{LOOKS_MASKED:g} on the command line), or give a mask",
            stacklevel=2,
        )
    return pd.DataFrame(rows)


def _copy(values: Tensor | NDArray[Any], dtype: torch.dtype) -> Tensor:
    """A tensor of its own on the CPU: arrays may be read-only, reversed, or of another byte order."""
    if isinstance(values, Tensor):
        return values.detach().to("cpu", dtype, copy=True)
    return torch.from_numpy(np.array(values, dtype=np.bool_ if dtype == torch.bool else np.float64))


def _head(scores: Tensor, mask: Tensor, eps: float) -> list[dict[str, object]]:
    alive = mask.any(-1)
    scores, mask = scores[alive], mask[alive]
    names = ("softmax", "s_tau_closed", "s_tau_kl")
    if not len(scores):
        numbers = ("tau", "kl", *DESCRIBED)
        return [{"weights": name, **dict.fromkeys(numbers, np.nan), "rows": 0} for name in names]
    found = tau_star(scores, mask=mask, eps=eps, pool="all", clamp=True)
    answer: list[dict[str, object]] = []
    for name, tau, kl in (
        ("softmax", np.nan, 0.0),
        ("s_tau_closed", float(found.closed_form), float(found.kl_closed_form)),
        ("s_tau_kl", float(found.newton), float(found.kl_newton)),
    ):
        if name == "softmax":
            weights = Softmax().weights(scores, mask=mask)
        else:
            # Rows that are flat are uniform under any tau.
            weights = log_s_tau(scores, 1.0 if np.isnan(tau) else tau, eps, mask=mask).exp()
        answer.append({"weights": name, "tau": tau, "kl": kl} | describe(weights, mask) | {"rows": len(scores)})
    return answer


def describe(weights: Tensor, mask: Tensor) -> dict[str, float]:
    """Entropy, sparsity, top-10 mass, sink rate and mean weight of rows [rows, keys]; see `analyse`.

    Args:
        weights: non-negative, 0 under the mask.
        mask: boolean, in their shape; every row has an entry that counts.
    """
    counted = weights[mask]
    return {
        "entropy": float(torch.special.entr(weights).sum(-1).mean()),
        "sparsity": float((counted < SPARSE).double().mean()),
        "top10_mass": float(weights.topk(min(TOP, weights.shape[-1]), -1).values.sum(-1).mean()),
        "sink_rate": float((weights[:, 0] > SINK).double().mean()),
        "mean_weight": float(counted.mean()),
    }


def read_scores(path: Path, key: str | None = None) -> tuple[NDArray[np.floating], NDArray[np.bool_] | None]:
    """Scores and mask from an .npz file.

    Args:
        path: a file of `numpy.savez`.
        key: name of the array of scores; None for `scores`, or the only array besides `mask`.

    Returns:
        The scores, and the array `mask` or None.

    Raises:
        ValueError: the file is missing, is no .npz file, or has no such array; the message says which.
    """
    try:
        # A file of our own, as numpy leaves its one open where it cannot read it.
        with path.open("rb") as handle:
            try:
                file = np.load(handle, allow_pickle=False)
            except ValueError:
                raise BadZipFile from None
            return _from_archive(path, key, file)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except (EOFError, BadZipFile):
        raise ValueError(f"{path} is no .npz file, as numpy.savez writes") from None


def _from_archive(path: Path, key: str | None, file: Any) -> tuple[NDArray[np.floating], NDArray[np.bool_] | None]:
    if isinstance(file, np.ndarray):
        raise ValueError(f"{path} is a single array; save it with numpy.savez(path, scores=array)")
    names = [name for name in file.files if name != "mask"]
    wanted = key if key is not None else "scores" if "scores" in names or len(names) != 1 else names[0]
    if wanted not in file.files:
        there = ", ".join(file.files) or "none"
        raise ValueError(f"{path} has no array {wanted!r} (arrays: {there}); name one with --key")
    scores = _member(path, file, wanted)
    mask = _member(path, file, "mask") if "mask" in file.files else None
    if scores.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        raise ValueError(f"{path}: {wanted} must be float16, float32 or float64, got {scores.dtype}")
    if mask is not None and mask.dtype != np.bool_:
        raise ValueError(f"{path}: mask must be boolean (True: the entry counts), got {mask.dtype}")
    return scores, mask


def _member(path: Path, file: Any, name: str) -> NDArray[Any]:
    try:
        array = file[name]
    except DAMAGED as error:
        raise ValueError(f"{path}: {name} cannot be read: {' '.join(str(error).split())}") from None
    # What is no array comes back as bytes.
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path}: {name} is no array, as numpy.savez writes")
    return array
