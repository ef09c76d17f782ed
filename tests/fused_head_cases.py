"""Checks of the fused head, run as a script in a process of its own, as the interpreter is chosen at import.

`python fused_head_cases.py PART PARTS` prints one JSON object {name: findings} of every PARTS-th check from PART on;
test_fused_head.py asserts on them. With TRITON_INTERPRET=1 the kernels run on the CPU; without, on the GPU, where there
are more rows. `compile` as an argument compiles them for a GPU that need not be there, `launches` compares what the
driver of such a GPU is handed.
"""

import itertools
import json
import os
import sys
from functools import partial

import torch
from torch.utils import deterministic

from stau_rl.heads import STau, log_s_tau
from stau_rl.heads.log_softplus import log_phi
from stau_rl.kernels.gpu import fused_head
from stau_rl.kernels.gpu import launch as triton_launch
from stau_rl.kernels.gpu.fused_head import fused_log_weights, head_log_weights, reference_log_weights
from stau_rl.nn.head_module import STauHead

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
FEW = 5
MANY = FEW if INTERPRETED else 4099
# Rows of one piece and of two: 10 = 8 + 2, 18 = 16 + 2, 129 = 128 + 1.
ENTRIES = (1, 2, 7, 10, 18, 63, 129, 257, 1024)
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
        # The size of what a gradient is the difference of. In a row whose gradients cancel float32 has no digits left
        # to be judged by the largest of them: on 4099 rows of two entries the reference too is beyond 3e-5.
        counted = torch.ones_like(case[0], dtype=torch.bool) if case[2] is None else case[2]
        size = torch.where(counted, case[3].double().abs(), 0.0)
        parts = torch.where(counted, size + exact[0].exp() * size.sum(-1, keepdim=True), 0.0)
        working = torch.where(counted, case[0].double(), 0.0)
        slope = torch.sigmoid(working) / (torch.nn.functional.softplus(working) + eps)
        unit = (tau * slope * parts).amax(-1, keepdim=True).clamp(min=1e-30)
        judged = torch.ones_like(unit, dtype=torch.bool) if rows <= FEW else unit <= 3 * largest
        error = (grad_scores - exact[1]).abs()
        size = size.sum(-1).clamp(min=1e-30)
        size = size if per_row else size.sum()
        found[name] = {
            "log_weights": float(((out - exact[0]).abs() / allowed).max()),
            "scores": float(torch.where(judged, error / largest, 0.0).max()),
            "scores_of_parts": float((error / unit).max()),
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


def combinations():
    """Length, mask, tau per row, eps of `errors`."""
    for entries, masked, per_row, exact in itertools.product(ENTRIES, *[(False, True)] * 3):
        yield entries, masked, per_row, 0.0 if exact else 1e-8


def alignments():
    """Scores that begin where no multiple of 16 bytes is, or whose rows are a multiple of 16; twice each, in turns."""
    found = []
    for rows, start in 2 * ((MANY, 1), (MANY // 16 * 16 + 16, 0), (MANY, 0)):
        scores, tau, _, grad = example(rows, 18, masked=False, tau_shape=())
        moved = torch.cat([scores.new_zeros(start), scores.flatten()])[start:].view_as(scores)
        assert (moved.data_ptr() % 16 == 0) == (start == 0)
        pairs = zip(
            outcome(fused_log_weights, moved, tau, None, grad, 1e-8),
            outcome(None, scores, tau, None, grad, 1e-8, exact=True),
            strict=True,
        )
        found.append(all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in pairs))
    return found


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
        ((4, 7), (1,)),
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
    wide = torch.randn(6, 20, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    mask = torch.tensor([True, False, True, True, False], device=DEVICE).repeat(2)
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
            torch.allclose(large[:4], small, atol=5e-5) and torch.allclose(large.double(), double, atol=1e-4)
        ),
        "plain": bool(torch.allclose(large, plain, atol=1e-5)),
    }


def repeats():
    """Two runs give the same bits, the sum for one tau included."""
    case = example(MANY * 40, 18, masked=False, tau_shape=())
    first, second = outcome(fused_log_weights, *case, 1e-8), outcome(fused_log_weights, *case, 1e-8)
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def derivatives():
    """Beyond the first gradient and through torch.func, against the reference in float64: largest relative errors."""
    scores, _, mask, grad = example(3, 5, masked=True, tau_shape=())
    tau = torch.tensor([1.5, 2.5, 4.0], device=DEVICE)

    def value(function, s, t, m, g):
        out = function(s, t, 1e-8, m)
        return (torch.where(out.isneginf(), 0.0, out).exp() * g.to(s.dtype)).square().sum()

    def error(make):
        ours, theirs = (
            make(partial(value, function), *(one.to(dtype).requires_grad_() for one in (scores, tau)))
            for function, dtype in ((fused_log_weights, torch.float32), (reference_log_weights, torch.float64))
        )
        pairs = zip(ours, theirs, strict=True)
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)

    def twice(f, s, t):
        first = torch.autograd.grad(f(s, t, mask, grad), (s, t), create_graph=True)
        return torch.autograd.grad(sum(one.square().sum() for one in first), (s, t))

    def mapped_backward(f, s, t):
        out = f(s, t, *whole)
        return func.vmap(partial(torch.autograd.grad, out, (s, t), retain_graph=True))(out.new_tensor([1.0, -2.0]))

    whole = (mask, grad)
    func = torch.func
    return {
        "twice": error(twice),
        "grad": error(lambda f, s, t: func.grad(f, (0, 1))(s, t, *whole)),
        "hessian": error(lambda f, s, t: (func.hessian(f)(s, t, *whole), func.hessian(f, 1)(s, t, *whole))),
        "vmap": error(lambda f, s, t: (func.vmap(f)(s, t, *whole),)),
        "vmap of tau": error(lambda f, s, t: (func.vmap(f, (None, 0, None, None))(s, t, *whole),)),
        "vmap of grad": error(lambda f, s, t: func.vmap(func.grad(f, (0, 1)))(s, t, *whole)),
        "grad of vmap": error(lambda f, s, t: func.grad(lambda *a: func.vmap(f)(*a).sum(), (0, 1))(s, t, *whole)),
        "vmap of hessian": error(lambda f, s, t: (func.vmap(func.hessian(f))(s, t, *whole),)),
        "vmap of backward": error(mapped_backward),
    }


def compile_for_hopper():
    """Names of the variants that compile for compute capability 9.0."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_kernel

    from stau_rl.kernels.gpu import fused_head_kernels as kernels

    done = []
    for kernel, extra in ((kernels.log_s_tau_fwd_kernel, {}), (kernels.log_s_tau_bwd_kernel, {"NEEDS_TAU": True})):
        for entries, special in ((18, False), (18, True), (1024, False)):
            sizes = fused_head._grid(1 << 20, entries)[1]
            warps = sizes.pop("num_warps")
            constants = {**sizes, "HAS_MASK": special, "TAU_PER_ROW": special, "EXACT_TAIL": special, **extra}
            kinds = {"rows": "i32", "floor": "fp32", "p_mask": "*u8", **dict.fromkeys(constants, "constexpr")}
            if special:
                kinds |= {"p_scores": "*bf16", "p_grad_scores": "*bf16"}
            signature = {name: kinds.get(name, "*fp32") for name in kernel.arg_names}
            places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
            source = ASTSource(fn=kernel, signature=signature, constexprs=places)
            compiled = compile_kernel(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
            done.append(f"{compiled.metadata.name} {entries} {special}")
    return done


class RecordingDriver:
    """A GPU of compute capability 9.0 that notes what it is asked to launch."""

    def __init__(self):
        from triton.backends.compiler import GPUTarget

        self.target, self.launched, self.utils, self.kernels = GPUTarget("cuda", 90, 32), [], self, []

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 7

    def get_device_properties(self, device):
        return {"max_shared_mem": 232_448}

    def load_binary(self, name, kernel, shared, device):
        self.kernels.append(kernel)
        return "module", len(self.kernels), 32, 0, 1024

    def launcher_cls(self, source, metadata):
        def launch(*arguments):
            # All but the seventh, which is made for hooks at each call.
            kept = arguments[:6] + arguments[7:]
            plain = [one.data_ptr() if isinstance(one, torch.Tensor) else one for one in kept]
            self.launched.append([(type(one), one) for one in plain])

        return launch


def launches():
    """Whether a remembered launch is, in each argument, the one that Triton makes of the same call."""
    from triton.runtime import driver

    driver.set_active(recording := RecordingDriver())
    remembered, found = fused_head._LAUNCHES, {}
    memory = torch.zeros(64 * 7 + 1)
    for rows, start, dtype, has_mask, per_row, eps in (
        (32, 0, torch.float32, False, False, 1e-8),
        (33, 0, torch.float32, False, False, 1e-8),
        (32, 1, torch.float32, False, False, 1e-8),
        (1, 0, torch.float32, False, False, 1e-8),
        (32, 0, torch.bfloat16, False, False, 1e-8),
        (32, 0, torch.float32, True, True, 0.0),
        (48, 0, torch.float32, False, False, 0.5),
    ):
        scores = memory.to(dtype)[start : start + 7 * rows].view(rows, 7)
        tau = torch.ones((rows,) if per_row else ())
        mask = torch.ones(rows, 7, dtype=torch.bool) if has_mask else None
        out, grad = torch.zeros(rows, 7), torch.zeros(rows, 7)
        p_mask = scores if mask is None else mask.view(torch.uint8)
        for name, tensors, more in (
            ("log_s_tau_fwd_kernel", (scores, tau, p_mask, out), {}),
            ("log_s_tau_bwd_kernel", (grad, scores, tau, p_mask, out, grad, tau), {"NEEDS_TAU": True}),
        ):
            recording.launched.clear()
            for fused_head._LAUNCHES in (remembered, remembered, triton_launch.Launches()):
                fused_head._launch(name, tensors, scores, tau, mask, eps, **more)
            first, second, ordinary = recording.launched
            case = f"{name} {rows} {start} {dtype} {has_mask}"
            found[case] = first == second == ordinary
    triton_launch.VERSIONS, fused_head._LAUNCHES = (), triton_launch.Launches()
    fused_head._run_forward(scores, tau, mask, eps)
    return {
        "same": found,
        "remembered": len(remembered._known),
        "kernels": len(recording.kernels),
        "other_version": len(fused_head._LAUNCHES._known),
    }


def checks():
    """Every check, by the name of what it finds."""
    for entries, masked, per_row, eps in combinations():
        name = f"{'masked' if masked else 'plain'} {'tau per row' if per_row else 'one tau'} eps={eps:g}"
        yield f"K={entries} {name}", partial(errors, entries, masked, per_row, eps)
    for eps in (1e-8, 0.0, 0.1):
        yield f"extremes eps={eps:g}", partial(extremes, eps)
    yield "steep", partial(errors, 18, False, False, 1e-8, scale=30.0)
    for dtype in (torch.float16, torch.bfloat16):
        yield str(dtype), partial(half, dtype)
    yield from {
        "compiled": compiled, "shapes": shapes, "module": module_uses_it, "repeats": repeats, "alignments": alignments,
        "derivatives": derivatives,
    }.items()  # fmt: skip


def main():
    if sys.argv[1] in ("compile", "launches"):
        print(json.dumps({"compile": compile_for_hopper, "launches": launches}[sys.argv[1]]()))
        return
    torch.use_deterministic_algorithms(True, warn_only=True)
    part, parts = map(int, sys.argv[1:])
    print(json.dumps({name: check() for name, check in list(checks())[part::parts]}))


if __name__ == "__main__":
    main()
