"""Accuracy of the Triton heads' device functions against float64, run as a script, as `triton_cases.py` is.

Prints one JSON object: the largest error of a weight for every head and kind of row, and the mean error of the
cumulative weights of ten arms at tau = 5.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl

from stau_rl.heads import parse_head
from stau_rl.kernels.gpu import heads as triton_heads
from stau_rl.kernels.gpu.bind import Scores, bind_head
from stau_rl.kernels.gpu.variant import Variant
from stau_rl.kernels.gpu.weights import head_weights

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
# The interpreter takes its time for every operation, however many rows there are.
ARMS, COUNT = ((3,), 20_000) if INTERPRETED else ((2, 3, 10), 200_000)
TAUS = (1, 2, 5, 20, 88.7, 100)
HEADS = (
    *(f"s_tau(tau={tau})" for tau in TAUS),
    *(f"s_tau(tau={tau}, eps=0)" for tau in TAUS),
    *(f"softmax(beta={beta})" for beta in (1, 5, 20, 64, 100)),
    *(f"escort(p={p})" for p in (0.5, 2, 20, 100)),
    *(f"clamp_power(tau={tau})" for tau in (0.5, 5, 15)),
    "softplus_norm",
    "sigmoid_norm",
)


@triton.jit
def weights_kernel(p_score, p_weight, rows, p, q, unit, middle, HEAD: tl.constexpr, V: tl.constexpr):
    BLOCK: tl.constexpr = V.block
    SLOTS: tl.constexpr = V.slots
    o_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    y = ()
    for j in tl.static_range(SLOTS):
        y = y + (tl.load(p_score + j * rows + o_row, mask=o_row < rows, other=0.0) * unit - middle,)
    weights = head_weights(y, tl.zeros_like(y[0]), o_row * 0, p, q, HEAD, V)
    for j in tl.static_range(SLOTS):
        tl.store(p_weight + j * rows + o_row, weights[j], mask=o_row < rows)


def weights(head, scores, centred=False):
    """Normalised weights, float64 [arms, rows] on DEVICE, of float32 scores; `centred` says that each row reaches 0."""
    low, high = float(scores.min()), float(scores.max())
    found = bind_head(head, Scores(min(low, 0.0), high, centred) if centred else Scores(low, high), 100)
    block = 1 << 15 if INTERPRETED else 128
    variant = Variant(
        len(scores), len(scores), block=block, form=found.form, whole=found.whole, reaches_zero=found.reaches_zero,
    )  # fmt: skip
    given = torch.as_tensor(scores, dtype=torch.float32, device=DEVICE).contiguous()
    answer = torch.full_like(given, float("nan"))
    rows = given.shape[1]
    p, q = found.parameters.p * found.units[0], found.parameters.q * found.units[1]
    weights_kernel[(-(-rows // block),)](
        given, answer, rows, p, q, found.unit, found.middle, HEAD=getattr(triton_heads, found.device), V=variant
    )
    answer = answer.double()
    return answer / answer.sum(0), found


def error(head, scores, centred=False):
    scores = np.asarray(scores, dtype=np.float32)
    ours, _ = weights(head, scores, centred)
    exact = head.weights(torch.as_tensor(scores, device=DEVICE).double(), dim=0)
    return float((ours - exact).abs().max())


def rows(k, count, reach, rng):
    """Rows of scores in [-reach, reach] at every distance from one another, and a grid of pairs."""
    centre = rng.uniform(-reach, reach, count)
    spread = 10.0 ** rng.uniform(-3, 2, count)
    return np.clip(centre + spread * rng.normal(size=(k, count)), -reach, reach)


def sweep():
    found = {}
    for text in HEADS:
        head, rng = parse_head(text), np.random.default_rng(1)
        wide = max(error(head, rows(k, COUNT, 60.0, rng)) for k in ARMS)
        near = max(error(head, rows(k, COUNT, 3.0, rng)) for k in ARMS)
        # Rows with a mean of 0, as centred scores have; within the range where the direct form is chosen.
        centred = rows(ARMS[-1], COUNT, 15.0, rng)
        found[text] = {"wide": wide, "near": near, "centred": error(head, centred - centred.mean(0), centred=True)}
    return found


def golden():
    """Largest error over the exact rows of every head."""
    data = json.loads((Path(__file__).parent / "data" / "golden_heads.json").read_text())
    rows = [("s_tau", f"s_tau(tau={row['tau']}, eps={row['eps']})", row, row["weights"]) for row in data["s_tau"]]
    others = {
        "softmax_beta2": "softmax(beta=2)",
        "escort_p3": "escort(p=3)",
        "softplus_norm": "softplus_norm",
        "sigmoid_norm": "sigmoid_norm",
    }
    rows += [(key, text, row, row[key]) for row in data["other_heads"] for key, text in others.items()]
    groups = {}
    for name, text, row, exact in rows:
        groups.setdefault((name, text, len(exact)), []).append((row["scores"], exact))
    found = {}
    for (name, text, _), members in groups.items():
        scores, exact = (
            torch.tensor(column, dtype=torch.float64, device=DEVICE).T for column in zip(*members, strict=True)
        )
        ours, _ = weights(parse_head(text), scores.cpu().numpy())
        # Scores that float32 cannot hold are other scores: the weights of the rounded ones are what can be asked for.
        rounded = parse_head(text).weights(scores.float().double(), dim=0)
        exact = torch.where((scores == scores.float()).all(0), exact, rounded)
        found[name] = max(found.get(name, 0.0), float((ours - exact).abs().max()))
    return found


def mean_cdf_error():
    """Of s^tau at K = 10, tau = 5 on centred scores."""
    scores = np.random.default_rng(3).normal(size=(10, 4_000 if INTERPRETED else 1_000_000)).astype(np.float32)
    scores -= scores.mean(0)
    head = parse_head("s_tau(tau=5)")
    ours, found = weights(head, scores, centred=True)
    exact = head.weights(torch.as_tensor(scores, device=DEVICE).double(), dim=0)
    return {"form": found.form, "mean": float((ours.cumsum(0) - exact.cumsum(0)).abs().mean())}


def extreme():
    """Share of finite weights of rows whose scores are huge, of one sign or all zero, and whether zeros are uniform."""
    tail = np.array([[-1e4, 1e4, 0.0, -1e4, 1e4], [-1e4, -1e4, 0.0, 1e4, 1e4], [-99.0, 0.5, 0.0, -9999.5, 9e3]])
    finite = {text: bool(weights(parse_head(text), tail)[0].isfinite().all()) for text in HEADS}
    zeros, _ = weights(parse_head("escort(p=3)"), np.zeros((3, 4)))
    return {"finite": finite, "uniform": float((zeros - 1 / 3).abs().max())}


if __name__ == "__main__":
    torch.set_num_threads(1)
    json.dump({"sweep": sweep(), "golden": golden(), "cdf": mean_cdf_error(), "extreme": extreme()}, sys.stdout)
