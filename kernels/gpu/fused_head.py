"""Log-weights of s^tau on rows of scores as one fused kernel each way, beside the plain reference.

    out = l - logsumexp(l), l = tau log(softplus(s) + eps)
    G = g - w sum(g), ds = tau G sigmoid(s) / (softplus(s) + eps), dtau = sum G log phi = sum(G out) / tau

per row, w = exp(out), g the gradient of out; the last step holds because sum G = 0. Bytes of device memory per float32
score: 8 forward, 16 backward (24 together), one more each way with a mask.

Accuracy against float64 (the tests' bounds): log-weights within 3e-6 tau + 4e-7 (|out| + tau |log phi|), gradients of
the scores within 1e-5 of the row's largest tau (|g| + w sum |g|) sigmoid(s) / (softplus(s) + eps) and, unless the row's
gradients cancel to less than a third of that, within 3e-5 of their largest; that of tau within 3e-6 of sum |g|. A run
repeats to the bit, as no sum is left to the order in which programs finish.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from stau_rl.heads import Head, STau
from stau_rl.heads.log_softplus import log_phi_forward
from stau_rl.heads.normalise import prepare
from stau_rl.heads.s_tau import EPS, log_s_tau_backward, log_s_tau_tangent, unchecked_log_s_tau
from stau_rl.kernels.gpu.launch import Launches

MAX_ENTRIES = 16_384
"""Longest row of the kernel."""
LARGE = 1 << 16
"""Number of scores from which a head uses the kernel."""
SMALLEST_EPS = 1e-30
# Padded scores of one program, and its warps: the fastest of `fused_head_speed --sweep` on an H200, 1 048 576 rows of
# 18 scores forward and backward. 1024 with 4 warps 138.2 us, 256 with 1 138.7, 512 with 2 138.9, 2048 with 8 139.4.
TILE = 1024
WARPS = 4
_LN_2 = math.log(2)
_LAUNCHES = Launches()
_HERE = nullcontext()


def reference_log_weights(scores: Tensor, tau: Tensor, eps: float = EPS, mask: Tensor | None = None) -> Tensor:
    """Log-weights of s^tau along the last axis, from plain tensor operations; see `fused_log_weights`."""
    working, mask = prepare(scores, mask)
    return unchecked_log_s_tau(working, tau.unsqueeze(-1) if tau.ndim else tau, eps, -1, mask)


def fused_log_weights(scores: Tensor, tau: Tensor, eps: float = EPS, mask: Tensor | None = None) -> Tensor:
    """Log-weights of s^tau along the last axis, forward and backward in one kernel each.

    Differentiable in the scores and in tau: the first gradient by the kernel, further ones, forward mode and what
    `torch.func` maps over by plain tensor operations; once inside `torch.compile`. Values are not checked.

    Args:
        scores: float32, float16 or bfloat16, [..., K], 1 <= K <= 16 384; computed in float32.
        tau: exponent >= 1, float32: one number [], or one per row, which broadcasts against [...].
        eps: floor of the map, 0 or at least 1e-30.
        mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.

    Returns:
        float32 log-weights in the shape of `scores`, -inf under the mask.

    Raises:
        ValueError: the kernel has no such dtype, length or eps, or tau or mask are on another device.
    """
    if problem := _problem(scores, eps):
        raise ValueError(problem)
    if tau.device != scores.device or (mask is not None and mask.device != scores.device):
        raise ValueError(f"tau and mask must be on the device of the scores, {scores.device}; move them there")
    tau = tau.float()
    if tau.ndim:
        tau = tau.expand(scores.shape[:-1]).contiguous()
    if mask is not None:
        mask = mask.expand(scores.shape).contiguous()
    run = _forward if torch.compiler.is_compiling() else _Fused.apply
    out: Tensor = run(scores.contiguous(), tau, mask, float(eps))
    return out


def head_log_weights(head: Head, scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Log-weights of any head along the last axis: by the kernel where it fits, else as the head computes them.

    It fits s^tau on a CUDA device with at least 65 536 scores. Values are not checked; arguments as in
    `Head.unchecked_log_weights`.
    """
    if isinstance(head, STau) and scores.is_cuda and scores.numel() >= LARGE and _problem(scores, head.eps) is None:
        tau: Any = head.tau
        if not isinstance(tau, Tensor):
            tau = torch.full((), float(tau), device=scores.device)
        # A bound tensor has size 1 along the entries.
        tau = tau.squeeze(-1) if tau.ndim else tau
        fits = _fits(tau, scores.device, scores.shape[:-1])
        if fits and (mask is None or _fits(mask, scores.device, scores.shape)):
            return fused_log_weights(scores, tau, head.eps, mask)  # type: ignore[arg-type]
    return head.unchecked_log_weights(scores, -1, mask)


def _fits(tensor: Tensor, device: torch.device, shape: torch.Size) -> bool:
    """Whether a tensor is there and broadcasts to a shape; `torch.broadcast_shapes` takes the host ten times longer."""
    pairs = zip(reversed(tensor.shape), reversed(shape), strict=False)
    return tensor.device == device and tensor.ndim <= len(shape) and all(a in (1, b) for a, b in pairs)


def _problem(scores: Tensor, eps: object) -> str | None:
    """Why the kernel cannot run this, or None."""
    if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"scores must be float32, float16 or bfloat16, got {scores.dtype}; the reference has float64"
    if scores.ndim == 0 or not 1 <= scores.shape[-1] <= MAX_ENTRIES:
        return f"scores must be [..., K] with 1 <= K <= {MAX_ENTRIES}, got {tuple(scores.shape)}"
    if not isinstance(eps, (int, float)) or not (eps == 0 or SMALLEST_EPS <= eps < math.inf):
        return f"eps must be a number, 0 or at least {SMALLEST_EPS:g}, got {eps!r}"
    return None


def _grid(rows: int, entries: int) -> tuple[int, dict[str, int]]:
    """Number of programs and the sizes of one."""
    padded = 1 << (entries - 1).bit_length()
    main, tail = padded, 0
    if entries < padded:
        half = padded // 2
        rest = 1 << (entries - half - 1).bit_length()
        # Two pieces pass sums between their layouts, which costs about a fifth.
        if half + rest <= 0.8 * padded:
            main, tail = half, rest
    height = max(1, TILE // main)
    sizes = {"K": entries, "ROWS": height, "MAIN": main, "TAIL": tail, "num_warps": 8 if main > 4096 else WARPS}
    return -(-rows // height), sizes


def _launch(
    name: str, tensors: Sequence[Tensor], scores: Tensor, tau: Tensor, mask: Tensor | None, eps: float, **more: bool
) -> None:
    """Launch the kernel of that name over the rows of contiguous scores and mask [..., K], tau [] or [...]."""
    device, entries = scores.get_device(), scores.shape[-1]
    rows = scores.numel() // entries
    if not rows:
        return
    has_mask, per_row, exact = mask is not None, tau.ndim > 0, eps == 0

    def prepare() -> tuple[Any, int, dict[str, Any], int]:
        from stau_rl.kernels.gpu import fused_head_kernels as triton_fused_head

        programs, sizes = _grid(rows, entries)
        warps = sizes.pop("num_warps")
        flags = {"HAS_MASK": has_mask, "TAU_PER_ROW": per_row, "EXACT_TAIL": exact, **more}
        return getattr(triton_fused_head, name), programs, {**sizes, **flags}, warps

    key = (name, device, rows, entries, scores.dtype, has_mask, per_row, exact, *more.values(), TILE, WARPS)
    with _on(device):
        _LAUNCHES(key, tensors, (rows, eps / _LN_2), prepare)


def _run_forward(scores: Tensor, tau: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    out = torch.empty_like(scores, dtype=torch.float32)
    p_mask = scores if mask is None else mask.view(torch.uint8)
    _launch("log_s_tau_fwd_kernel", (scores, tau, p_mask, out), scores, tau, mask, eps)
    return out


def _run_backward(
    grad: Tensor, scores: Tensor, tau: Tensor, mask: Tensor | None, out: Tensor, eps: float, needs_tau: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of scores and tau, the latter left unwritten where it is not needed."""
    grad_scores = torch.empty_like(scores)
    # One per row is the gradient itself; one per program is to be summed.
    summed = needs_tau and not tau.ndim
    entries = scores.shape[-1]
    parts = tau.new_empty(_grid(scores.numel() // entries, entries)[0]) if summed else torch.empty_like(tau)
    p_mask = scores if mask is None else mask.view(torch.uint8)
    tensors = (grad.contiguous(), scores, tau, p_mask, out, grad_scores, parts)
    _launch("log_s_tau_bwd_kernel", tensors, scores, tau, mask, eps, NEEDS_TAU=needs_tau)
    return grad_scores, parts.sum() if summed else parts


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    scores, tau, mask, ctx.eps = inputs
    ctx.save_for_backward(scores, tau, mask, output)


class _Fused(torch.autograd.Function):
    """The two kernels for eager code, as calling a custom op from Python takes longer than they do.

    They give log-weights and a gradient that ends there; whatever asks for more gets it from plain tensor operations.
    """

    @staticmethod
    def forward(scores: Tensor, tau: Tensor, mask: Tensor | None, eps: float) -> Tensor:
        return _run_forward(scores, tau, mask, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:3], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, tau, mask, out = ctx.saved_tensors
        needs_tau = ctx.needs_input_grad[1]
        if torch.is_grad_enabled() or torch.func.debug_unwrap(grad) is not grad:
            working, column, mask, dead = _plain(scores, tau, mask, ctx.eps)
            plain = log_s_tau_backward(grad, working, column, ctx.eps, -1, mask, out, dead, needs_tau)
            return plain[0].to(scores.dtype), None if plain[1] is None else plain[1].reshape(tau.shape), None, None
        grad_scores, grad_tau = _run_backward(grad, scores, tau, mask, out, ctx.eps, needs_tau)
        return grad_scores, grad_tau if needs_tau else None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, tau_tangent: Tensor | None, *_: Any) -> Tensor:
        scores, tau, mask, out = ctx.saved_tensors
        working, column, mask, dead = _plain(scores, tau, mask, ctx.eps)
        if tau_tangent is not None and tau.ndim:
            tau_tangent = tau_tangent.unsqueeze(-1)
        return log_s_tau_tangent(tangent, tau_tangent, working, column, ctx.eps, -1, mask, out, dead)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        # The kernel takes any leading axes; what is mapped over becomes the first of them.
        (scores, tau, mask), eps = inputs[:3], inputs[3]
        scores = scores.expand(info.batch_size, *scores.shape) if in_dims[0] is None else scores.movedim(in_dims[0], 0)
        if in_dims[1] is not None:
            tau = tau.movedim(in_dims[1], 0)
            tau = tau.view(tau.shape[:1] + (1,) * (scores.ndim - 1 - tau.ndim) + tau.shape[1:])
        if in_dims[2] is not None:
            mask = mask.movedim(in_dims[2], 0)
        return fused_log_weights(scores, tau, eps, mask), 0


def _plain(
    scores: Tensor, tau: Tensor, mask: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Working scores, tau with size 1 along the entries, the mask, which rows are dead: for the plain formulas."""
    working, mask = prepare(scores, mask)
    value = log_phi_forward(working.detach(), eps)
    dead = torch.isneginf(value if mask is None else torch.where(mask, value, -torch.inf)).all(-1, keepdim=True)
    return working, tau.unsqueeze(-1) if tau.ndim else tau, mask, dead


# The same as custom ops, which torch.compile keeps whole.
_forward = torch.library.custom_op("stau_rl::log_s_tau", _run_forward, mutates_args=())
_backward = torch.library.custom_op("stau_rl::log_s_tau_backward", _run_backward, mutates_args=())


@_forward.register_fake
def _(scores: Tensor, tau: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    return torch.empty_like(scores, dtype=torch.float32)


@_backward.register_fake
def _(
    grad: Tensor, scores: Tensor, tau: Tensor, mask: Tensor | None, out: Tensor, eps: float, needs_tau: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores), torch.empty_like(tau)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    scores, tau, mask, out = ctx.saved_tensors
    needs_tau = ctx.needs_input_grad[1]
    grad_scores, grad_tau = _backward(grad, scores, tau, mask, out, ctx.eps, needs_tau)
    return grad_scores, grad_tau if needs_tau else None, None, None


_forward.register_autograd(_gradients, setup_context=_setup_context)


def _on(device: int) -> AbstractContextManager[Any]:
    """Triton launches on the current device."""
    return _HERE if device < 0 or device == torch.cuda.current_device() else torch.cuda.device(device)
