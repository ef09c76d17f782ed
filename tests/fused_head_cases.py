"""Checks of the fused head, run as a script in a process of its own, as the interpreter is chosen at import.

`python fused_head_cases.py` prints one JSON object {name: findings}; test_fused_head.py asserts on them. With
TRITON_INTERPRET=1 the kernels run on the CPU; without, on the GPU, where there are more rows.
"""

import itertools
import json
import os

import torch
from torch.utils import deterministic

from stau_rl.heads import STau, log_s_tau
from stau_rl.heads.log_softplus import log_phi
from stau_rl.kernels import fused_head
from stau_rl.kernels.fused_head import fused_log_weights, head_log_weights, reference_log_weights
from stau_rl.modules import STauHead

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
MANY = 5 if INTERPRETED else 4099
ENTRIES = (1, 2, 7, 18, 63, 129, 257, 1024)
# Memory that torch hands out uninitialised is NaN, so that an element left unwritten shows.
deterministic.fill_uninitialized_memory = True


def example(rows, entries, *, masked, tau_shape, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(rows, entries, generator=generator)
    mask = torch.rand(rows, entries, generator=generator) < 0.6 if masked else None
    if masked:
        scores = scores.masked_fill(~mask, float("nan"))
    tau = 1 + 4 * torch.rand(tau_shape, generator=generator)
    grad = torch.randn(rows, entries, generator=generator)
    return scores.to(DEVICE), tau.to(DEVICE), None if mask is None else mask.to(DEVICE), grad.to(DEVICE)


def outcome(function, scores, tau, mask, grad, eps, exact=False):
    """Log-weights and gradients, -inf and what is under the mask set to 0."""
    if exact:
        scores, tau, grad = scores.double(), tau.double(), grad.double()
    scores, tau = scores.detach().requires_grad_(), tau.detach().requires_grad_()
    if exact:
        out = log_s_tau(scores, tau.unsqueeze(-1) if tau.ndim else tau, eps, -1, mask)
    else:
        out = function(scores, tau, eps, mask)
    out = torch.where(out.isneginf(), 0.0, out)
    (out * grad).sum().backward()
    return [one.detach().double() for one in (out, scores.grad, tau.grad)]


def errors(entries, masked, per_row, eps, rows=MANY, scale=3.0):
    """Largest errors against float64, in the units that the module states."""
    case = example(rows, entries, masked=masked, tau_shape=(rows,) if per_row else (), scale=scale)
    exact = outcome(None, *case, eps, exact=True)
    found = {}
    for name, function in (("fused", fused_log_weights), ("reference", reference_log_weights)):
        out, grad_scores, grad_tau = outcome(function, *case, eps)
        tau = case[1].double().reshape(-1, 1)
        allowed = 3e-6 * tau + 4e-7 * exact[0].abs()
        largest = exact[1].abs().amax(-1, keepdim=True).clamp(min=1e-3)
        size = case[3].double().abs().sum(-1)
        size = size if per_row else size.sum()
        found[name] = {
            "log_weights": float(((out - exact[0]).abs() / allowed).max()),
            "scores": float(((grad_scores - exact[1]).abs() / largest).max()),
            "tau": float(((grad_tau - exact[2]).abs() / size).max()),
            "finite": bool(torch.stack([one.isfinite().all() for one in (out, grad_scores, grad_tau)]).all()),
        }
    return found


def extremes(eps):
    """Scores from -1e4 to 1e4, -inf, ties, a dominant entry; a fully masked row; a row of -inf alone."""
    rows = [
        [-1e4, 1e4, 0.0, -20.0],
        [-1e4, -1e4, -9999.0, -1e4],
        [-float("inf"), 1.0, 2.0, -float("inf")],
        [-30.0, -31.0, -90.0, -100.0],
        [5.0, 5.0, 5.0, 5.0],
        [88.0, -88.0, 0.0, 1e-30],
        [-float("inf")] * 4,
        [1.0, 2.0, 3.0, 4.0],
    ]
    scores = torch.tensor(rows, device=DEVICE)
    mask = torch.ones_like(scores, dtype=torch.bool)
    mask[-1] = False
    tau, grad = torch.full((), 3.0, device=DEVICE), torch.tensor([0.5, -1.0, 2.0, 0.25], device=DEVICE).expand(8, 4)
    ours = outcome(fused_log_weights, scores, tau, mask, grad, eps)
    exact = outcome(None, scores, tau, mask, grad, eps, exact=True)
    level = log_phi(torch.where(scores.isneginf(), 0.0, scores).double(), eps).abs()
    worst = (ours[0] - exact[0]).abs() / (3e-6 * 3 + 4e-7 * (exact[0].abs() + 3 * level))
    return {
        "log_weights": worst.amax(-1).tolist(),
        "scores": (ours[1] - exact[1]).abs().amax(-1).tolist(),
        "tau": [ours[2].item(), exact[2].item()],
        "masked": ours[0][-1].tolist() + ours[1][-1].tolist(),
        "finite": bool(ours[1].isfinite().all()),
    }


def half(dtype):
    scores, tau, mask, grad = example(MANY, 18, masked=True, tau_shape=())
    low = scores.to(dtype).requires_grad_()
    out = fused_log_weights(low, tau, mask=mask)
    torch.where(out.isneginf(), 0.0, out * grad).sum().backward()
    plain = outcome(fused_log_weights, low.detach().float(), tau, mask, grad, 1e-8)
    return {
        "dtypes": [str(out.dtype), str(low.grad.dtype)],
        "same": bool(torch.equal(torch.where(out.isneginf(), 0.0, out).double(), plain[0])),
        "grad": float((low.grad.double() - plain[1]).abs().max() / plain[1].abs().max()),
    }


def compiled():
    scores, tau, mask, grad = example(MANY, 18, masked=True, tau_shape=())
    graph = torch.compile(fused_log_weights, fullgraph=True, backend="aot_eager")
    pairs = zip(
        outcome(graph, scores, tau, mask, grad, 1e-8),
        outcome(fused_log_weights, scores, tau, mask, grad, 1e-8),
        strict=True,
    )
    return all(torch.equal(a, b) for a, b in pairs)


def shapes():
    found = {}
    for shape, tau_shape in (
        ((0, 5), ()),
        ((0, 5), (0,)),
        ((2, 3, 7), (3,)),
        ((2, 3, 7), (2, 1)),
        ((4, 6), (1,)),
        ((9,), ()),
    ):
        scores = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        tau = torch.full(tau_shape, 2.5, device=DEVICE)
        case = (scores, tau, None, torch.ones_like(scores).cumsum(-1))
        ours, theirs = outcome(fused_log_weights, *case, 1e-8), outcome(reference_log_weights, *case, 1e-8)
        pairs = list(zip(ours, theirs, strict=True))
        same = all(a.shape == b.shape and torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in pairs)
        found[f"{shape} {tau_shape}"] = same
    # Rows that do not lie one after the other, and a mask of one row for all.
    wide = torch.randn(6, 10, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    mask = torch.tensor([True, False, True, True, False], device=DEVICE)
    found["strided"] = torch.allclose(
        fused_log_weights(wide[:, ::2], torch.full((), 2.0, device=DEVICE), mask=mask).exp(),
        reference_log_weights(wide[:, ::2], torch.full((), 2.0, device=DEVICE), mask=mask).exp(),
        atol=1e-5,
    )
    return found


def module_uses_it():
    """The module takes the kernel for large batches on a GPU alone; the same answers either way."""
    seen = []
    real = fused_head.fused_log_weights
    fused_head.fused_log_weights = lambda *arguments: seen.append(arguments[0].shape) or real(*arguments)
    rows = fused_head.LARGE // 18 + 1
    scores = torch.randn(rows, 18, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    module = STauHead(3.0, shape=(1,)).to(DEVICE)
    large, small = module(scores), module(scores[:4])
    double = module(scores.double())
    fused_head.fused_log_weights = real
    plain = head_log_weights(STau(3.0), scores)
    return {
        "calls": len(seen),
        "wanted": 0 if INTERPRETED else 1,
        "agree": bool(
            torch.allclose(large[:4], small, atol=1e-5) and torch.allclose(large.double(), double, atol=1e-4)
        ),
        "plain": bool(torch.allclose(large, plain, atol=1e-5)),
    }


def repeats():
    """Two runs give the same bits, the sum for one tau included."""
    case = example(MANY * 40, 18, masked=False, tau_shape=())
    first, second = outcome(fused_log_weights, *case, 1e-8), outcome(fused_log_weights, *case, 1e-8)
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def main():
    torch.use_deterministic_algorithms(True)
    findings = {
        f"K={entries} {'masked' if masked else 'plain'} {'tau per row' if per_row else 'one tau'} eps={eps:g}": errors(
            entries, masked, per_row, eps
        )
        for entries, masked, per_row, eps in itertools.product(ENTRIES, (False, True), (False, True), (1e-8, 0.0))
    }
    for eps in (1e-8, 0.0, 0.1):
        findings[f"extremes eps={eps:g}"] = extremes(eps)
    findings["steep"] = errors(18, False, False, 1e-8, scale=30.0)
    for dtype in (torch.float16, torch.bfloat16):
        findings[str(dtype)] = half(dtype)
    findings |= {"compiled": compiled(), "shapes": shapes(), "module": module_uses_it(), "repeats": repeats()}
    print(json.dumps(findings))


if __name__ == "__main__":
    main()
